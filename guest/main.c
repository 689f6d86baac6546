/* brood-guest: PID 1 of every sandbox.
 *
 * Theory of operation: boot (boot.h) until there is a root for jobs, start the template's warm
 * interpreter, prepare what runs need, say HELLO, then serve the host's frames one session at a
 * time (agent.h, session.def). The snapshot is taken while the loop waits in poll(); every clone
 * wakes up there and finds a host that it has never seen. It starts nothing that it was not told
 * to, and times nothing out: limits of time are the host's, which has the better clock. */
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/log.h"
#include "guest/agent.h"

/* 0, 1, 2 are never a pipe's or the port's; the kernel gave none when the initramfs has no console.
 */
static void occupy_std_fds(void)
{
    for (;;) {
        int fd = open("/", O_RDONLY | O_DIRECTORY);
        if (fd < 0 || fd > 2) {
            (void)close(fd);
            return;
        }
    }
}

static void set_std_fds(void)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < 3; i++) {
        (void)dup2(fd, i);
    }
    (void)close(fd);
}

/* The agent goes first whatever a job does; its children do not inherit that. */
static void raise_priority(void)
{
    struct sched_param p = { .sched_priority = 1 };
    if (sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &p) < 0) {
        (void)setpriority(PRIO_PROCESS, 0, -20);
    }
}

_Noreturn static void give_up(const char *step, const struct err *err)
{
    log_error("guest agent stops", "step", step, "error", err->text);
    sync();
    (void)reboot(RB_AUTOBOOT); /* ends QEMU, which runs with -no-reboot: the pool sees it at once */
    for (;;) {
        (void)pause();
    }
}

int main(void)
{
    static struct agent agent;
    struct boot boot;
    struct err err;
    if (getpid() != 1) {
        return 64; /* not for a shell */
    }
    occupy_std_fds();
    (void)clearenv();
    int rc = boot_machine(&boot, &err);
    int console = open("/dev/ttyS0", O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    log_init("guest", LOG_INFO, console >= 0 ? console : 2);
    if (rc < 0) {
        give_up("boot", &err);
    }
    if (boot.refusals_err.code != 0) {
        log_warn("refusals are not counted", "error", boot.refusals_err.text);
    }
    set_std_fds();
    (void)prctl(PR_SET_DUMPABLE, 0);
    rc = agent_init(&agent, &boot, &err);
    if (rc < 0) {
        give_up("init", &err);
    }
    raise_priority();
    rc = agent_loop(&agent, &err);
    give_up(rc < 0 ? "loop" : "end", &err);
}
