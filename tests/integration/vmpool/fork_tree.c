/* brood-fork-tree SOCKET TEMPLATE DEPTH [keep]: a line of states DEPTH deep at a running vmpool,
 * with a fork beside each, and whether they are what they must be.
 *
 * Each state is set up by a run that asks a process, left running by the first of them, how often
 * it was asked, and adds a name to a file; then it settles and is frozen. A leaf is forked from
 * each state, with another set-up's fork beside it that goes on to the next. A leaf must find its
 * own line's count and names, and random(), uuid4(), urandom() that no other leaf has, and the
 * host's time. The last leaf lives on when all frozen ones are released. keep: the last state is
 * also written to disk, and a leaf started from there.
 *
 * At the end nothing of it is left: no process, and no more memory taken than before. Prints one
 * JSON object with times in ms; exit status 1 and the reason when something is not as it must be.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <jansson.h>

#include "common/base/clock.h"
#include "tests/integration/vmpool/pool_client.h"

#define DEPTH_MAX 16
#define LEAVES_MAX (2 * DEPTH_MAX)
#define TIMEOUT_MS 120000
#define GONE_MS 30000
#define WARM_MIB 48 /* policy.h */
#define OVERHEAD_MIB 32
#define FIELDS 6 /* of a leaf's line */
#define FIELD_BYTES 160

static const char first_setup[] = "import os\n"
                                  "os.mkfifo('ask'); os.mkfifo('answer')\n"
                                  "if os.fork() == 0:\n"
                                  "    os.setsid()\n"
                                  "    for fd in (0, 1, 2): os.close(fd)\n"
                                  "    n = 0\n"
                                  "    while True:\n"
                                  "        with open('ask') as f: f.read()\n"
                                  "        n += 1\n"
                                  "        with open('answer', 'w') as f: f.write(str(n))\n";
static const char next_setup[] = "with open('ask', 'w') as f: f.write('x')\n"
                                 "with open('answer') as f: n = f.read()\n"
                                 "with open('line', 'a') as f: f.write('/%d')\n"
                                 "print(n, end='')\n";
static const char leaf[] = "import os, random, time, uuid\n"
                           "with open('ask', 'w') as f: f.write('x')\n"
                           "with open('answer') as f: n = f.read()\n"
                           "with open('line') as f: line = f.read()\n"
                           "print(n, line, random.random(), uuid.uuid4(), os.urandom(8).hex(),\n"
                           "      time.time(), end='')\n";

static char seen[LEAVES_MAX][FIELDS][FIELD_BYTES];
static int n_seen;
static double freeze_ms[DEPTH_MAX], fork_ms[LEAVES_MAX];
static int n_forks, pids[LEAVES_MAX + DEPTH_MAX + 2], n_pids;

static _Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fprintf(stderr, "brood-fork-tree: ");
    (void)vfprintf(stderr, fmt, ap);
    (void)fprintf(stderr, "\n");
    va_end(ap);
    exit(1);
}

static void ready(struct pool_lease *l, const char *what)
{
    struct err err;
    if (guest_identity(l->channel, TIMEOUT_MS, &err) < 0) {
        die("%s: identity: %s", what, err.text);
    }
    pids[n_pids++] = pool_lease_pid(l);
}

static void run(const struct pool_lease *l, const char *program, bool keep, struct guest_result *r)
{
    const char *const argv[] = { "python3", "-c", program, NULL };
    struct err err;
    int rc = keep ? guest_run_keep(l->channel, argv, TIMEOUT_MS, r, &err)
                  : guest_run(l->channel, argv, TIMEOUT_MS, r, &err);
    if (rc < 0) {
        die("run: %s", err.text);
    }
    if (r->exit_code != 0 || r->signal != 0) {
        die("a run ended with %d, signal %u: %s", r->exit_code, r->signal, r->output);
    }
}

/* A state's own part, then the freeze. depth: from 1 on. */
static void set_up(int fd, const struct pool_lease *l, int depth)
{
    char program[sizeof next_setup + 16];
    struct err err;
    struct guest_result r;
    if (depth == 1) {
        run(l, first_setup, true, &r);
    }
    (void)snprintf(program, sizeof program, next_setup, depth);
    run(l, program, true, &r);
    if (strtol(r.output, NULL, 10) != depth) {
        die("state %d: the process that was left running says %s", depth, r.output);
    }
    if (guest_settle(l->channel, TIMEOUT_MS, &err) < 0) {
        die("state %d: settle: %s", depth, err.text);
    }
    int64_t at = mono_us();
    if (pool_client_freeze(fd, l, &err) < 0) {
        die("state %d: freeze: %s", depth, err.text);
    }
    freeze_ms[depth - 1] = (double)(mono_us() - at) / 1e3;
}

static void fork_of(int fd, const struct pool_lease *frozen, struct pool_lease *ret)
{
    struct err err;
    int64_t at = mono_us();
    if (pool_client_fork(fd, frozen->reply.lease, ret, &err) < 0) {
        die("fork: %s", err.text);
    }
    fork_ms[n_forks++] = (double)(mono_us() - at) / 1e3;
    ready(ret, "fork");
}

/* Run the leaf and hold what it says against its line and all leaves before. */
static void run_leaf(const struct pool_lease *l, int depth)
{
    struct guest_result r;
    char line[FIELD_BYTES] = "";
    int64_t before_ns = wall_ns();
    run(l, leaf, false, &r);
    int64_t after_ns = wall_ns();
    char(*f)[FIELD_BYTES] = seen[n_seen];
    if (sscanf(r.output, "%159s %159s %159s %159s %159s %159s", f[0], f[1], f[2], f[3], f[4],
               f[5]) != FIELDS) {
        die("a leaf said %s", r.output);
    }
    for (int d = 1; d <= depth; d++) {
        size_t n = strlen(line);
        (void)snprintf(line + n, sizeof line - n, "/%d", d);
    }
    if (strtol(f[0], NULL, 10) != depth + 1 || strcmp(f[1], line) != 0) {
        die("a leaf of state %d is the %s. of %s", depth, f[0], f[1]);
    }
    for (int i = 0; i < n_seen; i++) {
        for (int k = 2; k < FIELDS; k++) {
            if (strcmp(seen[i][k], f[k]) == 0) {
                die("two leaves agree on %s", f[k]);
            }
        }
    }
    double time_s = strtod(f[5], NULL);
    if (time_s < (double)before_ns / 1e9 - 1 || time_s > (double)after_ns / 1e9 + 1) {
        die("a leaf says it is %s, between the host's %f and %f", f[5], (double)before_ns / 1e9,
            (double)after_ns / 1e9);
    }
    n_seen++;
}

static void release(int fd, struct pool_lease *l)
{
    struct err err;
    if (pool_client_release(fd, l, &err) < 0) {
        die("release: %s", err.text);
    }
}

/* Without what stands warm. */
static int64_t used_mib(int fd)
{
    static pool_StatusReply s;
    struct err err;
    if (pool_client_status(fd, &s, &err) < 0) {
        die("status: %s", err.text);
    }
    int64_t mib = s.memory_used_mib;
    for (pb_size_t i = 0; i < s.snapshots_count; i++) {
        mib -= (int64_t)(s.snapshots[i].warm + s.snapshots[i].starting) * WARM_MIB;
    }
    return mib;
}

static void expect_gone(int fd, int64_t before_mib)
{
    bool there = true;
    int64_t now_mib = 0;
    for (int64_t until_ms = mono_ms() + GONE_MS; there && mono_ms() < until_ms; sleep_ms(20)) {
        there = false;
        for (int i = 0; i < n_pids; i++) {
            there = there || (pids[i] > 0 && kill(pids[i], 0) == 0);
        }
        now_mib = used_mib(fd);
        there = there || now_mib > before_mib;
    }
    if (there) {
        die("something is left: %lld MiB are taken, %lld were before", (long long)now_mib,
            (long long)before_mib);
    }
}

/* The state is written out, and a sandbox started from the disk. */
static void keep(int fd, const struct pool_lease *frozen, int depth, double *ret_keep_ms)
{
    struct err err;
    char spec[96] = "kept:";
    int64_t at = mono_us();
    if (pool_client_keep(fd, frozen, spec + 5, sizeof spec - 5, &err) < 0) {
        die("keep: %s", err.text);
    }
    *ret_keep_ms = (double)(mono_us() - at) / 1e3;
    struct pool_lease l;
    if (pool_client_lease(fd, spec, false, &l, &err) < 0) {
        die("lease of what was kept: %s", err.text);
    }
    ready(&l, "kept");
    run_leaf(&l, depth);
    release(fd, &l);
}

static json_t *numbers(const double *from, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++) {
        (void)json_array_append_new(a, json_real(from[i]));
    }
    return a;
}

int main(int argc, char **argv)
{
    static struct pool_lease line[DEPTH_MAX + 1];
    struct err err;
    struct pool_lease beside;
    double keep_ms = 0;
    int depth = argc >= 4 ? (int)strtol(argv[3], NULL, 10) : 0, fd;
    if (depth < 1 || depth > DEPTH_MAX) {
        (void)fprintf(stderr, "use: brood-fork-tree SOCKET TEMPLATE DEPTH [keep]\n");
        return 2;
    }
    if ((fd = pool_client_connect(argv[1], TIMEOUT_MS, &err)) < 0 ||
        pool_client_await(fd, argv[2], TIMEOUT_MS, &err) < 0 ||
        pool_client_lease(fd, argv[2], false, &line[0], &err) < 0) {
        die("lease: %s", err.text);
    }
    ready(&line[0], "lease");
    int64_t before_mib = used_mib(fd) - (line[0].reply.memory_mib + OVERHEAD_MIB);
    for (int d = 1; d <= depth; d++) {
        set_up(fd, &line[d - 1], d);
        fork_of(fd, &line[d - 1], &line[d]);
        fork_of(fd, &line[d - 1], &beside);
        run_leaf(&beside, d);
        release(fd, &beside);
    }
    if (argc > 4) {
        keep(fd, &line[depth - 1], depth, &keep_ms);
    }
    for (int d = 0; d < depth; d++) {
        release(fd, &line[d]);
    }
    run_leaf(&line[depth], depth); /* it needs none of them any more */
    release(fd, &line[depth]);
    /* a state that was kept stays in memory for two minutes after its last use */
    expect_gone(fd, argc > 4 ? INT64_MAX : before_mib);
    json_t *o = json_pack("{s:s,s:i,s:o,s:o,s:f}", "engine", line[0].reply.engine, "leaves", n_seen,
                          "freeze_ms", numbers(freeze_ms, depth), "fork_ms",
                          numbers(fork_ms, n_forks), "keep_ms", keep_ms);
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(4));
    (void)puts(text);
    free(text);
    json_decref(o);
    return 0;
}
