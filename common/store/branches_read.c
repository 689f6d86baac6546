/* Branches and artifacts of a job, page by page: memory does not grow with the tree. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/jobs.h"
#include "common/store/pg_internal.h"

enum {
    COL_NODE,
    COL_PARENT,
    COL_LEAF,
    COL_SCORE,
    COL_WEIGHT,
    COL_TRIES,
    COL_PATH,
    COL_NAMES,
    COL_DETAIL,
    COL_OUT_HEAD,
    COL_OUT_TAIL,
    COL_ERR_HEAD,
    COL_ERR_TAIL,
    COL_SETUP_OUT,
    COL_SETUP_ERR
};
/* The job is the viewer's. */
#define OF_VIEWER(n)                                                                               \
    " AND (" n "::text IS NULL OR EXISTS (SELECT FROM jobs j WHERE j.id = $1::uuid AND "           \
    "j.tenant = " n "::text))"
#define HEAD_COLUMNS                                                                               \
    "SELECT node::int8, parent::int8, leaf::int::int8, score_micro::int8, weight, tries::int8, "   \
    "path,"                                                                                        \
    " name_path, detail"
#define FROM_NODE                                                                                  \
    " FROM branch_results WHERE job_id = $1::uuid AND attempt = (SELECT attempt FROM results "     \
    "WHERE "                                                                                       \
    "job_id = $1::uuid) AND node > $2::int" OF_VIEWER("$4") " ORDER BY node LIMIT $3::int"
static const struct statement branch_page = {
    "branch_page", HEAD_COLUMNS
    ", stdout_head, stdout_tail, stderr_head, stderr_tail, setup_stdout, setup_stderr" FROM_NODE
};
static const struct statement branch_heads = { "branch_heads", HEAD_COLUMNS
                                               ", ''::bytea, ''::bytea, ''::bytea, ''::bytea, "
                                               "''::bytea, ''::bytea" FROM_NODE };
/* $2 only this node or -1, $3 node and $4 place behind which, $5 max, $6 viewer */
static const struct statement artifact_page = {
    "artifact_page",
    "SELECT node::int8, path, sha256, size_bytes, mode::int8, type, target, stored::int::int8,"
    " reason, change::int8, ord::int8 FROM artifacts WHERE job_id = $1::uuid"
    " AND ($2::int < 0 OR node = $2::int) AND (node, ord) > ($3::int, $4::int)" OF_VIEWER(
        "$6") " ORDER BY node, ord LIMIT $5::int"
};

static int no_job(const char *id, struct err *err)
{
    return err_set(err, ERR_INVALID, "job: \"%.60s\" is no id (36 characters, lower case)", id);
}

static void take(const PGresult *res, int row, int col, struct bytes *b)
{
    free(b->data);
    b->len = 0;
    b->data = pg_dup(res, row, col, &b->len);
}

static int read_branch(const PGresult *res, int i, struct branch_result *b, struct err *err)
{
    *b = (struct branch_result){ .node = (int)pg_bin_int(res, i, COL_NODE, 0),
                                 .parent = (int)pg_bin_int(res, i, COL_PARENT, 0),
                                 .leaf = pg_bin_int(res, i, COL_LEAF, 0) != 0,
                                 .score_micro = (int32_t)pg_bin_int(res, i, COL_SCORE, 0),
                                 .weight = pg_bin_int(res, i, COL_WEIGHT, 0),
                                 .tries = (int)pg_bin_int(res, i, COL_TRIES, 0),
                                 .path = pg_dup(res, i, COL_PATH, NULL),
                                 .name_path = pg_dup(res, i, COL_NAMES, NULL) };
    job_result_init(&b->result);
    int rc = job_result_parse_detail(PQgetvalue(res, i, COL_DETAIL),
                                     (size_t)PQgetlength(res, i, COL_DETAIL), &b->result, err);
    if (rc < 0) {
        return err_prefix(err, "stored result of branch %s", b->path);
    }
    take(res, i, COL_OUT_HEAD, &b->result.run.out.head);
    take(res, i, COL_OUT_TAIL, &b->result.run.out.tail);
    take(res, i, COL_ERR_HEAD, &b->result.run.err_out.head);
    take(res, i, COL_ERR_TAIL, &b->result.run.err_out.tail);
    take(res, i, COL_SETUP_OUT, &b->result.setup.out.head);
    take(res, i, COL_SETUP_ERR, &b->result.setup.err_out.head);
    return 0;
}

int store_branches(struct pg *pg, const char *job_id, int after_node, int max, bool with_output,
                   struct branch_result *ret_rows, struct err *err)
{
    assert(max > 0 && max <= BRANCHES_PAGE_MAX && after_node >= 0);
    if (!id_valid(job_id)) {
        return no_job(job_id, err);
    }
    int rc = pg_ensure(pg, err);
    if (rc < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, job_id);
    pg_add_int(&p, after_node);
    pg_add_int(&p, max);
    pg_add_text(&p, pg->viewer);
    cleanup_pgresult PGresult *res = NULL;
    int n = pg_run(pg, with_output ? &branch_page : &branch_heads, &p, true, &res, err);
    for (int i = 0; i < n; i++) {
        if ((rc = read_branch(res, i, &ret_rows[i], err)) < 0) {
            for (int k = 0; k <= i; k++) {
                branch_result_done(&ret_rows[k]);
            }
            return rc;
        }
    }
    return n;
}

void artifact_row_done(struct artifact_row *row)
{
    free(row->artifact.path);
    free(row->artifact.target);
    memset(row, 0, sizeof *row);
}

static int read_words(const PGresult *res, int i, struct artifact *a, struct err *err)
{
    int type = 0, reason = 0;
    while (type < ARTIFACT_TYPES &&
           strcmp(artifact_type_word((enum artifact_type)type), PQgetvalue(res, i, 5)) != 0) {
        type++;
    }
    while (reason < ARTIFACT_REASONS &&
           strcmp(artifact_reason_word((enum artifact_reason)reason), PQgetvalue(res, i, 8)) != 0) {
        reason++;
    }
    int64_t change = pg_bin_int(res, i, 9, 0);
    if (type == ARTIFACT_TYPES || reason == ARTIFACT_REASONS || change < 0 ||
        change >= ARTIFACT_CHANGES) {
        return err_set(err, ERR_DB, "an artifact has the unknown type %s, reason %s or change %lld",
                       PQgetvalue(res, i, 5), PQgetvalue(res, i, 8), (long long)change);
    }
    a->type = (enum artifact_type)type;
    a->reason = (enum artifact_reason)reason;
    a->change = (enum artifact_change)change;
    return 0;
}

static int read_artifact(const PGresult *res, int i, struct artifact_row *row, struct err *err)
{
    struct artifact *a = &row->artifact;
    *row = (struct artifact_row){ .node = (int)pg_bin_int(res, i, 0, 0),
                                  .ord = (int)pg_bin_int(res, i, 10, 0) };
    a->path = pg_dup(res, i, 1, &a->path_len);
    pg_copy(res, i, 2, a->sha256, sizeof a->sha256);
    a->size = (uint64_t)pg_bin_int(res, i, 3, 0);
    a->mode = (unsigned)pg_bin_int(res, i, 4, 0);
    a->target = pg_dup(res, i, 6, &a->target_len);
    a->stored = pg_bin_int(res, i, 7, 0) != 0;
    return read_words(res, i, a, err);
}

int store_artifacts(struct pg *pg, const char *job_id, int only_node, int after_node, int after_ord,
                    int max, struct artifact_row *ret_rows, struct err *err)
{
    assert(max > 0 && max <= ARTIFACTS_PAGE_MAX);
    if (!id_valid(job_id)) {
        return no_job(job_id, err);
    }
    int rc = pg_ensure(pg, err);
    if (rc < 0) {
        return rc;
    }
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, job_id);
    pg_add_int(&p, only_node);
    pg_add_int(&p, after_node);
    pg_add_int(&p, after_ord);
    pg_add_int(&p, max);
    pg_add_text(&p, pg->viewer);
    cleanup_pgresult PGresult *res = NULL;
    int n = pg_run(pg, &artifact_page, &p, true, &res, err);
    for (int i = 0; i < n; i++) {
        if ((rc = read_artifact(res, i, &ret_rows[i], err)) < 0) {
            for (int k = 0; k <= i; k++) {
                artifact_row_done(&ret_rows[k]);
            }
            return rc;
        }
    }
    return n;
}
