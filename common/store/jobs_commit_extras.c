/* Branches, artifacts and kept snapshots of an attempt that commits.
 *
 * The guarded statement of jobs_commit.c has written the attempt's row when it won. Everything here
 * selects from that row, so an attempt that lost writes nothing, and a call that is repeated
 * because its answer was lost finds its rows and leaves them (ON CONFLICT DO NOTHING). A statement
 * a branch: in a pipeline 4096 of them cost little more than their bytes. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "common/base/cleanup.h"
#include "common/model/json_read.h"
#include "common/store/commit_internal.h"

#define ARTIFACTS_CHUNK 256 /* rows a statement */

/* $1 job, $2 attempt, $3 worker */
#define WON                                                                                        \
    "WITH g AS (SELECT 1 FROM attempts WHERE job_id = $1::uuid AND attempt = $2::int AND worker "  \
    "= $3"                                                                                         \
    "  AND outcome = 'committed')"
/* $4 node .. $22 setup_stderr */
#define BRANCH                                                                                     \
    " INSERT INTO branch_results (job_id, attempt, node, parent, path, name_path, leaf, verdict,"  \
    "  score_micro, weight, tries, cpu_us, wall_us, memory_peak_bytes, detail, stdout_head,"       \
    "  stdout_tail, stderr_head, stderr_tail, setup_stdout, setup_stderr)"                         \
    " SELECT $1::uuid, $2::int, $4::int, $5::int, $6::text, $7::text, $8::int = 1, $9::text,"      \
    "  $10::int, $11::int8, $12::int, $13::int8, $14::int8, $15::int8, $16::text, $17::bytea,"     \
    "  $18::bytea, $19::bytea, $20::bytea, $21::bytea, $22::bytea FROM g ON CONFLICT DO NOTHING"
static const struct statement add_branch = { "add_branch", WON BRANCH };

/* $4 node, $5 rows: [[path, sha256, size, mode, type, target, stored, reason, change], ..], bytes
 * in base64
 */
static const struct statement add_artifacts = {
    "add_artifacts",
    WON " INSERT INTO artifacts (job_id, node, ord, path, sha256, size_bytes, mode, type, target, "
        "stored, reason, change)"
        " SELECT $1::uuid, $4::int, $6::int + i::int - 1, decode(a ->> 0, 'base64'), a ->> 1,"
        "  (a ->> 2)::int8, (a ->> 3)::int, a ->> 4, decode(a ->> 5, 'base64'), (a ->> 6)::bool,"
        "  a ->> 7, (a ->> 8)::int FROM g CROSS JOIN jsonb_array_elements($5::jsonb) WITH "
        "ORDINALITY e (a, i) ON CONFLICT DO NOTHING"
};

/* $1 id, $2 tenant, $3 name, $4 job, $5 attempt, $6 worker. Not when the id is there already: then
 * this is a repetition, and the name may belong to a later one. */
static const struct statement take_name = {
    "take_name",
    "UPDATE snapshots SET name = NULL, pinned = false, ttl_s = 1, expires_at = clock_timestamp()"
    " WHERE tenant = $2 AND name = $3 AND NOT EXISTS (SELECT FROM snapshots WHERE id = $1::uuid)"
    " AND EXISTS (SELECT FROM attempts WHERE job_id = $4::uuid AND attempt = $5::int AND worker = "
    "$6"
    "  AND outcome = 'committed')"
};
/* $20 attempt, $21 worker; the job is the snapshot's */
static const struct statement keep_snapshot = {
    "keep_snapshot", "INSERT INTO snapshots (" SNAPSHOT_COLUMNS ") SELECT " SNAPSHOT_PARAMS
                     " FROM attempts WHERE job_id = $17::uuid AND attempt = $20::int AND worker = "
                     "$21 AND outcome = 'committed' ON CONFLICT (id) DO NOTHING"
};

int commit_extras_prepare(struct pg *pg, const struct commit_item *items, int n, struct err *err)
{
    static const struct statement *const all[] = { &add_branch, &add_artifacts, &stmt_name_lock,
                                                   &take_name, &keep_snapshot };
    bool wanted = false;
    for (int i = 0; i < n && !wanted; i++) {
        wanted = items[i].n_branches > 0 || (items[i].artifacts && items[i].artifacts->n > 0) ||
                 items[i].n_snapshots > 0;
    }
    int rc = 0;
    for (size_t i = 0; wanted && rc == 0 && i < sizeof all / sizeof all[0]; i++) {
        rc = pg_prepare(pg, all[i], err);
    }
    return rc;
}

static void add_attempt(struct pg_params *p, const struct commit_item *item)
{
    pg_add_text(p, item->job_id);
    pg_add_int(p, item->attempt);
    pg_add_text(p, item->worker);
}

static void add_bytes(struct pg_params *p, const struct bytes *b)
{
    pg_add_bytes(p, b->data, b->len);
}

/* Returns how many statements. */
static int send_branch(struct pg *pg, const struct commit_item *item, const struct branch_result *b,
                       struct err *err)
{
    const struct job_result *r = &b->result;
    assert(b->node > 0 && b->parent >= 0 && r->verdict != VERDICT_NONE);
    cleanup_free char *detail = job_result_detail(r);
    struct pg_params p = { .n = 0 };
    add_attempt(&p, item);
    pg_add_int(&p, b->node);
    pg_add_int(&p, b->parent);
    pg_add_text(&p, b->path);
    pg_add_text(&p, b->name_path);
    pg_add_int(&p, b->leaf);
    pg_add_text(&p, verdict_word(r->verdict));
    pg_add_int(&p, b->score_micro);
    pg_add_int(&p, b->weight);
    pg_add_int(&p, b->tries);
    pg_add_int(&p, r->setup.cpu_us + r->run.cpu_us);
    pg_add_int(&p, r->setup.wall_us + r->run.wall_us);
    pg_add_int(&p, r->run.memory_peak_bytes > r->setup.memory_peak_bytes
                       ? r->run.memory_peak_bytes
                       : r->setup.memory_peak_bytes);
    pg_add_text(&p, detail);
    add_bytes(&p, &r->run.out.head);
    add_bytes(&p, &r->run.out.tail);
    add_bytes(&p, &r->run.err_out.head);
    add_bytes(&p, &r->run.err_out.tail);
    add_bytes(&p, &r->setup.out.head);
    add_bytes(&p, &r->setup.err_out.head);
    int rc = pg_pipeline_send(pg, &add_branch, &p, false, err);
    if (rc < 0 || !b->billed) {
        return rc < 0 ? rc : 1;
    }
    struct usage_record u[USAGE_RECORDS_MAX];
    int n = commit_usage_price(pg, item, b->path, r, u, err);
    rc = n < 0 ? n : commit_usage_send(pg, item, b->path, u, n, err);
    return rc < 0 ? rc : rc + 1;
}

static json_t *base64(const char *data, size_t len)
{
    json_t *o = json_object();
    json_put_base64(o, "x", data, len);
    json_t *v = json_incref(json_object_get(o, "x"));
    json_decref(o);
    return v;
}

static json_t *artifact_row(const struct artifact *a)
{
    assert(a->stored || a->reason != ARTIFACT_OK);
    json_t *row = json_array();
    (void)json_array_append_new(row, base64(a->path, a->path_len));
    (void)json_array_append_new(row, a->sha256[0] ? json_string(a->sha256) : json_null());
    (void)json_array_append_new(row, json_integer((json_int_t)a->size));
    (void)json_array_append_new(row, json_integer(a->mode));
    (void)json_array_append_new(row, json_string(artifact_type_word(a->type)));
    (void)json_array_append_new(row, a->target ? base64(a->target, a->target_len) : json_null());
    (void)json_array_append_new(row, json_boolean(a->stored));
    (void)json_array_append_new(row, json_string(artifact_reason_word(a->reason)));
    (void)json_array_append_new(row, json_integer((json_int_t)a->change));
    return row;
}

static int send_artifacts(struct pg *pg, const struct commit_item *item, int node,
                          const struct manifest *list, struct err *err)
{
    int sent = 0;
    for (size_t from = 0; list && from < list->n; from += ARTIFACTS_CHUNK) {
        cleanup_json json_t *rows = json_array();
        for (size_t i = from; i < list->n && i < from + ARTIFACTS_CHUNK; i++) {
            (void)json_array_append_new(rows, artifact_row(&list->files[i]));
        }
        cleanup_free char *text = json_dumps(rows, JSON_COMPACT | JSON_ENSURE_ASCII);
        if (!text) {
            abort();
        }
        struct pg_params p = { .n = 0 };
        add_attempt(&p, item);
        pg_add_int(&p, node);
        pg_add_text(&p, text);
        pg_add_int(&p, (int64_t)from);
        int rc = pg_pipeline_send(pg, &add_artifacts, &p, false, err);
        if (rc < 0) {
            return rc;
        }
        sent++;
    }
    return sent;
}

static int send_snapshot(struct pg *pg, const struct commit_item *item,
                         const struct snapshot_row *s, struct err *err)
{
    assert(strcmp(s->tenant, item->tenant) == 0 && strcmp(s->job_id, item->job_id) == 0);
    struct pg_params lock = { .n = 0 }, name = { .n = 0 }, row = { .n = 0 };
    char layers[SNAPSHOT_LAYERS_TEXT];
    pg_add_text(&lock, s->tenant);
    pg_add_text(&lock, s->name);
    pg_add_text(&name, s->id.text);
    pg_add_text(&name, s->tenant);
    pg_add_text(&name, s->name);
    add_attempt(&name, item);
    snapshot_params(&row, s, layers);
    pg_add_int(&row, item->attempt);
    pg_add_text(&row, item->worker);
    int rc = pg_pipeline_send(pg, &stmt_name_lock, &lock, false, err);
    rc = rc < 0 ? rc : pg_pipeline_send(pg, &take_name, &name, false, err);
    return rc < 0 ? rc : pg_pipeline_send(pg, &keep_snapshot, &row, false, err);
}

int commit_extras_send(struct pg *pg, const struct commit_item *item, struct err *err)
{
    int sent = send_artifacts(pg, item, 0, item->artifacts, err);
    for (int i = 0; sent >= 0 && i < item->n_branches; i++) {
        const struct branch_result *b = &item->branches[i];
        int rc = send_branch(pg, item, b, err);
        int more = rc < 0 ? rc : send_artifacts(pg, item, b->node, &b->artifacts, err);
        sent = more < 0 ? more : sent + rc + more;
    }
    for (int i = 0; sent >= 0 && i < item->n_snapshots; i++) {
        int rc = send_snapshot(pg, item, &item->snapshots[i], err);
        sent = rc < 0 ? rc : sent + 3;
    }
    return sent;
}
