/* Keeping, finding and deleting snapshots.
 *
 * Parent and child are of one tenant by the foreign key, which also refuses the deletion of a
 * parent whatever this code thought a moment ago. A deletion takes the parent's lock first, so that
 * a child that is being added is either seen or waits and then finds no parent. */
#include "common/store/snapshots.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/commit_internal.h"
#include "common/store/snapshots_internal.h"

const struct statement stmt_name_lock = {
    "snapshot_name_lock",
    "SELECT pg_advisory_xact_lock(hashtextextended($1 || '/' || $2, 7310579512230482))"
};
static const struct statement lock_parent = {
    "snapshot_lock_parent",
    "SELECT 1 FROM snapshots WHERE tenant = $1 AND id = $2::uuid FOR KEY SHARE"
};
static const struct statement replace_name = {
    "snapshot_replace_name",
    "UPDATE snapshots SET name = NULL, pinned = false, ttl_s = 1, expires_at = clock_timestamp()"
    " WHERE tenant = $2 AND name = $3 AND NOT EXISTS (SELECT FROM snapshots WHERE id = $1::uuid)"
    " RETURNING id::text"
};
static const struct statement insert_snapshot = { "snapshot_insert",
                                                  "INSERT INTO snapshots (" SNAPSHOT_COLUMNS
                                                  ") SELECT " SNAPSHOT_PARAMS
                                                  " ON CONFLICT (id) DO NOTHING" };
static const struct statement get_snapshot = { "snapshot_get",
                                               SNAPSHOT_SELECT " WHERE " SNAPSHOT_NAMED };
static const struct statement use_snapshot = {
    "snapshot_use",
    "WITH u AS (UPDATE snapshots s SET used_at = clock_timestamp(), expires_at = CASE WHEN s.pinned"
    "  THEN NULL ELSE greatest(s.expires_at, clock_timestamp() + s.ttl_s * interval '1 s') END"
    " WHERE " SNAPSHOT_NAMED " AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp())"
    " RETURNING s.id) " SNAPSHOT_SELECT " JOIN u ON u.id = s.id"
};
static const struct statement touch_snapshot = {
    "snapshot_touch",
    "UPDATE snapshots s SET ttl_s = $3::int8, pinned = $3::int8 = 0, used_at = clock_timestamp(),"
    " expires_at = CASE WHEN $3::int8 > 0 THEN clock_timestamp() + $3::int8 * interval '1 s' END"
    " WHERE " SNAPSHOT_NAMED " RETURNING 1"
};
static const struct statement lock_snapshot = {
    "snapshot_lock", "SELECT s.id::text FROM snapshots s WHERE " SNAPSHOT_NAMED " FOR UPDATE"
};
static const struct statement delete_line = {
    "snapshot_delete_line",
    "WITH RECURSIVE line (id, depth) AS (SELECT $2::uuid, 0 UNION ALL SELECT c.id, line.depth + 1"
    "  FROM line JOIN snapshots c ON c.tenant = $1 AND c.parent = line.id)"
    " DELETE FROM snapshots s USING line WHERE s.tenant = $1 AND s.id = line.id"
    " RETURNING s.id::text, coalesce(s.name, '')"
};

void snapshot_params(struct pg_params *p, const struct snapshot_row *s,
                     char layers[SNAPSHOT_LAYERS_TEXT])
{
    assert(s->n_layers >= 1 && s->n_layers <= SNAPSHOT_LAYERS_MAX);
    size_t used = 0;
    for (int i = 0; i < s->n_layers; i++) {
        used += (size_t)snprintf(layers + used, SNAPSHOT_LAYERS_TEXT - used, "%s%s", i ? " " : "",
                                 s->layers[i]);
        assert(used < SNAPSHOT_LAYERS_TEXT);
    }
    pg_add_text(p, s->id.text);
    pg_add_text(p, s->tenant);
    pg_add_text(p, s->name);
    pg_add_text(p, s->parent[0] ? s->parent : NULL);
    pg_add_text(p, s->digest);
    pg_add_text(p, layers);
    pg_add_text(p, s->template_name);
    pg_add_text(p, s->template_digest);
    pg_add_text(p, s->engine);
    pg_add_text(p, s->engine_version);
    pg_add_text(p, s->cpu_model);
    pg_add_text(p, s->kernel_digest);
    pg_add_int(p, s->vcpus);
    pg_add_int(p, s->memory_mib);
    pg_add_int(p, s->ram_bytes);
    pg_add_int(p, s->layer_bytes);
    pg_add_text(p, s->job_id[0] ? s->job_id : NULL);
    pg_add_int(p, s->node);
    pg_add_int(p, s->pinned ? 0 : s->ttl_s);
}

static bool hex_ok(const char *s)
{
    return strlen(s) == SHA256_HEX && strspn(s, "0123456789abcdef") == SHA256_HEX;
}

static int check_row(const struct snapshot_row *s, struct err *err)
{
    if (!snapshot_name_ok(s->name) || !job_tenant_ok(s->tenant)) {
        return err_set(err, ERR_INVALID, "snapshot: tenant or name is none");
    }
    if (!hex_ok(s->digest) || s->n_layers < 1 || s->n_layers > SNAPSHOT_LAYERS_MAX) {
        return err_set(err, ERR_INVALID, "snapshot %s: a digest and 1 to %d layers are needed",
                       s->name, SNAPSHOT_LAYERS_MAX);
    }
    for (int i = 0; i < s->n_layers; i++) {
        if (!hex_ok(s->layers[i])) {
            return err_set(err, ERR_INVALID, "snapshot %s: layer %d has no digest", s->name, i);
        }
    }
    if (!s->pinned && (s->ttl_s < 1 || s->ttl_s > JOB_KEEP_TTL_S_MAX)) {
        return err_set(err, ERR_INVALID, "snapshot %s: ttl_s: from 1 to %d", s->name,
                       JOB_KEEP_TTL_S_MAX);
    }
    return 0;
}

static int create(struct pg *pg, const struct snapshot_row *s, struct id *replaced, struct err *err)
{
    struct pg_params lock = { .n = 0 }, parent = { .n = 0 }, name = { .n = 0 }, row = { .n = 0 };
    char layers[SNAPSHOT_LAYERS_TEXT];
    pg_add_text(&lock, s->tenant);
    pg_add_text(&lock, s->name);
    int rc = pg_run(pg, &stmt_name_lock, &lock, false, NULL, err);
    if (rc < 0) {
        return rc;
    }
    if (s->parent[0]) {
        pg_add_text(&parent, s->tenant);
        pg_add_text(&parent, s->parent);
        if ((rc = pg_run(pg, &lock_parent, &parent, false, NULL, err)) < 0) {
            return rc;
        }
        if (rc == 0) {
            return err_set(err, ERR_NOT_FOUND, "snapshot %s: its parent %s is gone", s->name,
                           s->parent);
        }
    }
    pg_add_text(&name, s->id.text);
    pg_add_text(&name, s->tenant);
    pg_add_text(&name, s->name);
    cleanup_pgresult PGresult *res = NULL;
    if ((rc = pg_run(pg, &replace_name, &name, false, &res, err)) < 0) {
        return rc;
    }
    replaced->text[0] = 0;
    if (rc > 0) {
        pg_copy(res, 0, 0, replaced->text, sizeof replaced->text);
    }
    snapshot_params(&row, s, layers);
    rc = pg_run(pg, &insert_snapshot, &row, false, NULL, err);
    return rc < 0 ? rc : pg_exec(pg, "COMMIT", "keep a snapshot", err);
}

int store_snapshot_create(struct pg *pg, const struct snapshot_row *s, struct id *ret_replaced,
                          struct err *err)
{
    int rc = check_row(s, err);
    if (rc < 0 || (rc = pg_ensure(pg, err)) < 0 ||
        (rc = pg_exec(pg, "BEGIN", "keep a snapshot", err)) < 0) {
        return rc;
    }
    struct id replaced;
    if ((rc = create(pg, s, &replaced, err)) < 0) {
        pg_rollback(pg);
        return rc;
    }
    if (ret_replaced) {
        *ret_replaced = replaced;
    }
    return 0;
}

static int get_by(struct pg *pg, const struct statement *st, const char *tenant, const char *name,
                  struct snapshot_row *ret_row, struct err *err)
{
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ensure(pg, err);
    rc = rc < 0 ? rc : snapshot_find(pg, st, tenant, name, &res, err);
    if (rc == 0) {
        snapshot_read(res, 0, ret_row);
    }
    return rc;
}

int store_snapshot_get(struct pg *pg, const char *tenant, const char *name,
                       struct snapshot_row *ret_row, struct err *err)
{
    return get_by(pg, &get_snapshot, tenant, name, ret_row, err);
}

int store_snapshot_resolve(struct pg *pg, const char *tenant, const char *name,
                           struct snapshot_row *ret_row, struct err *err)
{
    return get_by(pg, &use_snapshot, tenant, name, ret_row, err);
}

int store_snapshot_touch(struct pg *pg, const char *tenant, const char *name, int64_t ttl_s,
                         struct err *err)
{
    if (ttl_s < 0 || ttl_s > JOB_KEEP_TTL_S_MAX) {
        return err_set(err, ERR_INVALID, "ttl_s: must be a whole number from 0 (pinned) to %d",
                       JOB_KEEP_TTL_S_MAX);
    }
    int rc = pg_ensure(pg, err);
    if (rc < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    pg_add_text(&p, name);
    pg_add_int(&p, ttl_s);
    rc = pg_run(pg, &touch_snapshot, &p, false, NULL, err);
    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    struct snapshot_row row;
    rc = store_snapshot_get(pg, tenant, name, &row, err); /* says what there is */
    return rc < 0 ? rc : err_set(err, ERR_STALE, "snapshot %s went this moment", name);
}

static const struct statement children_of = {
    "snapshot_children",
    "SELECT coalesce(name, id::text) FROM snapshots WHERE tenant = $1 AND parent = $2::uuid"
    " ORDER BY created_at, id LIMIT $3::int"
};

static int refuse_children(struct pg *pg, const char *tenant, const char *name, const char *id,
                           struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    pg_add_text(&p, id);
    pg_add_int(&p, SNAPSHOT_NAMED_MAX + 1);
    cleanup_pgresult PGresult *res = NULL;
    int n = pg_run(pg, &children_of, &p, false, &res, err);
    if (n <= 0) {
        return n;
    }
    char list[320] = "";
    size_t used = 0;
    for (int i = 0; i < n && i < SNAPSHOT_NAMED_MAX && used < sizeof list; i++) {
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 PQgetvalue(res, i, 0));
    }
    return err_set(err, ERR_CONFLICT, "snapshot %s has children: %s%s", name, list,
                   n > SNAPSHOT_NAMED_MAX ? ", and more" : "");
}

static int remove_line(struct pg *pg, const char *tenant, const char *name, bool cascade,
                       struct snapshot_row *ret_rows, int max, struct err *err)
{
    cleanup_pgresult PGresult *found = NULL, *gone = NULL;
    int rc = snapshot_find(pg, &lock_snapshot, tenant, name, &found, err);
    if (rc < 0) {
        return rc;
    }
    const char *id = PQgetvalue(found, 0, 0);
    if (!cascade && (rc = refuse_children(pg, tenant, name, id, err)) < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    pg_add_text(&p, id);
    int n = pg_run(pg, &delete_line, &p, false, &gone, err);
    if (n < 0) {
        return n;
    }
    for (int i = 0; ret_rows && i < n && i < max; i++) {
        ret_rows[i] = (struct snapshot_row){ .expires_ms = -1 };
        pg_copy(gone, i, 0, ret_rows[i].id.text, sizeof ret_rows[i].id.text);
        pg_copy(gone, i, 1, ret_rows[i].name, sizeof ret_rows[i].name);
    }
    rc = pg_exec(pg, "COMMIT", "delete a snapshot", err);
    return rc < 0 ? rc : n;
}

int store_snapshot_remove(struct pg *pg, const char *tenant, const char *name, bool cascade,
                          struct snapshot_row *ret_rows, int max, struct err *err)
{
    int rc = pg_ensure(pg, err);
    if (rc < 0 || (rc = pg_exec(pg, "BEGIN", "delete a snapshot", err)) < 0) {
        return rc;
    }
    rc = remove_line(pg, tenant, name, cascade, ret_rows, max, err);
    if (rc < 0) {
        pg_rollback(pg);
    }
    return rc;
}
