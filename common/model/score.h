/* From the verdicts of a tree's leaves to one verdict and one score. Pure.
 *
 * Points: a leaf that is accepted has its weight, any other has 0. An inner node without a weight
 * of its own is transparent: its leaves count among its siblings as they are. One with a weight
 * shares it among what is below it, in proportion. So without any weight the score is the share of
 * accepted leaves. Whole numbers only: 1000000 is everything, and nothing else is 1000000. */
#pragma once
#include "common/model/tree.h"

#define SCORE_ONE 1000000

struct score {
    enum verdict verdict;
    int32_t micro;                                    /* 0..SCORE_ONE */
    int leaves, accepted, failed, skipped, cancelled; /* of leaves; failed: had another verdict */
    int first_failed; /* node that explains a verdict other than accepted; -1: none */
};

/* The verdict of every node and of the job. verdicts[tree->n]: in, of each leaf that ended and of
 * each inner node whose setup failed, SKIPPED and CANCELLED where that happened, else NONE; out, of
 * all nodes. scores[tree->n] (NULL: not wanted): of every node, micro. Rules, for each node: its
 * own setup failed: that verdict, score 0; a leaf below ended as infra_error or judge_error: that
 * (infra_error first): no measure of the program; every leaf accepted: accepted; some points, stop
 * "all": partial; else the first verdict below it, in order, that is neither accepted, skipped nor
 * cancelled; else, when there is none, cancelled, or skipped. */
void score_tree(const struct tree *t, enum job_stop stop, enum verdict *verdicts, int32_t *scores,
                struct score *ret_score);
