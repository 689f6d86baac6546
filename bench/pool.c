/* bench_pool SOCKET TEMPLATE N: lease, print(1), release, N times against a running vmpool with a
 * full pool.
 *
 * One JSON object on stdout: lease_us and first_byte_us (from the start of the lease call to the
 * first byte of output), private_kib (pages that the clone's process alone holds, after its print),
 * and how many leases came warm and exercised. Before each lease the pool is given time to fill up
 * and fall quiet, so that figures are those of an idle host. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sodium.h>
#include "bench/session.h"
#include "cli/poolclient.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "worker/pool_client.h"

#define N_MAX 10000
#define FILL_MS_MAX 30000
#define POLL_MS 20
#define QUIET_MS                                                                                   \
    60 /* after the last clone was made: its last writes to the log, its parent's bookkeeping */
#define LEASE_MS 60000

struct bench {
    const char *socket, *template_name;
    struct bench_session *session;
    struct pool_client client;
    json_t *lease_us, *first_byte_us, *total_us, *private_kib;
    int warm, exercised;
    char engine[32];
};

/* Wait until the template has all the warm sandboxes it wants and none is being made. */
static int wait_full(const struct bench *b, struct err *err)
{
    cleanup_free pool_StatusReply *status = calloc(1, sizeof *status);
    if (!status) {
        abort();
    }
    for (int64_t end_ms = mono_ms() + FILL_MS_MAX;;) {
        int rc = poolclient_status(b->socket, LEASE_MS, status, err);
        if (rc < 0) {
            return rc;
        }
        bool full = false;
        unsigned starting = 0;
        for (pb_size_t i = 0; i < status->snapshots_count; i++) {
            const pool_SnapshotStatus *s = &status->snapshots[i];
            starting += s->starting;
            full = full || (strcmp(s->template, b->template_name) == 0 && s->warm >= s->target &&
                            s->warm > 0);
        }
        if (full && starting == 0) {
            sleep_ms(QUIET_MS);
            return 0;
        }
        if (mono_ms() > end_ms) {
            return err_set(err, ERR_TIMEOUT, "the pool does not fill up with %s", b->template_name);
        }
        sleep_ms(POLL_MS);
    }
}

/* schedstat_fd names the process: /proc/PID/task/TID/schedstat. 0 when it cannot be told. */
static long process_of(int schedstat_fd)
{
    char link[64], path[256];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", schedstat_fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    return strncmp(path, "/proc/", 6) == 0 ? strtol(path + 6, NULL, 10) : 0;
}

/* Kibibytes that only this process holds; -1 when they cannot be read. A page of the shared image
 * that no other clone has mapped counts as Private_Dirty too (a memfd's pages are always dirty),
 * but not as Anonymous; a page still shared with the seed is Anonymous, but not private. So of each
 * mapping the smaller of the two. */
static long private_kib(long pid)
{
    char path[64], line[512];
    long sum = 0, dirty = 0, kib;
    bool any = false;
    (void)snprintf(path, sizeof path, "/proc/%ld/smaps", pid);
    cleanup_fclose FILE *f = pid > 0 ? fopen(path, "re") : NULL;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "Private_Dirty: %ld kB", &kib) == 1) {
            dirty = kib; /* comes before Anonymous, in each mapping */
        } else if (sscanf(line, "Anonymous: %ld kB", &kib) == 1) {
            sum += kib < dirty ? kib : dirty;
            any = true;
        }
    }
    return any ? sum : -1;
}

static int one(struct bench *b, bool record, struct err *err)
{
    struct lease lease;
    int64_t first_us = 0, total_us = 0;
    int rc = wait_full(b, err);
    if (rc < 0) {
        return rc;
    }
    int64_t start_us = mono_us();
    if ((rc = pool_lease(&b->client, b->template_name, false, -1, LEASE_MS, &lease, err)) < 0) {
        return rc;
    }
    int64_t leased_us = mono_us() - start_us;
    rc = bench_session_run(b->session, lease.channel_fd, lease.cpu_fd, start_us, &first_us,
                           &total_us, err);
    if (rc == 0 && record) {
        (void)json_array_append_new(b->lease_us, json_integer(leased_us));
        (void)json_array_append_new(b->first_byte_us, json_integer(first_us));
        (void)json_array_append_new(b->total_us, json_integer(total_us));
        long kib = private_kib(process_of(lease.cpu_fd));
        if (kib >= 0) {
            (void)json_array_append_new(b->private_kib, json_integer(kib));
        }
        b->warm += lease.warm;
        b->exercised += lease.exercised;
        (void)snprintf(b->engine, sizeof b->engine, "%s", lease.engine);
    }
    pool_release(&b->client, &lease);
    return rc;
}

int main(int argc, char **argv)
{
    struct err err;
    long n = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
    if (n < 1 || n > N_MAX) {
        (void)fprintf(stderr, "usage: bench_pool SOCKET TEMPLATE N\n");
        return 2;
    }
    struct bench b = { .socket = argv[1],
                       .template_name = argv[2],
                       .lease_us = json_array(),
                       .first_byte_us = json_array(),
                       .total_us = json_array(),
                       .private_kib = json_array() };
    int rc = sodium_init() < 0 ? err_set(&err, ERR_INTERNAL, "libsodium") : 0;
    rc = rc < 0 ? rc : pool_client_init(&b.client, b.socket, &err);
    rc = rc < 0 ? rc : bench_session_new(b.template_name, &b.session, &err);
    for (long i = -2; rc >= 0 && i < n; i++) {
        rc = one(&b, i >= 0, &err);
    }
    if (rc < 0) {
        (void)fprintf(stderr, "bench_pool: %s\n", err.text);
        return 1;
    }
    json_t *out =
        json_pack("{s:o, s:o, s:o, s:o, s:i, s:i, s:s}", "lease_us", b.lease_us, "first_byte_us",
                  b.first_byte_us, "total_us", b.total_us, "private_kib", b.private_kib, "warm",
                  b.warm, "exercised", b.exercised, "engine", b.engine);
    (void)json_dumpf(out, stdout, JSON_COMPACT);
    (void)putchar('\n');
    json_decref(out);
    bench_session_free(b.session);
    pool_client_done(&b.client);
    return 0;
}
