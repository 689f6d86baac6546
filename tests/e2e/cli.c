/* Commands, jobs and the home's processes for the end-to-end tests; see cli.h.
 *
 * A command's output is drained by poll() so that it can never block on a full pipe, and its whole
 * process group is killed at the deadline. Criterion's children may be started by exec rather than
 * fork, so what has to be known across tests goes through the environment or is asked again. */
#include "tests/e2e/cli.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sodium.h>
#include "common/base/cleanup.h"
#include "common/base/clock.h"

#define E2E_UP_MS 600000

static void fail(const char *what, const struct e2e_run *r)
{
    (void)fprintf(stderr, "e2e: %s\n", what);
    if (r) {
        (void)fprintf(stderr, "  exit %d%s\n  stdout: %.2000s\n  stderr: %.4000s\n", r->exit_code,
                      r->timed_out ? " (killed for time)" : "", r->out.data ? r->out.data : "",
                      r->err.data ? r->err.data : "");
    }
    abort();
}

/* ---- running a command ---- */

static void exec_child(const char *const *argv, int in, int out, int err_fd)
{
    (void)setpgid(0, 0);
    (void)dup2(in, 0);
    (void)dup2(out, 1);
    (void)dup2(err_fd, 2);
    (void)execvp(argv[0], (char *const *)(uintptr_t)argv);
    (void)dprintf(2, "e2e: cannot start %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* false at end of file */
static bool drain(int fd, struct buf *b)
{
    char piece[65536];
    ssize_t n = read(fd, piece, sizeof piece);
    if (n > 0 && b->len + (size_t)n <= b->max) {
        struct err err;
        if (buf_add(b, piece, (size_t)n, &err) < 0) {
            fail(err.text, NULL);
        }
    }
    return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

static int stdin_fd(const char *text)
{
    if (!text) {
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    char name[] = "/tmp/brood-e2e-in-XXXXXX";
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0 || unlink(name) < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) ||
        lseek(fd, 0, SEEK_SET) != 0) {
        fail("cannot write a temporary file", NULL);
    }
    return fd;
}

void e2e_run(struct e2e_run *r, const char *const *argv, const char *stdin_text, int64_t timeout_ms)
{
    *r = (struct e2e_run){ .exit_code = -1 };
    buf_init(&r->out, E2E_OUT_MAX);
    buf_init(&r->err, E2E_OUT_MAX);
    int out[2], err_pipe[2];
    cleanup_close int in = stdin_fd(stdin_text);
    if (in < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(err_pipe, O_CLOEXEC) < 0) {
        fail("cannot make pipes", NULL);
    }
    pid_t pid = fork();
    if (pid == 0) {
        exec_child(argv, in, out[1], err_pipe[1]);
    }
    if (pid < 0) {
        fail("cannot fork", NULL);
    }
    (void)close(out[1]);
    (void)close(err_pipe[1]);
    struct pollfd p[2] = { { .fd = out[0], .events = POLLIN },
                           { .fd = err_pipe[0], .events = POLLIN } };
    int64_t deadline_ms = mono_ms() + timeout_ms;
    int status = 0;
    bool reaped = false;
    /* A daemon that the command left behind may hold the pipes: the command's end ends the wait,
     * not only theirs. */
    while (!reaped || p[0].fd >= 0 || p[1].fd >= 0) {
        int n = poll(p, 2, 50);
        for (int i = 0; i < 2; i++) {
            if (p[i].fd >= 0 && p[i].revents && !drain(p[i].fd, i == 0 ? &r->out : &r->err)) {
                p[i].fd = -1;
            }
        }
        if (!reaped) {
            reaped = waitpid(pid, &status, WNOHANG) == pid;
        } else if (n == 0) {
            break;
        }
        if (!reaped && mono_ms() > deadline_ms) {
            r->timed_out = true;
            (void)kill(-pid, SIGKILL);
            (void)kill(pid, SIGKILL);
            (void)waitpid(pid, &status, 0);
            reaped = true;
        }
    }
    (void)close(out[0]);
    (void)close(err_pipe[0]);
    if (!r->timed_out) {
        r->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    /* Never NULL, so that tests can search in it. */
    struct err err;
    if (buf_add(&r->out, "", 0, &err) < 0 || buf_add(&r->err, "", 0, &err) < 0) {
        fail(err.text, NULL);
    }
    if (!r->out.data) {
        (void)buf_reserve(&r->out, 1, &err);
        r->out.data[0] = 0;
    }
    if (!r->err.data) {
        (void)buf_reserve(&r->err, 1, &err);
        r->err.data[0] = 0;
    }
}

void e2e_run_done(struct e2e_run *r)
{
    buf_done(&r->out);
    buf_done(&r->err);
}

/* ---- binary, home, up and down ---- */

const char *e2e_top(void)
{
    return E2E_SOURCE_DIR;
}

const char *e2e_binary(void)
{
    static char path[4096];
    const char *build = getenv("BROOD_BUILD");
    (void)snprintf(path, sizeof path, "%s/brood", build && *build ? build : E2E_BUILD_DIR);
    return path;
}

/* Every child inherits it as BROOD_HOME. */
const char *e2e_home(void)
{
    static char home[CONFIG_STR_MAX];
    const char *given = getenv("BROOD_TEST_HOME");
    (void)snprintf(home, sizeof home, "%s", given && *given ? given : E2E_BUILD_DIR "/test-home");
    (void)setenv("BROOD_HOME", home, 1);
    return home;
}

const struct config *e2e_config(void)
{
    static struct config config;
    struct err err;
    if (config_load(&config, e2e_home(), NULL, &err) < 0) {
        fail(err.text, NULL);
    }
    return &config;
}

static bool is_up(void)
{
    cleanup_e2e_run struct e2e_run r;
    E2E_BROOD(&r, E2E_SHORT_MS, "status", "--json");
    return r.exit_code == 0 && e2e_pids("vmpool", (pid_t[E2E_PIDS_MAX]){ 0 }, E2E_PIDS_MAX) > 0;
}

void e2e_start(void)
{
    (void)e2e_home();
    if (is_up()) {
        return;
    }
    cleanup_e2e_run struct e2e_run r;
    e2e_run(&r, (const char *const[]){ E2E_SOURCE_DIR "/tests/e2e/fixture.sh", "up", NULL }, NULL,
            E2E_UP_MS);
    if (r.exit_code != 0) {
        fail("fixture.sh up failed", &r);
    }
    (void)setenv("E2E_STARTED", "1", 1);
}

void e2e_stop_if_started(void)
{
    if (!getenv("E2E_STARTED")) {
        return;
    }
    cleanup_e2e_run struct e2e_run r;
    E2E_BROOD(&r, E2E_SHORT_MS, "down");
}

/* ---- jobs ---- */

char *e2e_temp_file(const char *text, size_t len)
{
    const char *dir = getenv("TMPDIR");
    char *path = NULL;
    if (asprintf(&path, "%s/brood-e2e-XXXXXX", dir && *dir ? dir : "/tmp") < 0) {
        abort();
    }
    cleanup_close int fd = mkostemp(path, O_CLOEXEC);
    for (size_t done = 0; fd >= 0 && done < len;) {
        ssize_t n = write(fd, text + done, len - done);
        if (n <= 0) {
            fail("cannot write a temporary file", NULL);
        }
        done += (size_t)n;
    }
    if (fd < 0) {
        fail("cannot make a temporary file", NULL);
    }
    return path;
}

static char *jobs_file(const json_t *jobs)
{
    struct buf lines;
    struct err err;
    buf_init(&lines, 1u << 30);
    size_t i;
    json_t *job;
    json_array_foreach((json_t *)(uintptr_t)jobs, i, job)
    {
        char *line = json_dumps(job, JSON_COMPACT);
        if (!line || buf_add_str(&lines, line, &err) < 0 || buf_add_str(&lines, "\n", &err) < 0) {
            fail("cannot write the batch", NULL);
        }
        free(line);
    }
    char *path = e2e_temp_file(lines.data, lines.len);
    buf_done(&lines);
    return path;
}

char *e2e_submit(const json_t *jobs)
{
    cleanup_free char *path = jobs_file(jobs);
    cleanup_e2e_run struct e2e_run r;
    E2E_BROOD(&r, E2E_BATCH_MS, "submit", path, "--json");
    (void)unlink(path);
    json_t *said = json_loads(r.out.data, 0, NULL);
    const char *batch = json_string_value(json_object_get(said, "batch"));
    if (r.exit_code != 0 || !batch) {
        fail("brood submit failed", &r);
    }
    char *id = strdup(batch);
    json_decref(said);
    return id;
}

static json_t *read_lines(const char *text)
{
    json_t *out = json_array();
    while (*text) {
        size_t n = strcspn(text, "\n");
        json_error_t at;
        json_t *v = n ? json_loadb(text, n, JSON_ALLOW_NUL, &at) : NULL;
        if (n && !v) {
            (void)fprintf(stderr, "e2e: not JSON: %s: %.*s\n", at.text, (int)n, text);
            abort();
        }
        if (v) {
            (void)json_array_append_new(out, v);
        }
        text += n + (text[n] != 0);
    }
    return out;
}

json_t *e2e_wait_results(const char *batch, int64_t timeout_ms)
{
    assert(strlen(batch) == 36);
    if (!e2e_sql_becomes(0, timeout_ms,
                         "SELECT count(*) FROM jobs WHERE batch_id = '%s' AND verdict IS NULL",
                         batch)) {
        (void)fprintf(
            stderr, "e2e: batch %s still has %lld jobs without a verdict\n", batch,
            (long long)e2e_sql(
                "SELECT count(*) FROM jobs WHERE batch_id = '%s' AND verdict IS NULL", batch));
        abort();
    }
    cleanup_e2e_run struct e2e_run r;
    E2E_BROOD(&r, E2E_BATCH_MS, "results", batch, "--json");
    if (r.exit_code != 0) {
        fail("brood results failed", &r);
    }
    return read_lines(r.out.data);
}

json_t *e2e_run_batch(const json_t *jobs)
{
    cleanup_free char *batch = e2e_submit(jobs);
    return e2e_wait_results(batch, E2E_BATCH_MS);
}

json_t *e2e_python(const char *code)
{
    return json_pack("{s:s, s:[{s:s, s:s}], s:[s, s]}", "template", "python", "files", "path",
                     "main.py", "text", code, "command", "python3", "main.py");
}

json_t *e2e_shell(const char *line)
{
    return json_pack("{s:s, s:s}", "template", "python", "command", line);
}

const json_t *e2e_at(const json_t *v, const char *path)
{
    while (v && *path) {
        char part[64];
        size_t n = strcspn(path, ".");
        assert(n < sizeof part);
        (void)snprintf(part, sizeof part, "%.*s", (int)n, path);
        v = json_is_array(v) ? json_array_get(v, (size_t)strtoul(part, NULL, 10))
                             : json_object_get(v, part);
        path += n + (path[n] == '.');
    }
    return v;
}

/* obj.key as text, or obj.key_base64 decoded, added to b. */
static void add_bytes(const json_t *obj, const char *key, struct buf *b)
{
    struct err err;
    char name[64];
    const json_t *v = json_object_get(obj, key);
    if (json_is_string(v)) {
        if (buf_add(b, json_string_value(v), json_string_length(v), &err) < 0) {
            fail(err.text, NULL);
        }
        return;
    }
    (void)snprintf(name, sizeof name, "%s_base64", key);
    v = json_object_get(obj, name);
    if (!json_is_string(v)) {
        return;
    }
    size_t n = json_string_length(v), got = 0;
    void *room = buf_reserve(b, n + 1, &err);
    if (!room || sodium_base642bin(room, n + 1, json_string_value(v), n, NULL, &got, NULL,
                                   sodium_base64_VARIANT_ORIGINAL) != 0) {
        fail("base64 that is not strict", NULL);
    }
    buf_commit(b, got);
}

void e2e_output(const json_t *run, const char *stream, struct buf *ret_bytes)
{
    char tail[64];
    (void)snprintf(tail, sizeof tail, "%s_tail", stream);
    buf_init(ret_bytes, E2E_OUT_MAX);
    add_bytes(run, stream, ret_bytes);
    add_bytes(run, tail, ret_bytes);
}

const char *e2e_verdict(const json_t *result)
{
    const char *v = json_string_value(json_object_get(result, "verdict"));
    return v ? v : "";
}
