/* bench_forks: what forks of a running sandbox cost. Talks to a running vmpool:
 *
 *   bench_forks SOCKET TEMPLATE N DIRTY_MIB
 *
 * Leases one sandbox, dirties DIRTY_MIB of its memory in a process that stays, settles and freezes
 * it; N times: fork, identity, `print(1)` by the interpreter, to the first byte and to the end,
 * with the fork's private memory. Then a chain: at each depth from 1 to 4 the same fork, after a
 * freeze of the one above. Prints one JSON object; times in milliseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "common/base/clock.h"
#include "tests/integration/vmpool/figures.h"
#include "tests/integration/vmpool/pool_client.h"

#define N_MAX 500
#define DEPTH 4
#define TIMEOUT_MS 60000

static void die(const char *what, const struct err *err)
{
    (void)fprintf(stderr, "bench_forks: %s: %s\n", what, err->text);
    exit(1);
}

static double ms_since(int64_t us)
{
    return (double)(mono_us() - us) / 1e3;
}

static void settle_and_freeze(int fd, const struct pool_lease *l, double *ret_settle_ms,
                              double *ret_freeze_ms)
{
    struct err err;
    int64_t at = mono_us();
    if (guest_settle(l->channel, TIMEOUT_MS, &err) < 0) {
        die("settle", &err);
    }
    *ret_settle_ms = ms_since(at);
    at = mono_us();
    if (pool_client_freeze(fd, l, &err) < 0) {
        die("freeze", &err);
    }
    *ret_freeze_ms = ms_since(at);
}

/* A fork that has printed: still leased. */
static void fork_and_print(int fd, uint64_t from, struct pool_lease *l, double *ret_fork_ms,
                           double *ret_first_ms)
{
    static const char *const print[] = { "python3", "-c", "print(1)", NULL };
    struct err err;
    struct guest_result r;
    int64_t at = mono_us();
    if (pool_client_fork(fd, from, l, &err) < 0) {
        die("fork", &err);
    }
    *ret_fork_ms = ms_since(at);
    if (guest_identity(l->channel, TIMEOUT_MS, &err) < 0) {
        die("identity", &err);
    }
    double before_ms = ms_since(at);
    if (guest_run(l->channel, print, TIMEOUT_MS, &r, &err) < 0 || r.exit_code != 0) {
        die("run", &err);
    }
    *ret_first_ms = before_ms + (double)r.first_byte_us / 1e3;
}

int main(int argc, char **argv)
{
    static double fork_ms[N_MAX], first_ms[N_MAX], mib[N_MAX];
    static struct pool_lease chain[DEPTH + 1];
    struct err err;
    struct guest_result r;
    char dirty[512];
    if (argc != 5) {
        (void)fprintf(stderr, "use: bench_forks SOCKET TEMPLATE N DIRTY_MIB\n");
        return 2;
    }
    int n = (int)strtol(argv[3], NULL, 10), fd = pool_client_connect(argv[1], 5000, &err);
    n = n < 1 ? 1 : n > N_MAX ? N_MAX : n;
    if (fd < 0 || pool_client_lease(fd, argv[2], false, &chain[0], &err) < 0 ||
        guest_identity(chain[0].channel, TIMEOUT_MS, &err) < 0) {
        die("lease", &err);
    }
    (void)snprintf(dirty, sizeof dirty,
                   "python3 -c 'import os,time\nb=bytearray(os.urandom(4096)*(256*%ld))\n"
                   "open(\"ready\",\"w\")\ntime.sleep(1e9)' & "
                   "while [ ! -e ready ]; do sleep 0.1; done",
                   strtol(argv[4], NULL, 10));
    const char *const setup[] = { "/bin/sh", "-c", dirty, NULL };
    if (guest_run_keep(chain[0].channel, setup, TIMEOUT_MS, &r, &err) < 0 || r.exit_code != 0) {
        die("set-up", &err);
    }
    double settle_ms, freeze_ms;
    settle_and_freeze(fd, &chain[0], &settle_ms, &freeze_ms);
    json_t *out = json_pack("{s:f,s:f,s:f}", "settle_ms", settle_ms, "freeze_ms", freeze_ms,
                            "dirty_mib", strtod(argv[4], NULL));
    for (int i = -1; i < n; i++) { /* the first does not count */
        struct pool_lease l;
        int at = i < 0 ? 0 : i;
        fork_and_print(fd, chain[0].reply.lease, &l, &fork_ms[at], &first_ms[at]);
        mib[at] = figures_private_mib(pool_lease_pid(&l));
        if (pool_client_release(fd, &l, &err) < 0) {
            die("release", &err);
        }
    }
    (void)json_object_set_new(out, "fork_ms", figures_quantiles(fork_ms, n));
    (void)json_object_set_new(out, "fork_first_byte_ms", figures_quantiles(first_ms, n));
    (void)json_object_set_new(out, "fork_private_mib", figures_quantiles(mib, n));
    json_t *depths = json_array();
    int each = n < 5 ? n : 5;
    for (int d = 1; d <= DEPTH; d++) {
        for (int i = 0; i < each; i++) {
            struct pool_lease l;
            fork_and_print(fd, chain[d - 1].reply.lease, &l, &fork_ms[i], &first_ms[i]);
            if (pool_client_release(fd, &l, &err) < 0) {
                die("release", &err);
            }
        }
        (void)json_array_append_new(depths, figures_quantiles(first_ms, each));
        double unused;
        fork_and_print(fd, chain[d - 1].reply.lease, &chain[d], &unused, &unused);
        settle_and_freeze(fd, &chain[d], &unused, &unused);
    }
    (void)json_object_set_new(out, "first_byte_ms_by_depth", depths);
    char *text = json_dumps(out, JSON_INDENT(1) | JSON_REAL_PRECISION(4));
    (void)puts(text);
    free(text);
    json_decref(out);
    return 0;
}
