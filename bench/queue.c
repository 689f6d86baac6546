/* bench_queue latency N | throughput N [shared] [--home via $BROOD_HOME]: print(1) through the real
 * queue, Postgres and all.
 *
 * latency: one job after another on an idle host (the pool may fill up between them): from the
 * submit call to the moment the job's finished event is here, and, for comparison, from the
 * database's own timestamps; with the parts of it that the result records. throughput: N jobs at
 * once, from the submit call to the last verdict; shared: with isolation shared. JSON on stdout. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sodium.h>
#include "cli/poolclient.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/store/jobs.h"
#include "common/store/queue.h"

#define N_MAX SUBMIT_MAX
#define TEMPLATE "python"
#define JOB_JSON                                                                                   \
    "{\"template\":\"" TEMPLATE                                                                    \
    "\",\"command\":[\"python3\",\"-c\",\"print(1)\"],\"expect\":{\"stdout\":\"1\\n\"}}"
#define SHARED_JSON                                                                                \
    "{\"template\":\"" TEMPLATE                                                                    \
    "\",\"isolation\":\"shared\",\"command\":[\"python3\",\"-c\",\"print(1)\"],"                   \
    "\"expect\":{\"stdout\":\"1\\n\"}}"
#define BLOCK_MS 5000
#define JOB_MS_MAX 60000
#define BATCH_MS_MAX 3600000
#define FILL_MS_MAX 30000
#define QUIET_MS 60
#define POLL_MS 20

struct bench {
    struct config config;
    struct pg pg;
    struct queue wake, events;
    char cursor[40];
    struct job_spec *spec;
};

static int open_all(struct bench *b, const char *job, struct err *err)
{
    struct event first;
    int rc = config_load(&b->config, NULL, NULL, err);
    rc = rc < 0 ? rc : pg_open(&b->pg, b->config.postgres_url, err);
    rc = rc < 0 ? rc : queue_open(&b->wake, b->config.redis_url, err);
    rc = rc < 0 ? rc : queue_open(&b->events, b->config.redis_url, err);
    rc = rc < 0 ? rc : job_parse(job, strlen(job), &b->spec, err);
    (void)snprintf(b->cursor, sizeof b->cursor, "$");
    /* Pins the cursor: what is published from here on is seen. */
    return rc < 0 ? rc : queue_event_next(&b->events, b->cursor, 1, &first, err);
}

/* The pool is full and falls quiet. */
static int wait_idle(const struct bench *b, struct err *err)
{
    cleanup_free pool_StatusReply *status = calloc(1, sizeof *status);
    if (!status) {
        abort();
    }
    for (int64_t end_ms = mono_ms() + FILL_MS_MAX; mono_ms() < end_ms; sleep_ms(POLL_MS)) {
        int rc = poolclient_status(b->config.vmpool_socket, BLOCK_MS, status, err);
        if (rc < 0) {
            return rc;
        }
        unsigned busy = 0;
        bool full = false;
        for (pb_size_t i = 0; i < status->snapshots_count; i++) {
            const pool_SnapshotStatus *s = &status->snapshots[i];
            busy += s->starting + s->leased;
            full =
                full || (strcmp(s->template, TEMPLATE) == 0 && s->warm >= s->target && s->warm > 0);
        }
        if (full && busy == 0) {
            sleep_ms(QUIET_MS);
            return 0;
        }
    }
    return err_set(err, ERR_TIMEOUT, "the pool does not fill up");
}

static int wait_finished(struct bench *b, const char *job_id, struct err *err)
{
    struct event e;
    for (int64_t end_ms = mono_ms() + JOB_MS_MAX; mono_ms() < end_ms;) {
        int rc = queue_event_next(&b->events, b->cursor, BLOCK_MS, &e, err);
        if (rc < 0) {
            return rc;
        }
        if (rc > 0 && strcmp(e.type, "job.finished") == 0 && strcmp(e.job_id, job_id) == 0) {
            return strcmp(e.verdict, "accepted") == 0
                       ? 0
                       : err_set(err, ERR_INTERNAL, "job %s: verdict %s", job_id, e.verdict);
        }
    }
    return err_set(err, ERR_TIMEOUT, "job %s: no verdict", job_id);
}

struct latency {
    json_t *client_us, *database_ms, *lease_us, *first_byte_us, *run_us, *submit_us;
};

static int one_latency(struct bench *b, struct latency *l, bool record, struct err *err)
{
    struct submit_item item = { .spec = b->spec };
    int rc = wait_idle(b, err);
    if (rc < 0) {
        return rc;
    }
    int64_t start_us = mono_us();
    rc = store_submit(&b->pg, b->config.tenant_default, NULL, NULL, 0, &item, 1, true, err);
    rc =
        rc < 0 ? rc : queue_wake_for(&b->wake, b->config.tenant_default, b->spec->priority, 1, err);
    int64_t submitted_us = mono_us();
    rc = rc < 0 ? rc : wait_finished(b, item.ret_id.text, err);
    int64_t end_us = mono_us();
    struct result_row row = { 0 };
    if (rc < 0 || (rc = store_job(&b->pg, item.ret_id.text, &row, err)) < 0) {
        return rc;
    }
    if (record) {
        (void)json_array_append_new(l->client_us, json_integer(end_us - start_us));
        (void)json_array_append_new(l->submit_us, json_integer(submitted_us - start_us));
        (void)json_array_append_new(l->database_ms,
                                    json_integer(row.finished_ms - row.submitted_ms));
        (void)json_array_append_new(l->lease_us, json_integer(row.result.lease_us));
        (void)json_array_append_new(l->first_byte_us, json_integer(row.result.first_byte_us));
        (void)json_array_append_new(l->run_us, json_integer(row.result.run.wall_us));
    }
    result_row_done(&row);
    return 0;
}

static int latency(struct bench *b, long n, json_t **ret_out, struct err *err)
{
    struct latency l = { json_array(), json_array(), json_array(),
                         json_array(), json_array(), json_array() };
    int rc = 0;
    for (long i = -3; rc >= 0 && i < n; i++) {
        rc = one_latency(b, &l, i >= 0, err);
    }
    *ret_out = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "client_us", l.client_us, "database_ms",
                         l.database_ms, "lease_us", l.lease_us, "first_byte_us", l.first_byte_us,
                         "run_us", l.run_us, "submit_us", l.submit_us);
    return rc;
}

/* All n at once; every verdict must be accepted. */
static int throughput(struct bench *b, long n, json_t **ret_out, struct err *err)
{
    cleanup_free struct submit_item *items = calloc((size_t)n, sizeof *items);
    struct id batch = id_new();
    if (!items) {
        abort();
    }
    for (long i = 0; i < n; i++) {
        items[i].spec = b->spec;
    }
    int rc = wait_idle(b, err);
    int64_t start_us = mono_us();
    rc = rc < 0 ? rc
                : store_submit(&b->pg, b->config.tenant_default, batch.text, "bench", 0, items,
                               (int)n, true, err);
    rc = rc < 0 ? rc : queue_wake(&b->wake, err);
    struct event e;
    long done = 0;
    for (int64_t end_ms = mono_ms() + BATCH_MS_MAX; rc >= 0 && done < n;) {
        rc = queue_event_next(&b->events, b->cursor, BLOCK_MS, &e, err);
        done += rc > 0 && strcmp(e.type, "job.finished") == 0;
        if (rc >= 0 && mono_ms() > end_ms) {
            rc = err_set(err, ERR_TIMEOUT, "only %ld of %ld jobs ended", done, n);
        }
    }
    int64_t elapsed_us = mono_us() - start_us;
    struct batch_counts counts;
    if (rc < 0 || (rc = store_batch_counts(&b->pg, batch.text, &counts, err)) < 0) {
        return rc;
    }
    if (counts.by_verdict[VERDICT_ACCEPTED] != n) {
        return err_set(err, ERR_INTERNAL, "%d of %ld jobs were accepted",
                       counts.by_verdict[VERDICT_ACCEPTED], n);
    }
    *ret_out = json_pack("{s:I, s:I}", "jobs", (json_int_t)n, "elapsed_us", (json_int_t)elapsed_us);
    return 0;
}

int main(int argc, char **argv)
{
    struct err err = { 0 };
    static struct bench b;
    json_t *out = NULL;
    bool shared = argc == 4 && strcmp(argv[3], "shared") == 0;
    long n = argc == 3 || shared ? strtol(argv[2], NULL, 10) : 0;
    bool is_latency = n > 0 && strcmp(argv[1], "latency") == 0;
    if (n < 1 || n > N_MAX || (!is_latency && strcmp(argv[1], "throughput") != 0)) {
        (void)fprintf(
            stderr,
            "usage: bench_queue latency|throughput N [shared]   (the home is $BROOD_HOME)\n");
        return 2;
    }
    int rc = sodium_init() < 0 ? err_set(&err, ERR_INTERNAL, "libsodium")
                               : open_all(&b, shared ? SHARED_JSON : JOB_JSON, &err);
    if (rc >= 0) {
        rc = is_latency ? latency(&b, n, &out, &err) : throughput(&b, n, &out, &err);
    }
    if (rc < 0) {
        (void)fprintf(stderr, "bench_queue: %s\n", err.text);
        return 1;
    }
    (void)json_dumpf(out, stdout, JSON_COMPACT);
    (void)putchar('\n');
    json_decref(out);
    job_spec_free(b.spec);
    queue_close(&b.events);
    queue_close(&b.wake);
    pg_close(&b.pg);
    return 0;
}
