/* The states of a tree's nodes: one table, and the one function that moves a node.
 *
 * What follows from a step (children open, a subtree is skipped, a parent is released, the rest is
 * cancelled) is made of steps of the same table, so the test that walks the table has seen them
 * all. */
#include "common/model/tree.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/job_part.h"

struct state_row {
    const char *word;
    bool terminal, active;
};

static const struct state_row states[NODE_STATE_COUNT] = {
#define NODE_STATE(name, word, terminal, active) [NODE_##name] = { word, terminal, active },
#include "common/model/node_state.def"
};

static const char *const events[NODE_EVENT_COUNT] = {
#define NODE_EVENT(name, word) [NODE_ON_##name] = word,
#include "common/model/node_state.def"
};

/* 0: not allowed; else the state + 1. */
static const unsigned char steps[NODE_STATE_COUNT][NODE_EVENT_COUNT] = {
#define NODE_STEP(from, event, to) [NODE_##from][NODE_ON_##event] = NODE_##to + 1,
#include "common/model/node_state.def"
};

const char *node_state_word(enum node_state s)
{
    assert((int)s >= 0 && s < NODE_STATE_COUNT);
    return states[s].word;
}

const char *node_event_word(enum node_event e)
{
    assert((int)e >= 0 && e < NODE_EVENT_COUNT);
    return events[e];
}

bool node_state_terminal(enum node_state s)
{
    assert((int)s >= 0 && s < NODE_STATE_COUNT);
    return states[s].terminal;
}

bool node_state_active(enum node_state s)
{
    assert((int)s >= 0 && s < NODE_STATE_COUNT);
    return states[s].active;
}

int node_next(enum node_state from, enum node_event event)
{
    assert((int)from >= 0 && from < NODE_STATE_COUNT);
    assert((int)event >= 0 && event < NODE_EVENT_COUNT);
    return (int)steps[from][event] - 1;
}

/* The only writer of a node's state. */
static bool step(struct tree_run *r, int i, enum node_event event)
{
    enum node_state from = r->states[i];
    int to = node_next(from, event);
    if (to < 0) {
        return false;
    }
    r->states[i] = (enum node_state)to;
    r->running += (int)states[to].active - (int)states[from].active;
    assert(r->running >= 0);
    if (to == NODE_SKIPPED) {
        r->verdicts[i] = VERDICT_SKIPPED;
    } else if (to == NODE_CANCELLED) {
        r->verdicts[i] = VERDICT_CANCELLED;
    }
    return true;
}

static void must_step(struct tree_run *r, int i, enum node_event event)
{
    bool ok = step(r, i, event);
    assert(ok);
}

void tree_run_init(struct tree_run *r, const struct tree *t, enum job_stop stop)
{
    *r = (struct tree_run){ .tree = t, .stop = stop };
    r->states = job_new_array((size_t)t->n, sizeof *r->states); /* all WAITING */
    r->verdicts = job_new_array((size_t)t->n, sizeof *r->verdicts);
    static_assert(NODE_WAITING == 0 && VERDICT_NONE == 0, "calloc made the first states");
    must_step(r, 0, NODE_ON_OPEN);
}

void tree_run_done(struct tree_run *r)
{
    free(r->states);
    free(r->verdicts);
    *r = (struct tree_run){ .running = 0 };
}

int tree_each_in(const struct tree_run *r, enum node_state state, int from, int max, int *ret)
{
    int n = 0;
    for (int i = from; i < r->tree->n && n < max; i++) {
        if (r->states[i] == state) {
            ret[n++] = i;
        }
    }
    return n;
}

int tree_ready(const struct tree_run *r, int max, int *ret)
{
    return tree_each_in(r, NODE_READY, 0, max, ret);
}

bool tree_ended(const struct tree_run *r)
{
    for (int i = 0; i < r->tree->n; i++) {
        if (!states[r->states[i]].terminal) {
            return false;
        }
    }
    return true;
}

static bool children_ended(const struct tree_run *r, int i)
{
    const struct tree_node *nodes = r->tree->nodes;
    for (int c = i + 1; c < nodes[i].end; c = nodes[c].end) {
        if (!states[r->states[c]].terminal) {
            return false;
        }
    }
    return true;
}

/* i has ended: so has its parent, when it was the last. */
static void release_above(struct tree_run *r, int i)
{
    for (int p = r->tree->nodes[i].parent;
         p >= 0 && r->states[p] == NODE_FROZEN && children_ended(r, p);
         p = r->tree->nodes[p].parent) {
        must_step(r, p, NODE_ON_RELEASE);
    }
}

static void skip_below(struct tree_run *r, int i)
{
    for (int c = i + 1; c < r->tree->nodes[i].end; c++) {
        must_step(r, c, NODE_ON_SKIP); /* nothing below a node that was never frozen has moved */
    }
}

static void open_children(struct tree_run *r, int i)
{
    const struct tree_node *nodes = r->tree->nodes;
    for (int c = i + 1; c < nodes[i].end; c = nodes[c].end) {
        must_step(r, c, NODE_ON_OPEN);
    }
}

void tree_cancel_all(struct tree_run *r)
{
    r->stopped = true;
    for (int i = r->tree->n - 1; i >= 0; i--) { /* children before their parents */
        if (step(r, i, NODE_ON_CANCEL) && states[r->states[i]].terminal) {
            release_above(r, i);
        }
    }
}

static bool verdict_ok(enum node_event event, enum verdict v)
{
    return (event == NODE_ON_END || event == NODE_ON_FAIL) == (v != VERDICT_NONE);
}

bool tree_apply(struct tree_run *r, int i, enum node_event event, enum verdict verdict)
{
    assert(i >= 0 && i < r->tree->n && verdict_ok(event, verdict));
    assert(event != NODE_ON_OPEN && event != NODE_ON_SKIP && event != NODE_ON_RELEASE &&
           event != NODE_ON_CANCEL); /* these follow by themselves */
    const struct tree_node *n = &r->tree->nodes[i];
    /* A leaf ends, an inner node is frozen or fails. */
    bool fits = n->leaf ? event != NODE_ON_FREEZE && event != NODE_ON_FAIL : event != NODE_ON_END;
    if (!fits || (event == NODE_ON_START && r->stopped) || !step(r, i, event)) {
        return false;
    }
    enum node_state now = r->states[i];
    if (now == NODE_DONE || now == NODE_FAILED) {
        r->verdicts[i] = verdict;
    }
    if (now == NODE_FROZEN) {
        open_children(r, i);
    } else if (now == NODE_FAILED) {
        skip_below(r, i);
    }
    if (states[now].terminal) {
        release_above(r, i);
    }
    bool bad = (now == NODE_DONE || now == NODE_FAILED) && verdict != VERDICT_ACCEPTED;
    if (bad && r->stop == JOB_STOP_FIRST_FAILURE) {
        tree_cancel_all(r);
    }
    return true;
}
