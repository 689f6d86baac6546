#include "cli/proc.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"

#define PROC_POLL_MS 20
#define PROC_KILL_WAIT_MS 5000
#define TAIL_BYTES_MAX 8192

int proc_become(uid_t uid, gid_t gid, const gid_t extra_gids[PROC_GIDS_MAX])
{
    size_t n = 0;
    gid_t gids[PROC_GIDS_MAX];
    for (int i = 0; i < PROC_GIDS_MAX; i++) {
        if (extra_gids[i]) {
            gids[n++] = extra_gids[i];
        }
    }
    return setgroups(n, gids) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0 ||
                   prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0
               ? -1
               : 0;
}

static int pass(int fd, const char *env)
{
    char number[16];
    (void)snprintf(number, sizeof number, "%d", fd);
    return fcntl(fd, F_SETFD, 0) < 0 || setenv(env, number, 1) < 0 ? -1 : 0;
}

/* In the child. Returns only on failure, with errno set. */
static void child_exec(const struct spawn_opts *o, pid_t parent, int in_fd, int out_fd, int err_fd)
{
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    if (o->own_group) {
        (void)setpgid(0, 0);
    }
    if ((in_fd >= 0 && dup2(in_fd, 0) < 0) || (out_fd >= 0 && dup2(out_fd, 1) < 0) ||
        (err_fd >= 0 && dup2(err_fd, 2) < 0)) {
        return;
    }
    if (o->env) {
        environ = (char **)(uintptr_t)o->env;
    }
    if ((o->uid != PROC_KEEP_USER && proc_become(o->uid, o->gid, o->extra_gids) < 0) ||
        (o->fd_env && pass(o->pass_fd, o->fd_env) < 0)) {
        return;
    }
    if (o->cwd && chdir(o->cwd) < 0) {
        return;
    }
    /* After setuid, which clears it. A parent that died in between is seen by getppid. */
    if (o->death_signal) {
        (void)prctl(PR_SET_PDEATHSIG, o->death_signal);
        if (getppid() != parent) {
            _exit(127);
        }
    }
    (void)execvp(o->argv[0], o->argv);
}

static int open_input(const struct spawn_opts *o, struct err *err)
{
    if (!o->input) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        return fd < 0 ? err_sys(err, "/dev/null") : fd;
    }
    int p[2];
    size_t n = strlen(o->input);
    assert(n <= PIPE_BUF);
    if (pipe2(p, O_CLOEXEC) < 0) {
        return err_sys(err, "pipe");
    }
    (void)!write(p[1], o->input, n);
    (void)close(p[1]);
    return p[0];
}

int proc_spawn(const struct spawn_opts *o, pid_t *ret_pid, struct err *err)
{
    assert(o->argv && o->argv[0]);
    cleanup_close int log = -1, failed_read = -1, failed_write = -1;
    cleanup_close int in = open_input(o, err);
    if (in < 0) {
        return in;
    }
    if (o->log_path &&
        (log = open(o->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640)) < 0) {
        return err_sys(err, "%s", o->log_path);
    }
    int p[2];
    if (pipe2(p, O_CLOEXEC) < 0) {
        return err_sys(err, "pipe");
    }
    failed_read = p[0];
    failed_write = p[1];
    pid_t parent = getpid();
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        return err_sys(err, "fork");
    }
    if (pid == 0) {
        child_exec(o, parent, in, o->log_path ? log : o->out_to_err ? 2 : -1, log);
        int e = errno;
        (void)!write(failed_write, &e, sizeof e);
        _exit(127);
    }
    (void)close(TAKE_FD(failed_write));
    int e = 0;
    ssize_t n;
    while ((n = read(failed_read, &e, sizeof e)) < 0 && errno == EINTR) {
    }
    if (n == (ssize_t)sizeof e) {
        (void)waitpid(pid, NULL, 0);
        errno = e;
        return err_sys(err, "cannot start %s", o->argv[0]);
    }
    *ret_pid = pid;
    return 0;
}

static int status_code(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int proc_run(const struct spawn_opts *o, struct err *err)
{
    pid_t pid;
    int status, rc = proc_spawn(o, &pid, err);
    if (rc < 0) {
        return rc;
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return err_sys(err, "wait for %s", o->argv[0]);
        }
    }
    return status_code(status);
}

int proc_capture(char *const *argv, int64_t timeout_ms, char *out, size_t room, struct err *err)
{
    int p[2], status;
    assert(room > 0);
    if (pipe2(p, O_CLOEXEC) < 0) {
        return err_sys(err, "pipe");
    }
    cleanup_close int rd = p[0];
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        struct spawn_opts o = { .argv = argv, .uid = PROC_KEEP_USER, .death_signal = SIGKILL };
        child_exec(&o, parent, null, p[1], null);
        _exit(127);
    }
    (void)close(p[1]);
    if (pid < 0) {
        return err_sys(err, "fork");
    }
    int64_t end = mono_ms() + timeout_ms;
    size_t len = 0;
    bool late = false;
    for (;;) {
        struct pollfd pf = { .fd = rd, .events = POLLIN };
        int64_t left = end - mono_ms();
        if (left <= 0 || poll(&pf, 1, (int)left) == 0) {
            late = true;
            (void)kill(pid, SIGKILL);
            break;
        }
        char piece[1024];
        ssize_t n = read(rd, piece, sizeof piece);
        if (n <= 0) {
            break;
        }
        size_t keep = (size_t)n < room - 1 - len ? (size_t)n : room - 1 - len;
        memcpy(out + len, piece, keep);
        len += keep;
    }
    out[len] = 0;
    (void)waitpid(pid, &status, 0);
    if (late) {
        return err_set(err, ERR_TIMEOUT, "%s did not end within %lld ms", argv[0],
                       (long long)timeout_ms);
    }
    return status_code(status);
}

uint64_t proc_start_time(pid_t pid)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0) {
        return 0;
    }
    text[n] = 0;
    char *p = strrchr(text, ')'); /* the name may hold blanks and parentheses */
    if (!p || p[1] != ' ' || p[2] == 'Z' || p[2] == 'X') {
        return 0;
    }
    p += 2;
    for (int field = 3; field < 22; field++) {
        p = strchr(p, ' ');
        if (!p) {
            return 0;
        }
        p++;
    }
    return strtoull(p, NULL, 10);
}

static void record_path(const char *run_dir, const char *name, char out[PATH_MAX])
{
    (void)snprintf(out, PATH_MAX, "%s/pids%s%s", run_dir, *name ? "/" : "", name);
}

int proc_record(const char *run_dir, const char *name, pid_t pid, struct err *err)
{
    char dir[PATH_MAX], path[PATH_MAX], tmp[PATH_MAX + 8];
    record_path(run_dir, "", dir);
    record_path(run_dir, name, path);
    (void)snprintf(tmp, sizeof tmp, "%s.tmp", path);
    if (mkdir(dir, 0711) < 0 && errno != EEXIST) {
        return err_sys(err, "%s", dir);
    }
    cleanup_fclose FILE *f = fopen(tmp, "we");
    if (!f) {
        return err_sys(err, "%s", tmp);
    }
    (void)fprintf(f, "%d %llu\n", (int)pid, (unsigned long long)proc_start_time(pid));
    FILE *closing = TAKE_PTR(f);
    if (fclose(closing) != 0 || rename(tmp, path) < 0) {
        return err_sys(err, "%s", path);
    }
    return 0;
}

void proc_forget(const char *run_dir, const char *name)
{
    char path[PATH_MAX];
    record_path(run_dir, name, path);
    (void)unlink(path);
}

bool proc_alive(const struct proc_record *r)
{
    return r->pid > 1 && r->start != 0 && proc_start_time(r->pid) == r->start;
}

static int by_pid(const void *a, const void *b)
{
    return ((const struct proc_record *)a)->pid - ((const struct proc_record *)b)->pid;
}

int proc_records(const char *run_dir, struct proc_record *ret_rows, int max)
{
    char dir[PATH_MAX];
    record_path(run_dir, "", dir);
    DIR *d = opendir(dir);
    int n = 0;
    if (!d) {
        return 0;
    }
    for (struct dirent *e; n < max && (e = readdir(d));) {
        char path[PATH_MAX];
        struct proc_record r = { 0 };
        int pid = 0;
        unsigned long long start = 0;
        if (strlen(e->d_name) >= sizeof r.name || strchr(e->d_name, '.')) {
            continue;
        }
        record_path(run_dir, e->d_name, path);
        cleanup_fclose FILE *f = fopen(path, "re");
        if (!f || fscanf(f, "%d %llu", &pid, &start) != 2) {
            continue;
        }
        r.pid = pid;
        r.start = start;
        memcpy(r.name, e->d_name, strlen(e->d_name) + 1);
        if (proc_alive(&r)) {
            ret_rows[n++] = r;
        }
    }
    (void)closedir(d);
    qsort(ret_rows, (size_t)n, sizeof *ret_rows, by_pid);
    return n;
}

static bool wait_end(const struct proc_record *r, int64_t timeout_ms, bool (*hurry)(void))
{
    for (int64_t end = mono_ms() + timeout_ms; proc_alive(r); sleep_ms(PROC_POLL_MS)) {
        (void)waitpid(r->pid, NULL, WNOHANG); /* when it is our own child */
        if (mono_ms() >= end || (hurry && hurry())) {
            return !proc_alive(r);
        }
    }
    return true;
}

bool proc_end_or_hurry(const struct proc_record *r, int sig, int64_t timeout_ms,
                       bool (*hurry)(void))
{
    if (!proc_alive(r)) {
        return true;
    }
    (void)kill(r->pid, sig);
    if (wait_end(r, timeout_ms, hurry)) {
        return true;
    }
    (void)kill(r->pid, SIGKILL);
    return wait_end(r, PROC_KILL_WAIT_MS, NULL);
}

bool proc_end(const struct proc_record *r, int sig, int64_t timeout_ms)
{
    return proc_end_or_hurry(r, sig, timeout_ms, NULL);
}

void proc_print_tail(const char *path, int max_lines)
{
    char text[TAIL_BYTES_MAX + 1];
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    if (size <= 0) {
        return;
    }
    off_t from = size > TAIL_BYTES_MAX ? size - TAIL_BYTES_MAX : 0;
    ssize_t n = pread(fd, text, TAIL_BYTES_MAX, from);
    if (n <= 0) {
        return;
    }
    text[n] = 0;
    char *p = text + n;
    for (int lines = 0; p > text; p--) {
        if (p[-1] == '\n' && p != text + n && ++lines >= max_lines) {
            break;
        }
    }
    (void)fprintf(stderr, "  last lines of %s:\n", path);
    while (*p) {
        char *eol = strchrnul(p, '\n');
        (void)fprintf(stderr, "  | %.*s\n", (int)(eol - p), p);
        p = *eol ? eol + 1 : eol;
    }
}

void proc_rotate(const char *path, int64_t max_bytes)
{
    struct stat st;
    char old[PATH_MAX];
    if (stat(path, &st) == 0 && st.st_size > max_bytes &&
        snprintf(old, sizeof old, "%s.1", path) < (int)sizeof old) {
        (void)rename(path, old);
    }
}
