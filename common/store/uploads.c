/* Who may name an object, and which objects anybody still wants. */
#include <assert.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/buf.h"
#include "common/store/pg_internal.h"
#include "common/store/snapshots.h"

#define WANTED_MAX 1000

static const struct statement put_upload = {
    "upload_put",
    "INSERT INTO uploads (tenant, sha256, size_bytes, expires_at)"
    " VALUES ($1, $2, $3::int8, clock_timestamp() + $4::int8 * interval '1 s')"
    " ON CONFLICT (tenant, sha256) DO UPDATE SET expires_at = greatest(uploads.expires_at,"
    " excluded.expires_at)"
};
static const struct statement check_upload = {
    "upload_check",
    "SELECT size_bytes FROM uploads WHERE tenant = $1 AND sha256 = $2 AND expires_at > "
    "clock_timestamp()"
    " UNION ALL SELECT a.size_bytes FROM artifacts a JOIN jobs j ON j.id = a.job_id"
    "  WHERE a.sha256 = $2 AND a.stored AND j.tenant = $1 LIMIT 1"
};
static const struct statement wanted = {
    "objects_wanted",
    /* An upload may expire while a job waits that names it: only those have their jobs looked
     * through, once for all of them. */
    "WITH d AS (SELECT x, i FROM unnest(string_to_array($1, ' ')) WITH ORDINALITY d (x, i)),"
    " late AS MATERIALIZED (SELECT tenant, sha256 FROM uploads WHERE sha256 IN (SELECT x FROM d)"
    "  AND expires_at <= clock_timestamp()),"
    " named AS MATERIALIZED (SELECT m[1] AS x FROM jobs j,"
    "  regexp_matches(j.spec, '\"object\":\"([0-9a-f]{64})\"', 'g') m"
    "  WHERE j.tenant IN (SELECT tenant FROM late)"
    "  AND j.state IN ('queued', 'retrying', 'scheduled', 'running'))"
    " SELECT d.i, EXISTS (SELECT FROM snapshots WHERE layers @> ARRAY[d.x])"
    "  OR EXISTS (SELECT FROM artifacts WHERE sha256 = d.x)"
    "  OR EXISTS (SELECT FROM uploads WHERE sha256 = d.x AND expires_at > clock_timestamp())"
    "  OR EXISTS (SELECT FROM named WHERE named.x = d.x)"
    " FROM d"
};

static int check_digest(const char *sha256, struct err *err)
{
    if (strlen(sha256) != SHA256_HEX || strspn(sha256, "0123456789abcdef") != SHA256_HEX) {
        return err_set(err, ERR_INVALID, "object: must be a SHA-256, 64 lower-case hex digits");
    }
    return 0;
}

int store_upload_put(struct pg *pg, const char *tenant, const char *sha256, int64_t size_bytes,
                     int64_t ttl_s, struct err *err)
{
    assert(size_bytes >= 0 && ttl_s > 0);
    int rc = check_digest(sha256, err);
    if (rc < 0 || (rc = pg_ensure(pg, err)) < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    pg_add_text(&p, sha256);
    pg_add_int(&p, size_bytes);
    pg_add_int(&p, ttl_s);
    rc = pg_run(pg, &put_upload, &p, false, NULL, err);
    return rc < 0 ? rc : 0;
}

int store_upload_check(struct pg *pg, const char *tenant, const char *sha256,
                       int64_t *ret_size_bytes, struct err *err)
{
    int rc = check_digest(sha256, err);
    if (rc < 0 || (rc = pg_ensure(pg, err)) < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, tenant);
    pg_add_text(&p, sha256);
    cleanup_pgresult PGresult *res = NULL;
    rc = pg_run(pg, &check_upload, &p, false, &res, err);
    if (rc <= 0) {
        return rc < 0 ? rc
                      : err_set(err, ERR_NOT_FOUND,
                                "object %s: tenant %s has not uploaded it, or it has expired",
                                sha256, tenant);
    }
    if (ret_size_bytes) {
        *ret_size_bytes = pg_int(res, 0, 0);
    }
    return 0;
}

int store_job_check(struct pg *pg, const char *tenant, const struct job_spec *spec, struct err *err)
{
    if (!spec->archive.object[0]) {
        return 0;
    }
    int rc = store_upload_check(pg, tenant, spec->archive.object, NULL, err);
    return rc == -ERR_NOT_FOUND ? err_prefix(err, "archive.object") : rc;
}

int store_objects_wanted(struct pg *pg, const char *const *digests, int n, bool *ret_wanted,
                         struct err *err)
{
    assert(n > 0 && n <= WANTED_MAX);
    cleanup_buf struct buf list = { 0 };
    buf_init(&list, WANTED_MAX * (SHA256_HEX + 1));
    int rc = pg_ensure(pg, err);
    for (int i = 0; i < n && rc >= 0; i++) {
        rc = check_digest(digests[i], err);
        rc = rc < 0 ? rc : buf_addf(&list, err, "%s%s", i ? " " : "", digests[i]);
    }
    if (rc < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, list.data);
    cleanup_pgresult PGresult *res = NULL;
    rc = pg_run(pg, &wanted, &p, false, &res, err);
    for (int i = 0; i < rc; i++) {
        int at = (int)pg_int(res, i, 0) - 1;
        if (at < 0 || at >= n) {
            return err_set(err, ERR_DB, "objects_wanted: rows out of step");
        }
        ret_wanted[at] = *PQgetvalue(res, i, 1) == 't';
    }
    return rc < 0 ? rc : 0;
}
