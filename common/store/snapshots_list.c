/* Reading snapshots, and their end. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/jobs.h"
#include "common/store/snapshots_internal.h"

static const struct statement list_snapshots = {
    "snapshot_list", SNAPSHOT_SELECT
    " WHERE s.tenant = $1 AND ($2::uuid IS NULL OR (s.created_at, s.id) > (SELECT "
    "created_at, id FROM "
    "snapshots WHERE id = $2::uuid AND tenant = $1)) ORDER BY s.created_at, s.id LIMIT $3::int"
};
static const struct statement known_names = {
    "snapshot_names", "SELECT name FROM snapshots WHERE tenant = $1 AND name IS NOT NULL"
                      " AND (expires_at IS NULL OR expires_at > clock_timestamp())"
                      " ORDER BY name LIMIT $2::int"
};
/* A row that gets a child at this moment is locked by it: skipped until the next time. */
static const struct statement expire = {
    "snapshot_expire",
    "DELETE FROM snapshots s USING (SELECT id FROM snapshots p WHERE expires_at < now()"
    "  AND NOT EXISTS (SELECT FROM snapshots c WHERE c.tenant = p.tenant AND c.parent = p.id)"
    "  ORDER BY expires_at LIMIT $1::int FOR UPDATE SKIP LOCKED) old WHERE s.id = old.id"
};

static void read_layers(const char *text, struct snapshot_row *s)
{
    for (s->n_layers = 0; *text && s->n_layers < SNAPSHOT_LAYERS_MAX; s->n_layers++) {
        size_t n = strcspn(text, " ");
        (void)snprintf(s->layers[s->n_layers], sizeof s->layers[0], "%.*s", (int)n, text);
        text += n + (text[n] == ' ');
    }
}

void snapshot_read(const PGresult *res, int row, struct snapshot_row *s)
{
    *s = (struct snapshot_row){ .n_layers = 0 };
    const struct {
        char *out;
        size_t room;
    } texts[] = {
        { s->id.text, sizeof s->id.text },
        { s->tenant, sizeof s->tenant },
        { s->name, sizeof s->name },
        { s->parent, sizeof s->parent },
        { s->digest, sizeof s->digest },
        { NULL, 0 },
        { s->template_name, sizeof s->template_name },
        { s->template_digest, sizeof s->template_digest },
        { s->engine, sizeof s->engine },
        { s->engine_version, sizeof s->engine_version },
        { s->cpu_model, sizeof s->cpu_model },
        { s->kernel_digest, sizeof s->kernel_digest },
    };
    int col = 0;
    for (; col < (int)(sizeof texts / sizeof texts[0]); col++) {
        if (texts[col].out) {
            pg_copy(res, row, col, texts[col].out, texts[col].room);
        } else {
            read_layers(PQgetvalue(res, row, col), s);
        }
    }
    s->vcpus = (int)pg_int(res, row, col++);
    s->memory_mib = (int)pg_int(res, row, col++);
    s->ram_bytes = pg_int(res, row, col++);
    s->layer_bytes = pg_int(res, row, col++);
    pg_copy(res, row, col++, s->job_id, sizeof s->job_id);
    s->node = (int)pg_int(res, row, col++);
    s->ttl_s = pg_int(res, row, col++);
    s->pinned = pg_int(res, row, col++) != 0;
    s->created_ms = pg_int(res, row, col++);
    s->used_ms = pg_int(res, row, col++);
    s->expires_ms = pg_int(res, row, col++);
    s->children = (int)pg_int(res, row, col);
}

static int unknown(struct pg *pg, const char *tenant, const char *name, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    pg_add_int(&p, SNAPSHOT_NAMED_MAX);
    cleanup_pgresult PGresult *res = NULL;
    int n = pg_run(pg, &known_names, &p, false, &res, err);
    if (n < 0) {
        return n;
    }
    char names[300] = "";
    size_t used = 0;
    for (int i = 0; i < n && used < sizeof names; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                 PQgetvalue(res, i, 0));
    }
    return err_set(err, ERR_NOT_FOUND, "snapshot: tenant %s has no \"%.64s\"; it has: %s", tenant,
                   name, n ? names : "none (a job keeps one by \"keep\")");
}

int snapshot_find(struct pg *pg, const struct statement *st, const char *tenant, const char *name,
                  PGresult **ret_res, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    pg_add_text(&p, name);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_run(pg, st, &p, false, &res, err);
    if (rc <= 0) {
        return rc < 0 ? rc : unknown(pg, tenant, name, err);
    }
    *ret_res = TAKE_PTR(res);
    return 0;
}

int store_snapshot_list(struct pg *pg, const char *tenant, const char *after_id, int max,
                        struct snapshot_row *ret_rows, struct err *err)
{
    assert(max > 0 && max <= SNAPSHOT_LIST_MAX);
    int rc = pg_ensure(pg, err);
    if (rc < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    pg_add_text(&p, after_id);
    pg_add_int(&p, max);
    cleanup_pgresult PGresult *res = NULL;
    int n = pg_run(pg, &list_snapshots, &p, false, &res, err);
    for (int i = 0; i < n; i++) {
        snapshot_read(res, i, &ret_rows[i]);
    }
    return n;
}

int store_snapshots_expire(struct pg *pg, int max, struct err *err)
{
    assert(max > 0);
    int rc = pg_ensure(pg, err);
    if (rc < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, max);
    return pg_run(pg, &expire, &p, false, NULL, err);
}

int store_base_get(struct pg *pg, const char *tenant, const char *template_name,
                   struct template_info *ret_t, struct err *err)
{
    size_t n = strlen(SNAPSHOT_TEMPLATE_PREFIX);
    if (strncmp(template_name, SNAPSHOT_TEMPLATE_PREFIX, n) != 0) {
        return store_template_get(pg, template_name, ret_t, err);
    }
    struct snapshot_row row;
    int rc = store_snapshot_resolve(pg, tenant, template_name + n, &row, err);
    if (rc < 0) {
        return rc == -ERR_NOT_FOUND ? err_prefix(err, "template") : rc;
    }
    struct template_info t = { .memory_mib = row.memory_mib, .vcpus = row.vcpus };
    (void)snprintf(t.name, sizeof t.name, "%s", template_name);
    (void)snprintf(t.digest, sizeof t.digest, "%s", row.digest);
    *ret_t = t;
    return 0;
}
