/* How the nodes of a tree live: the whole product of states and events, and runs of small trees. */
#include "common/model/tree.h"
#include "tests/unit/common/job_case.h"

/* The table of docs/forks.md, written down a second time. */
static const struct {
    enum node_state from;
    enum node_event event;
    enum node_state to;
} allowed[] = {
    { NODE_WAITING, NODE_ON_OPEN, NODE_READY },
    { NODE_WAITING, NODE_ON_SKIP, NODE_SKIPPED },
    { NODE_WAITING, NODE_ON_CANCEL, NODE_CANCELLED },
    { NODE_READY, NODE_ON_START, NODE_RUNNING },
    { NODE_READY, NODE_ON_CANCEL, NODE_CANCELLED },
    { NODE_RUNNING, NODE_ON_FREEZE, NODE_FROZEN },
    { NODE_RUNNING, NODE_ON_END, NODE_DONE },
    { NODE_RUNNING, NODE_ON_FAIL, NODE_FAILED },
    { NODE_RUNNING, NODE_ON_RETRY, NODE_READY },
    { NODE_RUNNING, NODE_ON_CANCEL, NODE_KILLING },
    { NODE_FROZEN, NODE_ON_RELEASE, NODE_DONE },
    { NODE_KILLING, NODE_ON_KILLED, NODE_CANCELLED },
    { NODE_KILLING, NODE_ON_END, NODE_CANCELLED },
    { NODE_KILLING, NODE_ON_FAIL, NODE_CANCELLED },
    { NODE_KILLING, NODE_ON_FREEZE, NODE_CANCELLED },
    { NODE_KILLING, NODE_ON_RETRY, NODE_CANCELLED },
};

Test(tree, whole_product_of_states_and_events)
{
    for (int s = 0; s < NODE_STATE_COUNT; s++) {
        for (int e = 0; e < NODE_EVENT_COUNT; e++) {
            int want = -1;
            for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
                if ((int)allowed[i].from == s && (int)allowed[i].event == e) {
                    want = (int)allowed[i].to;
                }
            }
            int got = node_next((enum node_state)s, (enum node_event)e);
            cr_assert_eq(got, want, "%s on %s: %d, want %d", node_state_word((enum node_state)s),
                         node_event_word((enum node_event)e), got, want);
            /* what has ended stays as it is */
            cr_assert(got < 0 || !node_state_terminal((enum node_state)s));
        }
    }
    for (int s = 0; s < NODE_STATE_COUNT; s++) {
        bool out = false;
        for (int e = 0; e < NODE_EVENT_COUNT; e++) {
            out = out || node_next((enum node_state)s, (enum node_event)e) >= 0;
        }
        cr_assert_eq(out, !node_state_terminal((enum node_state)s), "%s",
                     node_state_word((enum node_state)s));
        cr_assert(!node_state_terminal((enum node_state)s) ||
                  !node_state_active((enum node_state)s));
    }
}

/* 0 root: 1 A (2 a0, 3 a1), 4 B (5 b0), 6 C */
static const char job[] = HEAD ",\"branches\":[{\"branches\":[{},{}]},{\"branches\":[{}]},{}]}";

static void states_are(const struct tree_run *r, const char *want)
{
    /* one letter a node: w r R f K d F s c */
    static const char letters[] = "wrRfKdFsc";
    char got[32] = "";
    for (int i = 0; i < r->tree->n; i++) {
        got[i] = letters[r->states[i]];
    }
    cr_assert_str_eq(got, want);
    int running = 0;
    for (int i = 0; i < r->tree->n; i++) {
        running += node_state_active(r->states[i]);
    }
    cr_assert_eq(r->running, running);
}

static void ready_is(const struct tree_run *r, int max, const char *want)
{
    int list[16];
    char got[64] = "";
    int n = tree_ready(r, max, list);
    for (int i = 0; i < n; i++) {
        (void)snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", i ? " " : "", list[i]);
    }
    cr_assert_str_eq(got, want);
}

static void ok(struct tree_run *r, int i, enum node_event e, enum verdict v)
{
    cr_assert(tree_apply(r, i, e, v), "node %d, %s", i, node_event_word(e));
}

Test(tree, a_tree_from_begin_to_end)
{
    cleanup_job_spec struct job_spec *s = parse(job);
    struct tree_run r;
    tree_run_init(&r, s->tree, JOB_STOP_ALL);
    states_are(&r, "rwwwwww");
    ready_is(&r, 16, "0");
    ok(&r, 0, NODE_ON_START, VERDICT_NONE);
    ready_is(&r, 16, "");
    ok(&r, 0, NODE_ON_FREEZE, VERDICT_NONE);
    states_are(&r, "frwwrwr");
    ready_is(&r, 16, "1 4 6");
    ready_is(&r, 2, "1 4");
    ok(&r, 1, NODE_ON_START, VERDICT_NONE);
    ok(&r, 1, NODE_ON_FREEZE, VERDICT_NONE);
    ready_is(&r, 16, "2 3 4 6"); /* depth first: what is open is finished before more is opened */
    ok(&r, 2, NODE_ON_START, VERDICT_NONE);
    ok(&r, 3, NODE_ON_START, VERDICT_NONE);
    ok(&r, 2, NODE_ON_END, VERDICT_ACCEPTED);
    states_are(&r, "ffdRrwr");
    ok(&r, 3, NODE_ON_RETRY, VERDICT_NONE); /* from its parent's state, which is still there */
    states_are(&r, "ffdrrwr");
    ok(&r, 3, NODE_ON_START, VERDICT_NONE);
    ok(&r, 3, NODE_ON_END, VERDICT_WRONG_ANSWER);
    states_are(&r, "fdddrwr"); /* A is released with its last child */
    ok(&r, 4, NODE_ON_START, VERDICT_NONE);
    ok(&r, 6, NODE_ON_START, VERDICT_NONE);
    ok(&r, 4, NODE_ON_FAIL, VERDICT_COMPILE_ERROR);
    states_are(&r, "fdddFsR");
    cr_assert_eq(r.verdicts[5], VERDICT_SKIPPED);
    cr_assert(!tree_ended(&r));
    ok(&r, 6, NODE_ON_END, VERDICT_ACCEPTED);
    states_are(&r, "ddddFsd");
    cr_assert(tree_ended(&r));
    cr_assert_eq(r.verdicts[3], VERDICT_WRONG_ANSWER);
    cr_assert_eq(r.verdicts[0], VERDICT_NONE); /* score_tree says it */
    tree_run_done(&r);
}

Test(tree, setup_of_the_job_fails)
{
    cleanup_job_spec struct job_spec *s = parse(job);
    struct tree_run r;
    tree_run_init(&r, s->tree, JOB_STOP_ALL);
    ok(&r, 0, NODE_ON_START, VERDICT_NONE);
    ok(&r, 0, NODE_ON_FAIL, VERDICT_COMPILE_ERROR);
    states_are(&r, "Fssssss");
    cr_assert(tree_ended(&r));
    tree_run_done(&r);
}

Test(tree, the_first_failure_stops_the_rest)
{
    cleanup_job_spec struct job_spec *s = parse(job);
    struct tree_run r;
    tree_run_init(&r, s->tree, JOB_STOP_FIRST_FAILURE);
    ok(&r, 0, NODE_ON_START, VERDICT_NONE);
    ok(&r, 0, NODE_ON_FREEZE, VERDICT_NONE);
    ok(&r, 1, NODE_ON_START, VERDICT_NONE);
    ok(&r, 1, NODE_ON_FREEZE, VERDICT_NONE);
    ok(&r, 2, NODE_ON_START, VERDICT_NONE);
    ok(&r, 4, NODE_ON_START, VERDICT_NONE);
    ok(&r, 6, NODE_ON_START, VERDICT_NONE);
    ok(&r, 6, NODE_ON_END, VERDICT_TIME_LIMIT);
    states_are(&r, "ffKcKcd");
    int list[8];
    cr_assert_eq(tree_each_in(&r, NODE_KILLING, 0, 8, list), 2);
    cr_assert(list[0] == 2 && list[1] == 4);
    cr_assert_eq(tree_each_in(&r, NODE_KILLING, 3, 8, list), 1);
    ready_is(&r, 16, "");
    cr_assert(!tree_apply(&r, 3, NODE_ON_START, VERDICT_NONE), "nothing starts any more");
    ok(&r, 2, NODE_ON_END,
       VERDICT_ACCEPTED); /* it crossed the kill: it was cancelled all the same */
    cr_assert_eq(r.verdicts[2], VERDICT_CANCELLED);
    states_are(&r, "fdccKcd");
    ok(&r, 4, NODE_ON_KILLED, VERDICT_NONE);
    states_are(&r, "ddccccd");
    cr_assert(tree_ended(&r));
    tree_run_done(&r);
}

Test(tree, taken_back)
{
    cleanup_job_spec struct job_spec *s = parse(job);
    struct tree_run r;
    tree_run_init(&r, s->tree, JOB_STOP_ALL);
    tree_cancel_all(&r);
    states_are(&r, "ccccccc");
    tree_run_done(&r);
    tree_run_init(&r, s->tree, JOB_STOP_ALL);
    ok(&r, 0, NODE_ON_START, VERDICT_NONE);
    ok(&r, 0, NODE_ON_FREEZE, VERDICT_NONE);
    ok(&r, 6, NODE_ON_START, VERDICT_NONE);
    tree_cancel_all(&r);
    states_are(&r, "fcccccK");
    ok(&r, 6, NODE_ON_KILLED, VERDICT_NONE);
    states_are(&r, "dcccccc");
    tree_run_done(&r);
}

Test(tree, what_does_not_fit_changes_nothing)
{
    cleanup_job_spec struct job_spec *s = parse(job);
    struct tree_run r;
    tree_run_init(&r, s->tree, JOB_STOP_ALL);
    cr_assert(!tree_apply(&r, 1, NODE_ON_START, VERDICT_NONE), "its parent is not frozen");
    cr_assert(!tree_apply(&r, 0, NODE_ON_FREEZE, VERDICT_NONE), "it does not run");
    ok(&r, 0, NODE_ON_START, VERDICT_NONE);
    cr_assert(!tree_apply(&r, 0, NODE_ON_END, VERDICT_ACCEPTED), "an inner node does not end");
    ok(&r, 0, NODE_ON_FREEZE, VERDICT_NONE);
    ok(&r, 6, NODE_ON_START, VERDICT_NONE);
    cr_assert(!tree_apply(&r, 6, NODE_ON_FREEZE, VERDICT_NONE), "a leaf is not frozen");
    cr_assert(!tree_apply(&r, 6, NODE_ON_FAIL, VERDICT_COMPILE_ERROR), "a leaf has a verdict");
    ok(&r, 6, NODE_ON_END, VERDICT_ACCEPTED);
    cr_assert(!tree_apply(&r, 6, NODE_ON_END, VERDICT_WRONG_ANSWER), "once");
    cr_assert_eq(r.verdicts[6], VERDICT_ACCEPTED);
    states_are(&r, "frwwrwd");
    tree_run_done(&r);
}

Test(tree, largest_tree_ends)
{
    size_t len;
    cleanup_free char *json =
        filled(HEAD ",\"tests\":[{}", ",{}", JOB_TREE_CHILDREN_MAX - 1, "]}", &len);
    cleanup_job_spec struct job_spec *s = parse_n(json, len);
    struct tree_run r;
    tree_run_init(&r, s->tree, JOB_STOP_FIRST_FAILURE);
    ok(&r, 0, NODE_ON_START, VERDICT_NONE);
    ok(&r, 0, NODE_ON_FREEZE, VERDICT_NONE);
    for (int i = 1; i < 1000; i++) {
        ok(&r, i, NODE_ON_START, VERDICT_NONE);
        ok(&r, i, NODE_ON_END, i < 999 ? VERDICT_ACCEPTED : VERDICT_RUNTIME_ERROR);
    }
    cr_assert(tree_ended(&r));
    cr_assert_eq(r.states[0], NODE_DONE);
    cr_assert_eq(r.verdicts[1024], VERDICT_CANCELLED);
    tree_run_done(&r);
}
