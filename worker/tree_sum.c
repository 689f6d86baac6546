#include "worker/tree_sum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/branch_result.h"
#include "common/model/score.h"

void tree_sum(const struct tree_run *run, const struct job_spec *spec, struct commit_entry *e)
{
    const struct tree *t = spec->tree;
    struct job_result *r = &e->result;
    struct score score;
    enum verdict *verdicts = calloc((size_t)t->n, sizeof *verdicts);
    int32_t *scores = calloc((size_t)t->n, sizeof *scores);
    if (!verdicts || !scores) {
        abort();
    }
    memcpy(verdicts, run->verdicts, (size_t)t->n * sizeof *verdicts);
    score_tree(t, spec->stop, verdicts, scores, &score);
    for (int i = 1; i < t->n; i++) {
        struct branch_result *b = &e->branches[i - 1];
        b->score_micro = scores[i];
        if (b->result.verdict != verdicts[i]) {
            b->result.verdict = verdicts[i];
            if (run->states[i] == NODE_SKIPPED) {
                (void)snprintf(b->result.reason, sizeof b->result.reason,
                               "the set-up it starts from failed");
            } else if (run->states[i] == NODE_CANCELLED) {
                (void)snprintf(b->result.reason, sizeof b->result.reason,
                               "stopped after the first failure");
            }
        }
        job_result_take_manifest(&b->result, &b->artifacts);
        job_result_take_manifest(r, &b->artifacts);
    }
    r->tree = (struct result_tree){ .nodes = t->n,
                                    .leaves = score.leaves,
                                    .accepted = score.accepted,
                                    .failed = score.failed,
                                    .skipped = score.skipped,
                                    .cancelled = score.cancelled,
                                    .score_micro = score.micro,
                                    .first_failed = score.first_failed };
    bool own = run->states[0] == NODE_FAILED; /* its own set-up: judge has said why */
    r->verdict = score.verdict;
    if (!own && score.first_failed > 0) {
        const struct branch_result *b = &e->branches[score.first_failed - 1];
        (void)snprintf(r->reason, sizeof r->reason,
                       "%d of %d branches not accepted; first %.60s: %s",
                       score.leaves - score.accepted, score.leaves, b->name_path,
                       verdict_word(b->result.verdict));
    }
    free(verdicts);
    free(scores);
    for (int i = 0; i < e->n_branches; i++) {
        e->branches[i].billed = branch_result_billed(&e->branches[i], r);
    }
}
