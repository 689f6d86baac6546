#include "cli/pages.h"

#include <stdlib.h>

#include "common/base/cleanup.h"

/* Of a page with output: at most its rows times two streams of the largest limit; in sum never more
 * than what a job may store (JOB_TREE_OUTPUT_BYTES_MAX). */
#define BRANCHES_PAGE 64
#define HEADS_PAGE BRANCHES_PAGE_MAX

int pages_branches(struct pg *pg, const char *job_id, bool with_output, branch_fn fn, void *ctx,
                   struct err *err)
{
    int page = with_output ? BRANCHES_PAGE : HEADS_PAGE, after = 0, count = 0, rc = 0;
    cleanup_free struct branch_result *rows = calloc((size_t)page, sizeof *rows);
    if (!rows) {
        abort();
    }
    int n;
    do {
        n = store_branches(pg, job_id, after, page, with_output, rows, err);
        for (int i = 0; i < n; i++) {
            after = rows[i].node;
            rc = rc < 0 ? rc : fn(ctx, &rows[i], err);
            branch_result_done(&rows[i]);
        }
        count += n > 0 ? n : 0;
    } while (n == page && rc >= 0);
    return rc < 0 ? rc : n < 0 ? n : count;
}

int pages_artifacts(struct pg *pg, const char *job_id, int node, artifact_fn fn, void *ctx,
                    struct err *err)
{
    int after_node = -1, after_ord = 0, count = 0, rc = 0, n;
    cleanup_free struct artifact_row *rows = calloc(ARTIFACTS_PAGE_MAX, sizeof *rows);
    if (!rows) {
        abort();
    }
    do {
        n = store_artifacts(pg, job_id, node, after_node, after_ord, ARTIFACTS_PAGE_MAX, rows, err);
        for (int i = 0; i < n; i++) {
            after_node = rows[i].node;
            after_ord = rows[i].ord;
            rc = rc < 0 ? rc : fn(ctx, &rows[i], err);
            artifact_row_done(&rows[i]);
        }
        count += n > 0 ? n : 0;
    } while (n == ARTIFACTS_PAGE_MAX && rc >= 0);
    return rc < 0 ? rc : n < 0 ? n : count;
}
