/* bench_control: what the control plane carries. Jobs from the submit call to the committed verdict
 * with usage rows, through the real scheduler, the real Redis and Postgres (durable: fsync on), and
 * one worker whose outcomes are scripted (brood-worker-scripted). bench/control drives it.
 *
 *   bench_control flow WINDOW SECONDS RATE    keep up to WINDOW jobs under way for SECONDS; RATE
 *                                             jobs/s at most, 0: as fast as it goes
 *   bench_control depth WAITING N             claim latency of N jobs, one after another, with
 *                                             WAITING jobs of a bulk kind in the queue
 *
 * Addresses and programs come from the environment (BROOD_HOME, as every program of ours). One JSON
 * object on stdout. */
#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sodium.h>
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/store/jobs.h"
#include "common/store/queue.h"

#define CHUNK_MAX 256
#define SAMPLES_MAX (1 << 22)
#define TABLE_SIZE (1 << 17) /* jobs under way, by id */
#define EVENTS_PAGE 1000
#define STALL_MS 30000

struct entry {
    char job_id[ID_TEXT_BYTES];
    int64_t submitted_us;
};

struct bench {
    struct config config;
    struct pg pg;
    struct queue wake;
    redisContext *events;
    char cursor[40];
    struct job_spec *spec;
    struct entry *table;
    int64_t *samples;
    int64_t n_samples, submitted, finished;
};

static unsigned slot_of(const char *id)
{
    unsigned h = 2166136261u;
    for (const char *p = id; *p; p++) {
        h = (h ^ (unsigned char)*p) * 16777619u;
    }
    return h & (TABLE_SIZE - 1);
}

static struct entry *find(struct bench *b, const char *id)
{
    unsigned i = slot_of(id);
    for (; b->table[i].job_id[0]; i = (i + 1) & (TABLE_SIZE - 1)) {
        if (strcmp(b->table[i].job_id, id) == 0) {
            break;
        }
    }
    return &b->table[i];
}

static void add(struct bench *b, const char *id, int64_t at_us)
{
    struct entry *e = find(b, id);
    (void)snprintf(e->job_id, sizeof e->job_id, "%s", id);
    e->submitted_us = at_us;
}

/* Linear probing: what follows is put in again. */
static void drop(struct bench *b, struct entry *e)
{
    unsigned i = (unsigned)(e - b->table);
    e->job_id[0] = 0;
    for (i = (i + 1) & (TABLE_SIZE - 1); b->table[i].job_id[0]; i = (i + 1) & (TABLE_SIZE - 1)) {
        struct entry moved = b->table[i];
        b->table[i].job_id[0] = 0;
        add(b, moved.job_id, moved.submitted_us);
    }
}

static int open_all(struct bench *b, const char *job, struct err *err)
{
    int rc = config_load(&b->config, NULL, NULL, err);
    rc = rc < 0 ? rc : pg_open(&b->pg, b->config.postgres_url, err);
    rc = rc < 0 ? rc : queue_open(&b->wake, b->config.redis_url, err);
    rc = rc < 0 ? rc : job_parse(job, strlen(job), &b->spec, err);
    if (rc < 0) {
        return rc;
    }
    b->events = redisConnectUnix(b->config.redis_url + strlen("unix://"));
    b->table = calloc(TABLE_SIZE, sizeof *b->table);
    b->samples = calloc(SAMPLES_MAX, sizeof *b->samples);
    if (!b->events || b->events->err || !b->table || !b->samples) {
        return err_set(err, ERR_UNAVAILABLE, "no connection for events");
    }
    redisReply *r = redisCommand(b->events, "XREVRANGE brood:events + - COUNT 1");
    bool any = r && r->type == REDIS_REPLY_ARRAY && r->elements == 1;
    (void)snprintf(b->cursor, sizeof b->cursor, "%s", any ? r->element[0]->element[0]->str : "0-0");
    freeReplyObject(r);
    return 0;
}

static void take_event(struct bench *b, const redisReply *fields, int64_t now_us)
{
    for (size_t i = 0; i + 1 < fields->elements; i += 2) {
        if (strcmp(fields->element[i]->str, "job") == 0) {
            struct entry *e = find(b, fields->element[i + 1]->str);
            if (!e->job_id[0]) {
                return;
            }
            if (b->n_samples < SAMPLES_MAX) {
                b->samples[b->n_samples++] = now_us - e->submitted_us;
            }
            b->finished++;
            drop(b, e);
            return;
        }
    }
}

/* Events that have come, waiting up to block_ms (0: not at all). */
static int take_events(struct bench *b, int block_ms, struct err *err)
{
    redisReply *r = block_ms > 0
                        ? redisCommand(b->events, "XREAD COUNT %d BLOCK %d STREAMS brood:events %s",
                                       EVENTS_PAGE, block_ms, b->cursor)
                        : redisCommand(b->events, "XREAD COUNT %d STREAMS brood:events %s",
                                       EVENTS_PAGE, b->cursor);
    if (!r || r->type == REDIS_REPLY_ERROR) {
        return err_set(err, ERR_UNAVAILABLE, "Redis: %s", r ? r->str : b->events->errstr);
    }
    int64_t now_us = mono_us();
    int n = 0;
    if (r->type == REDIS_REPLY_ARRAY && r->elements > 0) {
        const redisReply *entries = r->element[0]->element[1];
        n = (int)entries->elements;
        for (int i = 0; i < n; i++) {
            take_event(b, entries->element[i]->element[1], now_us);
        }
        (void)snprintf(b->cursor, sizeof b->cursor, "%s", entries->element[n - 1]->element[0]->str);
    }
    freeReplyObject(r);
    return n;
}

static int submit(struct bench *b, int n, struct err *err)
{
    static struct submit_item items[CHUNK_MAX];
    assert(n > 0 && n <= CHUNK_MAX);
    for (int i = 0; i < n; i++) {
        items[i] = (struct submit_item){ .spec = b->spec };
    }
    int64_t at_us = mono_us();
    int rc = store_submit(&b->pg, "bench", NULL, NULL, 0, items, n, true, err);
    rc = rc < 0 ? rc : queue_wake_for(&b->wake, "bench", b->spec->priority, n, err);
    for (int i = 0; i < n && rc == 0; i++) {
        add(b, items[i].ret_id.text, at_us);
    }
    b->submitted += rc == 0 ? n : 0;
    return rc;
}

static int by_value(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return a < b ? -1 : a > b;
}

static double quantile_ms(const struct bench *b, double q)
{
    return b->n_samples ? (double)b->samples[(int64_t)((double)(b->n_samples - 1) * q)] / 1000 : 0;
}

static void print(struct bench *b, const char *what, double seconds)
{
    qsort(b->samples, (size_t)b->n_samples, sizeof *b->samples, by_value);
    json_t *o = json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f}", "what", what, "jobs",
                          (json_int_t)b->finished, "seconds", seconds, "jobs_per_s",
                          (double)b->finished / seconds, "p50_ms", quantile_ms(b, 0.5), "p99_ms",
                          quantile_ms(b, 0.99), "max_ms", quantile_ms(b, 1.0));
    (void)json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    (void)putchar('\n');
    json_decref(o);
}

static int flow(struct bench *b, int window, int seconds, int rate, struct err *err)
{
    int64_t start_us = mono_us(), end_us = start_us + (int64_t)seconds * 1000000;
    int64_t heard_us = start_us;
    int rc = 0;
    /* Not larger than a third of the window: submitting and committing go on side by side. */
    int chunk_max = window / 3 < 1 ? 1 : window / 3 > CHUNK_MAX ? CHUNK_MAX : window / 3;
    for (int64_t now_us; rc >= 0 && (now_us = mono_us()) < end_us;) {
        int64_t room = window - (b->submitted - b->finished), due = room;
        if (rate > 0) {
            due = (now_us - start_us) * rate / 1000000 - b->submitted;
        }
        int64_t n = due < room ? due : room;
        n = n > chunk_max ? chunk_max : n;
        bool worth = rate > 0 ? n > 0 : n >= chunk_max || room == window;
        if (worth && (rc = submit(b, (int)n, err)) < 0) {
            return rc;
        }
        rc = take_events(b, worth ? 0 : 1, err);
        heard_us = rc > 0 ? mono_us() : heard_us;
        if (mono_us() - heard_us > STALL_MS * 1000ll) {
            return err_set(err, ERR_TIMEOUT, "nothing has ended for %d ms", STALL_MS);
        }
    }
    print(b, rate > 0 ? "at a rate" : "as fast as it goes",
          (double)(mono_us() - start_us) / 1000000);
    while (rc >= 0 && b->finished < b->submitted && mono_us() - heard_us < STALL_MS * 1000ll) {
        rc = take_events(b, 100, err);
        heard_us = rc > 0 ? mono_us() : heard_us;
    }
    if (rc >= 0 && b->finished < b->submitted) {
        return err_set(err, ERR_TIMEOUT, "%lld jobs did not end",
                       (long long)(b->submitted - b->finished));
    }
    return rc < 0 ? rc : 0;
}

/* waiting rows are put in by SQL, with a not_before that keeps them waiting behind everything else
 * that is due; then n jobs one after another. */
static int depth(struct bench *b, int n, struct err *err)
{
    int64_t start_us = mono_us();
    for (int i = 0; i < n; i++) {
        int rc = submit(b, 1, err);
        while (rc >= 0 && b->finished < b->submitted) {
            rc = take_events(b, 1000, err);
        }
        if (rc < 0) {
            return rc;
        }
    }
    print(b, "one after another", (double)(mono_us() - start_us) / 1000000);
    return 0;
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct err err = { 0 };
    const char *job = getenv("BENCH_JOB");
    job = job ? job
              : "{\"template\":\"python\",\"command\":[\"scripted\",\"accepted\",\"0\",\"ok\\n\"]}";
    if (argc < 3 || sodium_init() < 0) {
        (void)fprintf(stderr, "usage: bench_control flow WINDOW SECONDS RATE | depth N\n");
        return 2;
    }
    int rc = open_all(&b, job, &err);
    if (rc == 0 && strcmp(argv[1], "flow") == 0 && argc == 5) {
        rc = flow(&b, (int)strtol(argv[2], NULL, 10), (int)strtol(argv[3], NULL, 10),
                  (int)strtol(argv[4], NULL, 10), &err);
    } else if (rc == 0) {
        rc = depth(&b, (int)strtol(argv[2], NULL, 10), &err);
    }
    if (rc < 0) {
        (void)fprintf(stderr, "bench_control: %s\n", err.text);
    }
    return rc < 0;
}
