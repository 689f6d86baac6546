/* What happened to the nodes below a job: one of these a node, from index 1 on. Node 0's is the
 * job's own struct job_result.
 *
 * Output: each run keeps at most its output_bytes a stream; all branches of a job together keep at
 * most JOB_TREE_OUTPUT_BYTES_MAX. What is over that is cut from the middle of the largest outputs
 * and counted (stream_result.cut_bytes), after the verdict was found: cutting changes no verdict.
 */
#pragma once
#include "common/model/manifest.h"
#include "common/model/result.h"

struct branch_result {
    int node, parent; /* index in the tree */
    bool leaf;
    char *path;      /* "root/2/0" */
    char *name_path; /* "build/fast" */
    int64_t weight;
    int32_t score_micro;
    int tries;                 /* how often its fork was started; 0: never */
    struct job_result result;  /* setup and run as a job's; verdict NONE only before the end */
    struct manifest artifacts; /* see job_result_take_manifest */
    bool billed;               /* see branch_result_billed */
};
/* Zeroed memory becomes an empty result of this node: index, parent, paths (copied), weight. */
struct tree_node;
void branch_result_init(struct branch_result *b, const struct tree_node *n);
void branch_result_done(struct branch_result *b);
/* n results of a tree's nodes 1..n, from calloc; free with branch_results_free. */
struct tree;
struct branch_result *branch_results_new(const struct tree *t);
void branch_results_free(struct branch_result *b, int n);

/* Whether the customer pays for the branch's sandbox: it was used, and neither the branch nor the
 * job ended by a fault of others. A branch that was cancelled had been started for the job (killed
 * at the first failure, or set up for nothing but such), so it counts. */
bool branch_result_billed(const struct branch_result *b, const struct job_result *job);

/* Note in r what m holds: the sums, and a warning for each pattern that matched nothing and for
 * what could not be listed. For the job's own result call it with every node's. */
void job_result_take_manifest(struct job_result *r, const struct manifest *m);

/* Cut so that all output of b[0..n) together is at most max bytes: an amount per branch is found
 * such that those below it stay whole. Deterministic; may be called again when more has come (with
 * the same max), and gives the same in the end. Returns how many bytes were cut this time. */
int64_t branch_results_cap(struct branch_result *const *b, int n, int64_t max_bytes);
/* Bytes of output kept. */
int64_t branch_result_bytes(const struct branch_result *b);
