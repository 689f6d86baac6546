/* brood-lease-once SOCKET TEMPLATE CMD...: one sandbox of a running vmpool, from lease to release.
 *
 * Waits until the template's snapshot is read (an emulated host takes longer for it than a lease
 * may wait), leases, sets the identity, runs CMD, releases, and prints one JSON object: what the
 * lease's reply said (engine, snapshot, warm, exercised), how CMD ended, the head of its output,
 * and times in us. Exit status 0 when CMD ran and exited with 0. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <jansson.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/integration/vmpool/pool_client.h"

#define CONNECT_MS 30000
#define RUN_MS 60000
#define SNAPSHOT_MS_MAX 120000
#define ARGS_BEFORE_CMD 3

static int run(const char *socket, const char *template_name, const char *const *cmd,
               struct pool_lease *l, struct guest_result *r, int64_t *ret_identity_us,
               struct err *err)
{
    int rc = pool_client_connect(socket, CONNECT_MS, err);
    if (rc < 0) {
        return rc;
    }
    cleanup_close int fd = rc;
    if ((rc = pool_client_await(fd, template_name, SNAPSHOT_MS_MAX, err)) < 0) {
        return rc;
    }
    if ((rc = pool_client_lease(fd, template_name, false, l, err)) < 0) {
        return err_prefix(err, "lease");
    }
    int64_t t0 = mono_us();
    if ((rc = guest_identity(l->channel, RUN_MS, err)) < 0) {
        rc = err_prefix(err, "identity");
    } else {
        *ret_identity_us = mono_us() - t0;
        if ((rc = guest_run(l->channel, cmd, RUN_MS, r, err)) < 0) {
            rc = err_prefix(err, "run");
        }
    }
    if (rc < 0) {
        pool_lease_close(l);
        return rc;
    }
    return pool_client_release(fd, l, err);
}

int main(int argc, char **argv)
{
    struct err err;
    struct pool_lease l = { .channel = -1, .schedstat = -1 };
    static struct guest_result r;
    int64_t identity_us = 0;
    if (argc <= ARGS_BEFORE_CMD) {
        (void)fprintf(stderr, "use: brood-lease-once SOCKET TEMPLATE CMD...\n");
        return 2;
    }
    const char *const *cmd = (const char *const *)&argv[ARGS_BEFORE_CMD];
    if (run(argv[1], argv[2], cmd, &l, &r, &identity_us, &err) < 0) {
        (void)fprintf(stderr, "brood-lease-once: %s\n", err.text);
        return 1;
    }
    json_t *o =
        json_pack("{s:s,s:s,s:b,s:b,s:b,s:i,s:i,s:s%,s:I,s:I,s:I,s:I}", "engine", l.reply.engine,
                  "snapshot", l.reply.snapshot, "warm", (int)l.reply.warm, "exercised",
                  (int)l.reply.exercised, "warm_interpreter", (int)r.warm, "exit_code", r.exit_code,
                  "signal", (int)r.signal, "output", r.output, r.output_len, "lease_us",
                  (json_int_t)l.lease_us, "identity_us", (json_int_t)identity_us, "first_byte_us",
                  (json_int_t)r.first_byte_us, "total_us", (json_int_t)r.total_us);
    cleanup_free char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (!text) { /* only output that is not UTF-8 has no JSON */
        (void)fprintf(stderr, "brood-lease-once: the output is not text\n");
        return 1;
    }
    (void)puts(text);
    return r.exit_code == 0 && r.signal == 0 ? 0 : 1;
}
