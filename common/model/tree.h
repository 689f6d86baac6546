/* The job as a tree of states, and the rules by which its nodes run. Pure: no clock, no I/O.
 *
 * Theory (docs/forks.md): a node is a machine state. An inner node starts where its parent stood,
 * does its setup once and is frozen; each child starts in a fork of that. A leaf starts in a fork
 * too, does its setup, then its command, and has a verdict. node 0 is the job itself; a job without
 * branches is a tree of one leaf. The nodes are one array in depth-first order, so that the nodes
 * below node i are i+1 .. nodes[i].end-1, its first child is i+1 and the sibling behind child c is
 * nodes[c].end. Everything a node inherits (command, arguments, limits, stdin, expect, env,
 * artifacts) is filled in here, once: who runs a node reads nothing else of the job.
 *
 * Ownership: the tree belongs to its job_spec (spec->tree) and borrows the spec's strings; both end
 * together. Threads: immutable after job_parse, but for job_clamp_to_template. */
#pragma once
#include "common/model/job.h"

struct tree_node {
    int index, parent; /* parent: -1 for node 0 */
    int end;           /* first index that is not below this node */
    int depth;         /* 0 for node 0 */
    int ordinal;       /* place among its siblings, from 0 */
    int n_children;
    bool leaf, test; /* test: given by "tests" */
    char *path;      /* "root/2/0": by ordinals; owned */
    char *name;      /* its own name, or its ordinal; "" for node 0; owned */
    char *name_path; /* names from the first level on, joined by '/'; "" for node 0; owned */

    /* What the node does in its fork, in this order: on_fork of the job (forks only), archive,
     * files, setup, command. */
    const struct job_archive *archive; /* NULL: none */
    const struct job_file *files;
    int n_files;
    struct job_command *setup; /* n_setup steps; the first that fails ends the node */
    int n_setup;
    struct job_command
        command;          /* leaf: argv array owned, strings borrowed; argc 0: nothing to run */
    struct job_pair *env; /* inherited and own, own wins; array owned, strings borrowed */
    int n_env;
    const struct bytes *stdin_data;
    const struct job_expect *expect;
    bool has_expect;
    char *const *artifacts; /* n_artifacts patterns */
    int n_artifacts;
    const struct job_keep *keep; /* NULL: not kept */
    int64_t weight;              /* points among its siblings; see score.h */
    bool has_weight;
    bool owns_argv, owns_env; /* for tree_free */
};

struct tree {
    struct tree_node *nodes;
    int n, n_leaves, depth; /* depth: of the deepest node */
};

/* Made by job_parse (and checked there: -ERR_INVALID / -ERR_TOO_LARGE name the field). spec's other
 * fields must be complete. */
MUST_CHECK int tree_build(const struct job_spec *spec, struct tree **ret_tree, struct err *err);
void tree_free(struct tree *t);
/* The node as the job's JSON has it, for an error: "branches[2].tests[0]"; "" for node 0. out has
 * TREE_FIELD_MAX bytes. */
#define TREE_FIELD_MAX 320
void tree_field(const struct tree *t, int i, char *out);
/* The `branch` of a node's usage records: "" for node 0, else its path. */
const char *tree_usage_branch(const struct tree_node *n);

/* ---- how nodes run ---- */

enum node_state {
#define NODE_STATE(name, word, terminal, active) NODE_##name,
#include "common/model/node_state.def"
    NODE_STATE_COUNT
};
enum node_event {
#define NODE_EVENT(name, word) NODE_ON_##name,
#include "common/model/node_state.def"
    NODE_EVENT_COUNT
};
const char *node_state_word(enum node_state s);
const char *node_event_word(enum node_event e);
bool node_state_terminal(enum node_state s);
bool node_state_active(enum node_state s); /* has, or is about to get, a machine of its own */
/* The state that follows, or -1: not allowed (a bug of the caller's, or an answer that came too
 * late). */
int node_next(enum node_state from, enum node_event event);

/* States and verdicts of all nodes of one attempt; the worker's own object. */
struct tree_run {
    const struct tree *tree;
    enum node_state *states; /* tree->n */
    enum verdict *verdicts;  /* tree->n; NONE until the node has one of its own */
    int running;             /* nodes in a state that occupies a slot */
    enum job_stop stop;
    bool stopped; /* first_failure struck: nothing new starts */
};
void tree_run_init(struct tree_run *r, const struct tree *t, enum job_stop stop);
void tree_run_done(struct tree_run *r);
/* Nodes that may start now, depth first (a subtree is finished before the next is opened: fewer
 * frozen states at once): at most max into ret. Returns how many. */
int tree_ready(const struct tree_run *r, int max, int *ret);
/* One thing happened to node i: change its state, and those of the nodes that follow from it:
 * children become ready when their parent is frozen, a node that failed skips everything below it,
 * a frozen node is released when its last child ended, and the first failure cancels the rest under
 * JOB_STOP_FIRST_FAILURE. verdict: only of NODE_ON_END (the leaf's; of an inner node why its setup
 * failed), else VERDICT_NONE. false: not allowed in this state, nothing changed. Nodes whose
 * machine must be ended are then in NODE_KILLING (tree_each_in). */
MUST_CHECK bool tree_apply(struct tree_run *r, int i, enum node_event event, enum verdict verdict);
/* Cancel everything that has not ended (the job was taken back). */
void tree_cancel_all(struct tree_run *r);
/* Nodes in this state, in order: at most max into ret, from index `from` on. Returns how many. */
int tree_each_in(const struct tree_run *r, enum node_state state, int from, int max, int *ret);
/* Every node has ended. */
bool tree_ended(const struct tree_run *r);
