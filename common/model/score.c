#include "common/model/score.h"

#include <assert.h>
#include <stdlib.h>

#include "common/model/job_part.h"

__extension__ typedef __int128 wide;

#define PART 1000000000000LL /* a share while it is added up: six digits more than are shown */

/* What is known of a subtree. */
struct sums {
    int64_t weight; /* points it counts for among its siblings */
    int64_t part;   /* of PART: how much of them it has */
    int leaves, accepted, failed, skipped, cancelled;
    int first_failed; /* -1 */
    int infra, judge; /* first node with such a verdict; -1 */
};

static void count_leaf(struct sums *s, int i, enum verdict v)
{
    s->leaves++;
    s->accepted += v == VERDICT_ACCEPTED;
    s->skipped += v == VERDICT_SKIPPED;
    s->cancelled += v == VERDICT_CANCELLED;
    if (v != VERDICT_ACCEPTED && v != VERDICT_SKIPPED && v != VERDICT_CANCELLED) {
        s->failed++;
        s->first_failed = i;
    }
    s->infra = v == VERDICT_INFRA_ERROR ? i : -1;
    s->judge = v == VERDICT_JUDGE_ERROR ? i : -1;
}

static int first_of(int a, int b)
{
    return a < 0 ? b : a;
}

static void add_child(struct sums *s, const struct sums *c)
{
    s->leaves += c->leaves;
    s->accepted += c->accepted;
    s->failed += c->failed;
    s->skipped += c->skipped;
    s->cancelled += c->cancelled;
    s->first_failed = first_of(s->first_failed, c->first_failed);
    s->infra = first_of(s->infra, c->infra);
    s->judge = first_of(s->judge, c->judge);
}

static enum verdict inner_verdict(const struct sums *s, enum job_stop stop,
                                  const enum verdict *verdicts)
{
    if (s->infra >= 0) {
        return VERDICT_INFRA_ERROR;
    }
    if (s->judge >= 0) {
        return VERDICT_JUDGE_ERROR;
    }
    if (s->accepted == s->leaves) {
        return VERDICT_ACCEPTED;
    }
    if (s->part > 0 && stop == JOB_STOP_ALL) {
        return VERDICT_PARTIAL;
    }
    if (s->first_failed >= 0) {
        return verdicts[s->first_failed];
    }
    return s->cancelled > 0 ? VERDICT_CANCELLED : VERDICT_SKIPPED;
}

/* The share of the points, to the nearest millionth; 0 and SCORE_ONE only when it is nothing or
 * all. */
static int32_t micro(const struct sums *s)
{
    if (s->accepted == s->leaves) {
        return SCORE_ONE;
    }
    if (s->part == 0) {
        return 0;
    }
    int64_t v = (s->part + PART / SCORE_ONE / 2) / (PART / SCORE_ONE);
    return (int32_t)(v < 1 ? 1 : v >= SCORE_ONE ? SCORE_ONE - 1 : v);
}

static void leaf_sums(const struct tree_node *n, enum verdict v, struct sums *s)
{
    count_leaf(s, n->index, v);
    s->weight = n->weight;
    s->part = v == VERDICT_ACCEPTED ? PART : 0;
}

/* Children come behind their parent, so going backwards every child is complete before its parent.
 */
static void inner_sums(const struct tree *t, const struct tree_node *n, const struct sums *all,
                       struct sums *s)
{
    wide points = 0;
    int64_t weights = 0;
    for (int c = n->index + 1; c < n->end; c = t->nodes[c].end) {
        add_child(s, &all[c]);
        weights += all[c].weight;
        points += (wide)all[c].weight * all[c].part;
    }
    s->part = weights ? (int64_t)(points / weights) : 0;
    s->weight = n->has_weight ? n->weight : weights;
}

void score_tree(const struct tree *t, enum job_stop stop, enum verdict *verdicts, int32_t *scores,
                struct score *ret_score)
{
    struct sums *all = job_new_array((size_t)t->n, sizeof *all);
    for (int i = t->n - 1; i >= 0; i--) {
        const struct tree_node *n = &t->nodes[i];
        struct sums *s = &all[i];
        s->first_failed = s->infra = s->judge = -1;
        if (n->leaf) {
            leaf_sums(n, verdicts[i], s);
        } else {
            inner_sums(t, n, all, s);
        }
        bool own = !n->leaf && verdicts[i] != VERDICT_NONE && verdicts[i] != VERDICT_SKIPPED &&
                   verdicts[i] != VERDICT_CANCELLED;
        if (own) { /* its setup failed: it speaks for what is below */
            s->part = 0;
            s->first_failed = i;
            s->infra = verdicts[i] == VERDICT_INFRA_ERROR ? i : -1;
            s->judge = verdicts[i] == VERDICT_JUDGE_ERROR ? i : -1;
        } else if (!n->leaf) {
            verdicts[i] = inner_verdict(s, stop, verdicts);
        }
        if (scores) {
            scores[i] = micro(s);
        }
    }
    const struct sums *s = &all[0];
    bool fine = verdicts[0] == VERDICT_ACCEPTED;
    int why = s->infra >= 0 ? s->infra : s->judge >= 0 ? s->judge : s->first_failed;
    *ret_score = (struct score){ .verdict = verdicts[0],
                                 .micro = micro(s),
                                 .leaves = s->leaves,
                                 .accepted = s->accepted,
                                 .failed = s->failed,
                                 .skipped = s->skipped,
                                 .cancelled = s->cancelled,
                                 .first_failed = fine ? -1 : why };
    assert(s->accepted + s->failed + s->skipped + s->cancelled == s->leaves);
    free(all);
}
