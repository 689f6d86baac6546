#include "guest/spawn.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "guest/boot.h"

#define EXIT_NOT_FOUND 127
#define EXIT_NOT_STARTED 126
#define PATH_TEXT_MAX 4096u
#define SHEBANG_MAX 256u

/* What the child tells its parent, in memory that both see: no pipe, no read on the way of a
 * program that starts. */
struct report {
    int error;        /* errno; 0 while all is well */
    const char *step; /* static text, or NULL: the exec */
    bool crlf;
};

static void set_limit(int which, uint64_t value)
{
    struct rlimit r = { value, value };
    if (setrlimit(which, &r) < 0) {
        r.rlim_max = RLIM_INFINITY;
        (void)setrlimit(which, &r);
    }
}

static const char *enter(const struct spawn *s)
{
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)umask(022);
    (void)setsid();
    if (s->cell && (cell_join(s->cell) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)) {
        return "container";
    }
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) != 1) {
        return "oom_score_adj";
    }
    for (int i = 0; i < 3; i++) {
        assert(s->pipes[i] > 2); /* 0 to 2 are the agent's own */
        if (dup2(s->pipes[i], i) < 0) {
            return "dup2";
        }
    }
    set_limit(RLIMIT_CORE, 0);
    set_limit(RLIMIT_STACK, s->stack_bytes);
    set_limit(RLIMIT_NOFILE, s->open_files);
    if (!s->as_root && (setgroups(0, NULL) < 0 || setresgid(BOOT_UID, BOOT_UID, BOOT_UID) < 0 ||
                        setresuid(BOOT_UID, BOOT_UID, BOOT_UID) < 0)) {
        return "drop privileges";
    }
    return chdir(s->cwd) < 0 ? "working directory" : NULL;
}

/* Whether path is a script whose #! line ends in CR: the kernel then looks for an interpreter with
 * a CR in its name. */
static bool is_crlf_script(const char *path)
{
    char head[SHEBANG_MAX];
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? 0 : read(fd, head, sizeof head);
    if (n < 3 || head[0] != '#' || head[1] != '!') {
        return false;
    }
    const char *end = memchr(head, '\n', (size_t)n);
    return end && end[-1] == '\r';
}

static int try_exec(const char *path, const struct spawn *s, struct report *report)
{
    (void)execve(path, s->argv->v, s->env->v);
    int e = errno;
    if (e == ENOENT && is_crlf_script(path)) {
        report->crlf = true;
    }
    return e;
}

static int exec_in_path(const struct spawn *s, struct report *report)
{
    const char *name = s->argv->v[0];
    if (strchr(name, '/')) {
        return try_exec(name, s, report);
    }
    const char *dir = strs_env(s->env, "PATH");
    int error = ENOENT;
    while (dir && *name && !report->crlf) {
        size_t n = strcspn(dir, ":");
        char path[PATH_TEXT_MAX];
        int len = snprintf(path, sizeof path, "%.*s/%s", n ? (int)n : 1, n ? dir : ".", name);
        if (len > 0 && (size_t)len < sizeof path) {
            int e = try_exec(path, s, report);
            if (e == EACCES) {
                error = e; /* go on looking, as execvp does */
            } else if (e != ENOENT && e != ENOTDIR) {
                return e;
            }
        }
        dir = dir[n] ? dir + n + 1 : NULL;
    }
    return error;
}

_Noreturn static void child(const struct spawn *s, struct report *report)
{
    report->step = enter(s);
    report->error = report->step ? errno : exec_in_path(s, report);
    bool missing = report->error == ENOENT || report->error == ENOTDIR;
    _exit(missing ? EXIT_NOT_FOUND : EXIT_NOT_STARTED);
}

static void describe(const struct spawn *s, const struct report *report,
                     struct spawn_failure *ret_failure)
{
    bool missing = report->error == ENOENT || report->error == ENOTDIR;
    ret_failure->exit_code = missing ? EXIT_NOT_FOUND : EXIT_NOT_STARTED;
    const char *what = report->step ? report->step : s->argv->v[0];
    const char *hint = "";
    if (report->crlf) {
        hint = " (its #! line ends in CR: the file has CRLF line endings)";
    } else if (!report->step && report->error == EACCES) {
        hint = " (not executable?)";
    }
    (void)snprintf(ret_failure->text, sizeof ret_failure->text, "%.70s: %s%s", what,
                   strerror(report->error), hint);
}

int spawn_program(const struct spawn *s, pid_t *ret_pid, struct spawn_failure *ret_failure,
                  struct err *err)
{
    static struct report *report;
    if (!report) {
        void *page =
            mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) {
            return err_sys(err, "mmap");
        }
        report = page;
    }
    *report = (struct report){ 0 };
    struct clone_args args = { .flags = CLONE_INTO_CGROUP | CLONE_VFORK,
                               .exit_signal = SIGCHLD,
                               .cgroup = (uint64_t)s->cgroup_dir_fd };
    int rc = s->cell ? cell_pid_enter(s->cell, err) : 0;
    if (rc < 0) {
        return rc;
    }
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0) {
        child(s, report);
    }
    if (pid < 0) {
        rc = err_sys(err, "clone3");
    }
    if (s->cell) {
        cell_pid_leave(s->cell);
    }
    if (rc < 0) {
        return rc;
    }
    *ret_pid = pid;
    *ret_failure = (struct spawn_failure){ 0 };
    if (report->error) {
        describe(s, report, ret_failure);
    }
    return 0;
}
