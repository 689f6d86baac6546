#include "tests/integration/vmpool/preloaded.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <unistd.h>

pid_t preloaded_start(const char *program, const char *mode, const int from[PRELOADED_FDS],
                      const int to[PRELOADED_FDS])
{
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    int high[PRELOADED_FDS];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < PRELOADED_FDS; i++) { /* out of the way of to[] */
        high[i] = fcntl(from[i], F_DUPFD, 100);
    }
    for (int i = 0; i < PRELOADED_FDS; i++) {
        (void)dup2(high[i], to[i]);
    }
    char *argv[] = { (char *)"target", NULL };
    char *envp[] = { (char *)"LD_PRELOAD=" BROOD_BINARY_DIR "/brood-qemu-seed.so",
                     (char *)(uintptr_t)mode, NULL };
    (void)execve(program, argv, envp);
    _exit(127);
}
