/* Submission: one INSERT of many rows, each column an array, and for rows that may be there already
 * ON CONFLICT DO NOTHING.
 *
 * A job that was not inserted met a row with its id (the same call repeated) or with its tenant and
 * idempotency key (the client repeated itself); its content hash decides between "the same job" and
 * "conflict". DO NOTHING waits for a concurrent transaction that holds the same key, so the lookup
 * afterwards, a statement with a snapshot of its own, sees what was committed. Rows with an id made
 * just now and without a key cannot be there: they go without ON CONFLICT, which costs a second
 * look into each unique index and a second WAL record a row. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "common/base/cleanup.h"
#include "common/store/admission.h"
#include "common/store/jobs.h"
#include "common/store/pg_array.h"

#define HASH_BYTES 32
#define STEP_BYTES_MAX (32u << 20) /* specs in one statement */

static const struct statement add_batch = {
    "add_batch",
    "INSERT INTO batches (id, tenant, name) VALUES ($1::uuid, $2, $3) ON CONFLICT (id) DO NOTHING"
};
/* Locks the row: two submitters to one batch take turns from here on, which keeps its count right.
 */
static const struct statement batch_tenant = {
    "batch_tenant", "SELECT tenant FROM batches WHERE id = $1::uuid FOR UPDATE"
};
static const struct statement grow_batch = {
    "grow_batch", "UPDATE batches SET jobs = jobs + $2::int WHERE id = $1::uuid"
};
/* $1 tenant, $2 batch or NULL, from $3 on one value a job. now() is the transaction's start: one
 * moment for all; but never later than submitted_at, or the job would seem to have asked to wait
 * (clock_repair.c) when the clock goes back within the transaction. */
#define INSERT_JOBS(conflict)                                                                      \
    "WITH added AS (INSERT INTO jobs (id, tenant, batch_id, seq, template, name, spec, "           \
    "spec_hash, "                                                                                  \
    "labels, idempotency_key, priority, not_before, deadline, retries)"                            \
    " SELECT id, $1, $2::uuid, seq, template, name, spec, spec_hash, labels::jsonb, "              \
    "idempotency_key, priority, greatest(least(now(), clock_timestamp()),"                         \
    " to_timestamp(not_before_ms / 1000.0::float8)),"                                              \
    " to_timestamp(deadline_ms / 1000.0::float8), retries"                                         \
    " FROM unnest($3::uuid[], $4::int[], $5::text[], $6::text[], $7::text[], $8::bytea[], "        \
    "$9::text[], $10::text[], $11::int[], $12::int8[], $13::int8[], $14::int[]) i (id, seq, "      \
    "template, name, spec, spec_hash, labels, idempotency_key, priority, not_before_ms, "          \
    "deadline_ms, retries)" conflict                                                               \
    " RETURNING id, tenant, priority)" QUEUE_COUNT("added", "") " SELECT id::text FROM added"

static const struct statement insert_new = { "insert_new", INSERT_JOBS("") };
static const struct statement insert_jobs = { "insert_jobs",
                                              INSERT_JOBS(" ON CONFLICT DO NOTHING") };

enum column {
    C_ID,
    C_SEQ,
    C_TEMPLATE,
    C_NAME,
    C_SPEC,
    C_HASH,
    C_LABELS,
    C_KEY,
    C_PRIORITY,
    C_NOT_BEFORE,
    C_DEADLINE,
    C_RETRIES,
    COLUMN_COUNT
};
static const enum pg_element types[COLUMN_COUNT] = {
    [C_ID] = PG_UUID,       [C_SEQ] = PG_INT4,        [C_TEMPLATE] = PG_TEXT, [C_NAME] = PG_TEXT,
    [C_SPEC] = PG_TEXT,     [C_HASH] = PG_BYTEA,      [C_LABELS] = PG_TEXT,   [C_KEY] = PG_TEXT,
    [C_PRIORITY] = PG_INT4, [C_NOT_BEFORE] = PG_INT8, [C_DEADLINE] = PG_INT8, [C_RETRIES] = PG_INT4,
};
static const struct statement find_job = {
    "find_job",
    "SELECT id::text, spec_hash = $4 FROM jobs WHERE tenant = $1 AND idempotency_key = $2"
    " UNION ALL SELECT id::text, spec_hash = $4 FROM jobs WHERE id = $3::uuid AND tenant = $1 "
    "LIMIT "
    "1"
};

static char *labels_text(const struct job_spec *spec)
{
    json_t *o = json_object();
    for (int i = 0; i < spec->n_labels; i++) {
        (void)json_object_set_new(o, spec->labels[i].key, json_string(spec->labels[i].value));
    }
    char *text = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    if (!text) {
        abort(); /* out of memory: the labels are UTF-8 since job_parse */
    }
    return text;
}

/* ---- the rows ---- */

/* Milliseconds; 0: NULL. */
static int add_time(struct pg_array *a, int64_t ms, struct err *err)
{
    return ms ? pg_array_add_int(a, ms, err) : pg_array_add(a, NULL, 0, err);
}

static int add_row(struct pg_array *c, int seq, const struct submit_item *item, struct err *err)
{
    const struct job_spec *s = item->spec;
    uint8_t hash[HASH_BYTES];
    job_spec_hash(s, hash);
    cleanup_free char *labels = s->n_labels > 0 ? labels_text(s) : NULL;
    int rc = pg_array_add_uuid(&c[C_ID], item->ret_id.text, err);
    rc = rc < 0 ? rc : pg_array_add_int(&c[C_SEQ], seq, err);
    rc = rc < 0 ? rc : pg_array_add_text(&c[C_TEMPLATE], s->template_name, err);
    rc = rc < 0 ? rc : pg_array_add_text(&c[C_NAME], s->name, err);
    rc = rc < 0 ? rc : pg_array_add(&c[C_SPEC], s->canonical, s->canonical_len, err);
    rc = rc < 0 ? rc : pg_array_add(&c[C_HASH], hash, sizeof hash, err);
    rc = rc < 0 ? rc : pg_array_add_text(&c[C_LABELS], labels ? labels : "{}", err);
    rc = rc < 0 ? rc : pg_array_add_text(&c[C_KEY], s->idempotency_key, err);
    rc = rc < 0 ? rc : pg_array_add_int(&c[C_PRIORITY], (int)s->priority, err);
    rc = rc < 0 ? rc : add_time(&c[C_NOT_BEFORE], s->not_before_ms, err);
    rc = rc < 0 ? rc : add_time(&c[C_DEADLINE], s->deadline_ms, err);
    return rc < 0 ? rc : pg_array_add_int(&c[C_RETRIES], s->retries, err);
}

/* How many of the n items fit one statement, 1 or more. */
static int step_of(const struct submit_item *items, int n)
{
    size_t bytes = 0;
    for (int i = 0; i < n; i++) {
        bytes += items[i].spec->canonical_len;
        if (i > 0 && bytes > STEP_BYTES_MAX) {
            return i;
        }
    }
    return n;
}

/* Could a row of it be there? */
static bool may_be_there(const struct submit_item *item)
{
    return (item->id && !item->id_is_new) || item->spec->idempotency_key;
}

static bool any_may_be_there(const struct submit_item *items, int n)
{
    for (int i = 0; i < n; i++) {
        if (may_be_there(&items[i])) {
            return true;
        }
    }
    return false;
}

/* One statement. Returns how many were added; *ret_res names them. */
static int insert_rows(struct pg *pg, const char *tenant, const char *batch_id, int first_seq,
                       const struct submit_item *items, int n, PGresult **ret_res, struct err *err)
{
    struct pg_array columns[COLUMN_COUNT];
    struct pg_params p = { .n = 0 };
    static_assert(COLUMN_COUNT + 2 <= PG_PARAMS_MAX, "parameters");
    int rc = 0;
    for (int k = 0; k < COLUMN_COUNT; k++) {
        pg_array_init(&columns[k], types[k]);
    }
    for (int i = 0; i < n && rc == 0; i++) {
        rc = add_row(columns, first_seq < 0 ? items[i].seq : first_seq + i, &items[i], err);
    }
    if (rc == 0) {
        pg_add_text(&p, tenant);
        pg_add_text(&p, batch_id);
        for (int k = 0; k < COLUMN_COUNT; k++) {
            pg_add_array(&p, &columns[k]);
        }
        rc = pg_run(pg, any_may_be_there(items, n) ? &insert_jobs : &insert_new, &p, false, ret_res,
                    err);
    }
    for (int k = 0; k < COLUMN_COUNT; k++) {
        pg_array_done(&columns[k]);
    }
    return rc;
}

/* ---- what became of each item ---- */

/* 1 found, 0 neither its id nor its key is there. */
static int look_up(struct pg *pg, const char *tenant, struct submit_item *item, struct err *err)
{
    uint8_t hash[HASH_BYTES];
    job_spec_hash(item->spec, hash);
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    pg_add_text(&p, item->spec->idempotency_key);
    pg_add_text(&p, item->ret_id.text);
    pg_add_bytes(&p, hash, sizeof hash);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_run(pg, &find_job, &p, false, &res, err);
    if (rc < 0) {
        return rc;
    }
    if (rc == 0) {
        return 0;
    }
    bool same = strcmp(PQgetvalue(res, 0, 1), "t") == 0;
    pg_copy(res, 0, 0, item->ret_id.text, sizeof item->ret_id.text);
    item->ret_duplicate = same;
    if (!same) {
        (void)err_set(&item->ret_error, ERR_CONFLICT,
                      "idempotency_key: \"%s\" is taken by job %s, which has other content: use a "
                      "new key for new content",
                      item->spec->idempotency_key ? item->spec->idempotency_key : "",
                      item->ret_id.text);
    }
    return 1;
}

/* Of items [from, to): RETURNING gives the inserted rows in their order; an item that is not the
 * next of them was not inserted. */
static int settle(struct pg *pg, const char *tenant, const PGresult *inserted,
                  struct submit_item *items, int from, int to, bool all_or_nothing, struct err *err)
{
    int n_inserted = PQntuples(inserted), k = 0;
    for (int i = from; i < to; i++) {
        if (k < n_inserted && strcmp(PQgetvalue(inserted, k, 0), items[i].ret_id.text) == 0) {
            k++;
            continue;
        }
        int rc = look_up(pg, tenant, &items[i], err);
        if (rc < 0) {
            return rc;
        }
        if (rc == 0 && !items[i].id) {
            return err_set(err, ERR_DB, "Postgres: a job was neither inserted nor found");
        }
        if (rc == 0) { /* no word of whose it is */
            (void)err_set(&items[i].ret_error, ERR_CONFLICT, "job: the id %s is taken",
                          items[i].ret_id.text);
        }
        if (items[i].ret_error.code && all_or_nothing) {
            return err_set(err, ERR_CONFLICT, "item %d: %s", i, items[i].ret_error.text);
        }
    }
    return 0;
}

static int open_batch(struct pg *pg, const char *tenant, const char *batch_id,
                      const char *batch_name, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, batch_id);
    pg_add_text(&p, tenant);
    pg_add_text(&p, batch_name);
    int rc = pg_run(pg, &add_batch, &p, false, NULL, err);
    if (rc < 0) {
        return rc;
    }
    p.n = 1;
    cleanup_pgresult PGresult *res = NULL;
    rc = pg_run(pg, &batch_tenant, &p, false, &res, err);
    if (rc < 0) {
        return rc;
    }
    if (rc == 0 || strcmp(PQgetvalue(res, 0, 0), tenant) != 0) {
        return err_set(err, ERR_CONFLICT, "batch: %s cannot be added to: it is not this tenant's",
                       batch_id);
    }
    return 0;
}

/* The caps let only a->fits new jobs in: how many of items may be inserted, the first of them.
 * Those behind are refused, but not those that are there already (all_or_nothing: -ERR_LIMIT
 * instead). */
static int cut(struct pg *pg, const char *tenant, struct submit_item *items, int n,
               bool all_or_nothing, const struct admission *a, struct err *err)
{
    int n_new = 0, m = n;
    for (int i = 0; i < n; i++) {
        struct submit_item *item = &items[i];
        int there = may_be_there(item) ? look_up(pg, tenant, item, err) : 0;
        if (there < 0) {
            return there;
        }
        if (there == 0 && n_new == a->fits) {
            if (all_or_nothing) {
                if (err) {
                    *err = a->why;
                }
                return -ERR_LIMIT;
            }
            item->ret_error = a->why;
            m = i < m ? i : m;
        }
        n_new += there == 0 && n_new < a->fits;
    }
    return m;
}

static int insert(struct pg *pg, const char *tenant, const char *batch_id, int first_seq,
                  struct submit_item *items, int n, bool all_or_nothing, struct err *err)
{
    int added = 0;
    for (int i = 0, step; i < n; i += step) {
        cleanup_pgresult PGresult *inserted = NULL;
        step = step_of(items + i, n - i);
        int rc = insert_rows(pg, tenant, batch_id, first_seq < 0 ? first_seq : first_seq + i,
                             items + i, step, &inserted, err);
        if (rc < 0) {
            return rc;
        }
        added += rc;
        if (rc < step &&
            (rc = settle(pg, tenant, inserted, items, i, i + step, all_or_nothing, err)) < 0) {
            return rc;
        }
    }
    return added;
}

static int submit(struct pg *pg, const char *tenant, const char *batch_id, const char *batch_name,
                  int first_seq, struct submit_item *items, int n, bool all_or_nothing,
                  struct err *err)
{
    int rc = 0, m = n, added = 0;
    struct admission a;
    if (batch_id && (rc = open_batch(pg, tenant, batch_id, batch_name, err)) < 0) {
        return rc;
    }
    if ((rc = admission_look(pg, tenant, n, &a, err)) < 0 ||
        (a.fits < n && (m = cut(pg, tenant, items, n, all_or_nothing, &a, err)) < 0)) {
        return rc < 0 ? rc : m;
    }
    if (m > 0) {
        added = insert(pg, tenant, batch_id, first_seq, items, m, all_or_nothing, err);
    }
    if (added < 0 || (added > 0 && (rc = admission_take(pg, tenant, &a, added, err)) < 0)) {
        return added < 0 ? added : rc;
    }
    if (batch_id && added > 0) {
        struct pg_params g = { .n = 0 };
        pg_add_text(&g, batch_id);
        pg_add_int(&g, added);
        if ((rc = pg_run(pg, &grow_batch, &g, false, NULL, err)) < 0) {
            return rc;
        }
    }
    return pg_exec(pg, "COMMIT", "commit a submission", err);
}

int store_submit(struct pg *pg, const char *tenant, const char *batch_id, const char *batch_name,
                 int first_seq, struct submit_item *items, int n, bool all_or_nothing,
                 struct err *err)
{
    assert(n > 0 && n <= SUBMIT_MAX);
    int rc = pg_ensure(pg, err);
    if (rc < 0) {
        return rc;
    }
    for (int i = 0; i < n; i++) {
        if (items[i].spec->n_secrets > 0 && !items[i].spec->secrets_sealed) {
            return err_set(err, ERR_INVALID, "secrets: not sealed; nothing is stored");
        }
    }
    for (int i = 0; i < n; i++) {
        if (items[i].id) {
            assert(id_valid(items[i].id));
            memcpy(items[i].ret_id.text, items[i].id, ID_TEXT_BYTES);
        } else {
            items[i].ret_id = id_new();
        }
        items[i].ret_duplicate = false;
        items[i].ret_error.code = ERR_NONE;
    }
    if ((rc = pg_exec(pg, "BEGIN", "begin a submission", err)) < 0) {
        return rc;
    }
    rc = submit(pg, tenant, batch_id, batch_name, first_seq, items, n, all_or_nothing, err);
    if (rc < 0) {
        pg_rollback(pg);
    }
    return rc;
}
