#include "common/store/sweep.h"

#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/pg_internal.h"

#define LOCK "7310579512230486" /* LOCKS in pg_internal.h */

static const struct statement view = {
    "sweep_view", "SELECT after, passes, rounds, looked, removed, removed_bytes, " PG_MS(
                      "last_at") " FROM object_sweeps"
};
static const struct statement lock = { "sweep_lock", "SELECT pg_try_advisory_lock(" LOCK ")" };
static const struct statement note = {
    "sweep_note", "WITH n AS (UPDATE object_sweeps SET after = $1, passes = passes + 1, looked = "
                  "looked + $2::int8,"
                  " removed = removed + $3::int8, removed_bytes = removed_bytes + $4::int8,"
                  " rounds = rounds + ($1 = '')::int, last_at = clock_timestamp() RETURNING 1)"
                  " SELECT pg_advisory_unlock(" LOCK ") FROM n"
};
static const struct statement forget = {
    "upload_forget", "DELETE FROM uploads WHERE sha256 = $1 AND expires_at <= clock_timestamp()"
};

int store_sweep_view(struct pg *pg, struct sweep_view *ret_view, struct err *err)
{
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &view, NULL, &res, err);
    if (rc != 1) {
        return rc < 0 ? rc : err_set(err, ERR_DB, "object_sweeps has no row");
    }
    struct sweep_view v = { .passes = pg_int(res, 0, 1),
                            .rounds = pg_int(res, 0, 2),
                            .looked = pg_int(res, 0, 3),
                            .removed = pg_int(res, 0, 4),
                            .removed_bytes = pg_int(res, 0, 5),
                            .last_ms = pg_int(res, 0, 6) };
    pg_copy(res, 0, 0, v.after, sizeof v.after);
    *ret_view = v;
    return 0;
}

int store_sweep_begin(struct pg *pg, struct sweep_view *ret_view, struct err *err)
{
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &lock, NULL, &res, err);
    if (rc < 0 || *PQgetvalue(res, 0, 0) != 't') {
        return rc < 0 ? rc : 0;
    }
    rc = store_sweep_view(pg, ret_view, err);
    return rc < 0 ? rc : 1;
}

int store_sweep_end(struct pg *pg, const struct sweep_pass *pass, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, pass->after);
    pg_add_int(&p, pass->looked);
    pg_add_int(&p, pass->removed);
    pg_add_int(&p, pass->removed_bytes);
    int rc = pg_run(pg, &note, &p, false, NULL, err);
    return rc < 0 ? rc : 0;
}

int store_upload_forget(struct pg *pg, const char *sha256, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, sha256);
    int rc = pg_run(pg, &forget, &p, false, NULL, err);
    return rc < 0 ? rc : 0;
}
