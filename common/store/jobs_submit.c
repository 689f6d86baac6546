/* Submission: COPY into a temporary table, then one INSERT ... ON CONFLICT DO NOTHING.
 *
 * The binary COPY format carries every byte of a spec without escaping. A job that was not inserted
 * met a row with its id (the same call repeated) or with its tenant and idempotency key (the client
 * repeated itself); its content hash decides between "the same job" and "conflict". DO NOTHING
 * waits for a concurrent transaction that holds the same key, so the lookup afterwards, a statement
 * with a snapshot of its own, sees what was committed. */
#include <arpa/inet.h>
#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "common/base/cleanup.h"
#include "common/store/admission.h"
#include "common/store/jobs.h"
#include "common/store/pg_array.h"

#define HASH_BYTES 32
#define COPY_COLUMNS 13
#define COPY_FLUSH_BYTES (256u << 10) /* handed to libpq in pieces of about this size */
#define COPY_BUF_MAX (COPY_FLUSH_BYTES + (64u << 20)) /* plus the largest row */

#define INTAKE_SQL                                                                                 \
    "CREATE TEMPORARY TABLE IF NOT EXISTS brood_intake (ord int, id uuid, seq int, template text," \
    " name text, spec text, spec_hash bytea, labels text, idempotency_key text,"                   \
    " priority int, not_before_ms int8, deadline_ms int8, retries int) ON COMMIT DELETE ROWS"

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
static const struct statement insert_jobs = {
    "insert_jobs",
    "WITH added AS (INSERT INTO jobs (id, tenant, batch_id, seq, template, name, spec, spec_hash, "
    "labels, idempotency_key, priority, not_before, deadline, retries)"
    " SELECT id, $1, $2::uuid, seq, template, name, spec, spec_hash, labels::jsonb, "
    "idempotency_key, priority, greatest(now(), to_timestamp(not_before_ms / 1000.0)),"
    " to_timestamp(deadline_ms / 1000.0), retries"
    " FROM brood_intake ORDER BY ord ON CONFLICT DO NOTHING RETURNING id, tenant, "
    "priority)" QUEUE_COUNT("added", "") " SELECT id::text FROM added"
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

/* ---- binary COPY ---- */

static int put_field(struct buf *b, const void *data, size_t len, struct err *err)
{
    uint32_t n = htonl(data ? (uint32_t)len : UINT32_MAX); /* -1: NULL */
    int rc = buf_add(b, &n, sizeof n, err);
    return rc < 0 || !data ? rc : buf_add(b, data, len, err);
}

static int put_str(struct buf *b, const char *s, struct err *err)
{
    return put_field(b, s, s ? strlen(s) : 0, err);
}

static int put_int(struct buf *b, int v, struct err *err)
{
    uint32_t n = htonl((uint32_t)v);
    return put_field(b, &n, sizeof n, err);
}

/* Milliseconds; 0: NULL. */
static int put_time(struct buf *b, int64_t ms, struct err *err)
{
    uint64_t v = htobe64((uint64_t)ms);
    return put_field(b, ms ? &v : NULL, sizeof v, err);
}

static int put_row(struct buf *b, int ord, int seq, const struct submit_item *item, struct err *err)
{
    const struct job_spec *s = item->spec;
    uint8_t hash[HASH_BYTES], id[16];
    job_spec_hash(s, hash);
    pg_uuid_bytes(item->ret_id.text, id);
    cleanup_free char *labels = labels_text(s);
    uint16_t columns = htons(COPY_COLUMNS);
    int rc = buf_add(b, &columns, sizeof columns, err);
    rc = rc < 0 ? rc : put_int(b, ord, err);
    rc = rc < 0 ? rc : put_field(b, id, sizeof id, err);
    rc = rc < 0 ? rc : put_int(b, seq, err);
    rc = rc < 0 ? rc : put_str(b, s->template_name, err);
    rc = rc < 0 ? rc : put_str(b, s->name, err);
    rc = rc < 0 ? rc : put_field(b, s->canonical, s->canonical_len, err);
    rc = rc < 0 ? rc : put_field(b, hash, sizeof hash, err);
    rc = rc < 0 ? rc : put_str(b, labels, err);
    rc = rc < 0 ? rc : put_str(b, s->idempotency_key, err);
    rc = rc < 0 ? rc : put_int(b, (int)s->priority, err);
    rc = rc < 0 ? rc : put_time(b, s->not_before_ms, err);
    rc = rc < 0 ? rc : put_time(b, s->deadline_ms, err);
    return rc < 0 ? rc : put_int(b, s->retries, err);
}

static int flush(struct pg *pg, struct buf *b, struct err *err)
{
    if (b->len > 0 && PQputCopyData(pg->conn, b->data, (int)b->len) != 1) {
        return pg_fail(pg, NULL, "copy jobs", err);
    }
    buf_reset(b);
    return 0;
}

static int copy_rows(struct pg *pg, int first_seq, struct submit_item *items, int n,
                     struct err *err)
{
    static const char head[] =
        "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0\0"; /* signature, flags 0, no extension */
    static const char tail[] = "\377\377";
    static_assert(sizeof head - 1 == 19, "header of the binary COPY format");
    PGresult *res = PQexec(pg->conn, "COPY brood_intake FROM STDIN (FORMAT binary)");
    if (PQresultStatus(res) != PGRES_COPY_IN) {
        return pg_fail(pg, res, "copy jobs", err);
    }
    PQclear(res);
    cleanup_buf struct buf b;
    buf_init(&b, COPY_BUF_MAX);
    int rc = buf_add(&b, head, sizeof head - 1, err);
    for (int i = 0; i < n && rc == 0; i++) {
        rc = put_row(&b, i, first_seq < 0 ? items[i].seq : first_seq + i, &items[i], err);
        if (rc == 0 && b.len >= COPY_FLUSH_BYTES) {
            rc = flush(pg, &b, err);
        }
    }
    rc = rc < 0 ? rc : buf_add(&b, tail, sizeof tail - 1, err);
    rc = rc < 0 ? rc : flush(pg, &b, err);
    if (!pg->conn) {
        return rc;
    }
    if (PQputCopyEnd(pg->conn, rc < 0 ? "given up" : NULL) != 1) {
        return rc < 0 ? rc : pg_fail(pg, NULL, "copy jobs", err);
    }
    res = PQgetResult(pg->conn);
    if (rc == 0 && PQresultStatus(res) != PGRES_COMMAND_OK) {
        rc = pg_fail(pg, res, "copy jobs", err);
        res = NULL;
    }
    PQclear(res);
    while (pg->conn && (res = PQgetResult(pg->conn))) {
        PQclear(res);
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

/* RETURNING gives the inserted rows in their order; an item that is not the next of them was not
 * inserted. */
static int settle(struct pg *pg, const char *tenant, const PGresult *inserted,
                  struct submit_item *items, int n, bool all_or_nothing, struct err *err)
{
    int n_inserted = PQntuples(inserted), k = 0;
    for (int i = 0; i < n; i++) {
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
        int there = item->id || item->spec->idempotency_key ? look_up(pg, tenant, item, err) : 0;
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
    int rc = copy_rows(pg, first_seq, items, n, err);
    if (rc < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    pg_add_text(&p, batch_id);
    cleanup_pgresult PGresult *inserted = NULL;
    int added = pg_run(pg, &insert_jobs, &p, false, &inserted, err);
    if (added >= 0 && added < n &&
        (rc = settle(pg, tenant, inserted, items, n, all_or_nothing, err)) < 0) {
        return rc;
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
    if (!pg->has_intake) { /* outside of the transaction: it stays for the session */
        if ((rc = pg_exec(pg, INTAKE_SQL, "make the intake table", err)) < 0) {
            return rc;
        }
        pg->has_intake = true;
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
