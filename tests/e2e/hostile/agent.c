/* The guest agent of a test build: like brood-guest, until a job's command is
 * {"hostile", WORD}. From then on the machine is taken over: WORD (tests/support/hostile.def) says
 * what it does with the channel, and nothing of the agent runs again. Linked with
 * -Wl,--wrap=run_start, so that the agent itself has no such place. */
#include <string.h>
#include <sys/reboot.h>
#include <unistd.h>

#include "guest/run.h"
#include "tests/support/hostile.h"

int __real_run_start(struct run *run, const struct run_env *env, guest_Run *msg, struct channel *ch,
                     struct err *err);
int __wrap_run_start(struct run *run, const struct run_env *env, guest_Run *msg, struct channel *ch,
                     struct err *err);

int __wrap_run_start(struct run *run, const struct run_env *env, guest_Run *msg, struct channel *ch,
                     struct err *err)
{
    static const char me[] = "hostile";
    const char *argv = (const char *)msg->argv.bytes, *word = argv + sizeof me;
    if (msg->argv.size < sizeof me + 2 || memcmp(argv, me, sizeof me) != 0 ||
        argv[msg->argv.size - 1] != 0 || channel_flush(ch) < 0) {
        return __real_run_start(run, env, msg, ch, err);
    }
    (void)hostile_play(ch->fd, &ch->in, word, msg->run);
    if (hostile_closes(word)) {
        (void)sleep(1); /* what was written is on its way */
        (void)reboot(RB_AUTOBOOT);
    }
    for (;;) {
        (void)pause();
    }
}
