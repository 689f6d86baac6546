#include "worker/spool_entry.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/snapshots.h"

#define VERSION 1
#define ABSENT UINT64_MAX /* length of a string that is NULL */
#define STREAM_COUNT 4    /* run out, run err, setup out, setup err */

/* ---- writing: the first error stays ---- */

struct put {
    struct buf *out;
    int rc;
    struct err *err;
};

static void put_raw(struct put *p, const void *data, size_t n)
{
    p->rc = p->rc < 0 || n == 0 ? p->rc : buf_add(p->out, data, n, p->err);
}

static void put_int(struct put *p, int64_t v)
{
    put_raw(p, &v, sizeof v);
}

static void put_bytes(struct put *p, const void *data, size_t n)
{
    put_int(p, (int64_t)n);
    put_raw(p, data, n);
}

static void put_str(struct put *p, const char *s)
{
    if (s) {
        put_bytes(p, s, strlen(s));
    } else {
        put_int(p, (int64_t)ABSENT);
    }
}

/* ---- reading: bounded, the first error stays ---- */

struct get {
    const char *at, *end;
    bool bad;
};

static const char *get_raw(struct get *g, uint64_t n)
{
    if (g->bad || n > (uint64_t)(g->end - g->at)) {
        g->bad = true;
        return NULL;
    }
    const char *p = g->at;
    g->at += n;
    return p;
}

static int64_t get_int(struct get *g)
{
    int64_t v = 0;
    const char *p = get_raw(g, sizeof v);
    if (p) {
        memcpy(&v, p, sizeof v);
    }
    return v;
}

/* A number from 0 to max. */
static int get_count(struct get *g, int64_t max)
{
    int64_t v = get_int(g);
    if (v < 0 || v > max) {
        g->bad = true;
        return 0;
    }
    return (int)v;
}

/* malloc'ed with a NUL behind; NULL for an absent string, and when it is bad. */
static char *get_dup(struct get *g, size_t *ret_len)
{
    uint64_t n = (uint64_t)get_int(g);
    if (g->bad || n == ABSENT) {
        return NULL;
    }
    const char *p = get_raw(g, n);
    if (!p) {
        return NULL;
    }
    char *copy = malloc(n + 1);
    if (!copy) {
        abort();
    }
    memcpy(copy, p, n);
    copy[n] = 0;
    if (ret_len) {
        *ret_len = n;
    }
    return copy;
}

static void get_text(struct get *g, char *out, size_t room)
{
    uint64_t n = (uint64_t)get_int(g);
    const char *p = get_raw(g, n);
    out[0] = 0;
    if (!p || n >= room || memchr(p, 0, n)) {
        g->bad = true;
        return;
    }
    memcpy(out, p, n);
    out[n] = 0;
}

/* ---- the parts ---- */

static struct stream_result *stream_of(struct job_result *r, int k)
{
    struct stream_result *const all[STREAM_COUNT] = { &r->run.out, &r->run.err_out, &r->setup.out,
                                                      &r->setup.err_out };
    return all[k];
}

static void put_result(struct put *p, const struct job_result *r)
{
    cleanup_free char *detail = job_result_detail(r);
    put_int(p, r->verdict);
    put_str(p, detail);
    for (int k = 0; k < STREAM_COUNT; k++) {
        const struct stream_result *s = stream_of((struct job_result *)(uintptr_t)r, k);
        put_bytes(p, s->head.data, s->head.len);
        put_bytes(p, s->tail.data, s->tail.len);
    }
}

static void get_result(struct get *g, struct job_result *r)
{
    struct err err;
    size_t len = 0;
    int verdict = get_count(g, VERDICT_COUNT - 1);
    cleanup_free char *detail = get_dup(g, &len);
    if (!detail || job_result_parse_detail(detail, len, r, &err) < 0) {
        g->bad = true;
        job_result_init(r);
        return;
    }
    r->verdict = (enum verdict)verdict;
    for (int k = 0; k < STREAM_COUNT && !g->bad; k++) {
        struct stream_result *s = stream_of(r, k);
        free(s->head.data);
        free(s->tail.data);
        s->head = s->tail = (struct bytes){ 0 };
        s->head.data = get_dup(g, &s->head.len);
        s->tail.data = get_dup(g, &s->tail.len);
    }
}

static void put_manifest(struct put *p, const struct manifest *m)
{
    cleanup_free char *json = m->n > 0 || m->unmatched_len > 0 ? manifest_json(m) : NULL;
    put_str(p, json);
}

static void get_manifest(struct get *g, struct manifest *m)
{
    struct err err;
    size_t len = 0;
    cleanup_free char *json = get_dup(g, &len);
    *m = (struct manifest){ 0 };
    if (json && manifest_parse(json, len, m, &err) < 0) {
        g->bad = true;
    }
}

static void put_branch(struct put *p, const struct branch_result *b)
{
    put_int(p, b->node);
    put_int(p, b->parent);
    put_int(p, b->leaf);
    put_str(p, b->path);
    put_str(p, b->name_path);
    put_int(p, b->weight);
    put_int(p, b->score_micro);
    put_int(p, b->tries);
    put_result(p, &b->result);
    put_manifest(p, &b->artifacts);
    put_int(p, b->billed);
}

static void get_branch(struct get *g, struct branch_result *b)
{
    b->node = get_count(g, INT32_MAX);
    b->parent = get_count(g, INT32_MAX);
    b->leaf = get_count(g, 1);
    b->path = get_dup(g, NULL);
    b->name_path = get_dup(g, NULL);
    b->weight = get_int(g);
    b->score_micro = get_count(g, 1000000);
    b->tries = get_count(g, INT32_MAX);
    get_result(g, &b->result);
    get_manifest(g, &b->artifacts);
    b->billed = get_count(g, 1);
    g->bad = g->bad || !b->path || !b->name_path;
}

/* ---- the entry ---- */

int spool_entry_write(const struct commit_entry *e, const char *worker, struct buf *out,
                      struct err *err)
{
    struct put p = { .out = out, .err = err };
    buf_reset(out);
    put_int(&p, VERSION);
    put_str(&p, worker);
    put_str(&p, e->claim.stream_id);
    put_str(&p, e->claim.job_id);
    put_str(&p, e->claim.tenant);
    put_int(&p, e->claim.attempt);
    put_int(&p, e->claim.submitted_ms);
    put_str(&p, e->template_name);
    put_int(&p, e->failed);
    put_str(&p, e->reason);
    put_int(&p, e->cause);
    put_result(&p, &e->result);
    put_int(&p, e->billed);
    put_manifest(&p, &e->artifacts);
    put_int(&p, e->n_branches);
    for (int i = 0; i < e->n_branches; i++) {
        put_branch(&p, &e->branches[i]);
    }
    put_int(&p, e->n_snapshots);
    for (int i = 0; i < e->n_snapshots; i++) { /* no pointers in it; its size is its version */
        put_bytes(&p, &e->snapshots[i], sizeof e->snapshots[i]);
    }
    return p.rc;
}

static void get_entry(struct get *g, struct commit_entry *e, char *worker, size_t worker_room)
{
    g->bad = get_int(g) != VERSION;
    get_text(g, worker, worker_room);
    get_text(g, e->claim.stream_id, sizeof e->claim.stream_id);
    get_text(g, e->claim.job_id, sizeof e->claim.job_id);
    get_text(g, e->claim.tenant, sizeof e->claim.tenant);
    e->claim.attempt = get_count(g, INT32_MAX);
    e->claim.submitted_ms = get_int(g);
    get_text(g, e->template_name, sizeof e->template_name);
    e->failed = get_count(g, 1);
    get_text(g, e->reason, sizeof e->reason);
    e->cause = (enum retry_cause)get_count(g, RETRY_GIVEN_BACK);
    get_result(g, &e->result);
    e->billed = get_count(g, 1);
    get_manifest(g, &e->artifacts);
    int n = get_count(g, JOB_TREE_NODES_MAX);
    if (n > 0 && !g->bad) {
        e->branches = calloc((size_t)n, sizeof *e->branches);
        if (!e->branches) {
            abort();
        }
        for (int i = 0; i < n && !g->bad; i++) {
            job_result_init(&e->branches[i].result);
            e->n_branches = i + 1;
            get_branch(g, &e->branches[i]);
        }
    }
    int kept = get_count(g, JOB_TREE_NODES_MAX);
    for (int i = 0; i < kept && !g->bad; i++) {
        struct snapshot_row row;
        const char *p = get_int(g) == (int64_t)sizeof row ? get_raw(g, sizeof row) : NULL;
        if (!p) {
            g->bad = true;
            break;
        }
        memcpy(&row, p, sizeof row);
        commit_entry_keep(e, &row);
    }
    g->bad = g->bad || g->at != g->end || !id_valid(e->claim.job_id) || e->claim.attempt < 1;
}

int spool_entry_read(const void *data, size_t len, struct commit_entry **ret_entry, char *worker,
                     size_t worker_room, struct err *err)
{
    struct get g = { .at = data, .end = (const char *)data + len };
    struct commit_entry *e = commit_entry_new();
    get_entry(&g, e, worker, worker_room);
    if (g.bad) {
        commit_entry_free(e);
        return err_set(err, ERR_CORRUPT, "spool: not a record of version %d", VERSION);
    }
    e->ref = (struct inflight_ref){ .index = -1 };
    *ret_entry = e;
    return 0;
}

int branch_bytes_write(struct job_result *r, const struct manifest *artifacts, struct buf *out,
                       struct err *err)
{
    struct put p = { .out = out, .err = err };
    put_int(&p, VERSION);
    put_result(&p, r);
    put_manifest(&p, artifacts);
    return p.rc;
}

int branch_bytes_read(const void *data, size_t len, struct job_result *r,
                      struct manifest *ret_artifacts, struct err *err)
{
    struct get g = { .at = data, .end = (const char *)data + len };
    g.bad = get_int(&g) != VERSION;
    get_result(&g, r);
    get_manifest(&g, ret_artifacts);
    if (g.bad || g.at != g.end) {
        job_result_done(r);
        job_result_init(r);
        manifest_done(ret_artifacts);
        return err_set(err, ERR_CORRUPT, "a branch's result: not of version %d", VERSION);
    }
    return 0;
}
