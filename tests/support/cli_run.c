#include "tests/support/cli_run.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"

#define OUTPUT_BYTES_MAX (16 << 20)
#define END_MS_MAX 120000

void cli_start(struct cli_run *r, const char *const *argv)
{
    *r = (struct cli_run){ .exit_code = -1 };
    for (int i = 0; i < 2; i++) {
        r->fds[i] = memfd_create("output", MFD_CLOEXEC);
        cr_assert_geq(r->fds[i], 0);
    }
    buf_init(&r->out, OUTPUT_BYTES_MAX);
    buf_init(&r->err, OUTPUT_BYTES_MAX);
    pid_t parent = getpid();
    r->pid = fork();
    cr_assert_geq(r->pid, 0);
    if (r->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent && dup2(r->fds[0], 1) >= 0 && dup2(r->fds[1], 2) >= 0) {
            (void)execv(argv[0], (char *const *)(uintptr_t)argv);
        }
        _exit(127);
    }
}

static void read_all(int fd, struct buf *b)
{
    struct err err = { 0 };
    cr_assert_eq(lseek(fd, 0, SEEK_SET), 0);
    cr_assert(buf_read_fd(b, fd, &err) >= 0 && buf_add(b, "", 1, &err) >= 0, "%s", err.text);
    (void)close(fd);
}

void cli_finish(struct cli_run *r)
{
    int status = 0;
    int64_t end_ms = mono_ms() + END_MS_MAX;
    while (waitpid(r->pid, &status, WNOHANG) == 0) {
        if (mono_ms() > end_ms) {
            (void)kill(r->pid, SIGKILL);
        }
        sleep_ms(2);
    }
    r->pid = 0;
    r->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    read_all(r->fds[0], &r->out);
    read_all(r->fds[1], &r->err);
    cr_assert_neq(r->exit_code, 127, "no brood: ninja brood");
}

void cli_run_done(struct cli_run *r)
{
    if (r->pid > 0) {
        (void)kill(r->pid, SIGKILL);
        (void)waitpid(r->pid, NULL, 0);
    }
    buf_done(&r->out);
    buf_done(&r->err);
}
