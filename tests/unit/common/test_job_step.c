/* The table of a job's life, walked over the full product of states and events. */
#include <criterion/criterion.h>
#include "common/model/job.h"

enum event {
#define JOB_EVENT(name, word) EVENT_##name,
#include "common/model/job_step.def"
    EVENT_COUNT
};

#define NO_STEP (-1)

static int after[STATE_COUNT][EVENT_COUNT];
static int rows[STATE_COUNT][EVENT_COUNT];

static void fill(void)
{
    for (int s = 0; s < STATE_COUNT; s++) {
        for (int e = 0; e < EVENT_COUNT; e++) {
            after[s][e] = NO_STEP;
        }
    }
#define JOB_STEP(from, event, to)                                                                  \
    after[STATE_##from][EVENT_##event] = STATE_##to;                                               \
    rows[STATE_##from][EVENT_##event]++;
#include "common/model/job_step.def"
}

TestSuite(job_step, .init = fill);

Test(job_step, each_pair_of_state_and_event_has_one_outcome)
{
    for (int s = 0; s < STATE_COUNT; s++) {
        for (int e = 0; e < EVENT_COUNT; e++) {
            cr_assert_leq(rows[s][e], 1, "%s, event %d", job_state_word((enum job_state)s), e);
        }
    }
}

Test(job_step, an_end_is_an_end_and_everything_else_has_a_way_on)
{
    for (int s = 0; s < STATE_COUNT; s++) {
        int out = 0;
        for (int e = 0; e < EVENT_COUNT; e++) {
            out += after[s][e] != NO_STEP;
        }
        cr_assert_eq(out > 0, !job_state_terminal((enum job_state)s), "%s",
                     job_state_word((enum job_state)s));
    }
}

Test(job_step, every_state_is_reached_and_every_event_means_something)
{
    bool reached[STATE_COUNT] = { [STATE_QUEUED] = true }, used[EVENT_COUNT] = { false };
    for (int round = 0; round < STATE_COUNT; round++) {
        for (int s = 0; s < STATE_COUNT; s++) {
            for (int e = 0; reached[s] && e < EVENT_COUNT; e++) {
                if (after[s][e] != NO_STEP) {
                    reached[after[s][e]] = true;
                    used[e] = true;
                }
            }
        }
    }
    for (int s = 0; s < STATE_COUNT; s++) {
        cr_assert(reached[s], "%s", job_state_word((enum job_state)s));
    }
    for (int e = 0; e < EVENT_COUNT; e++) {
        cr_assert(used[e], "event %d", e);
    }
}

/* From every state that is no end, some sequence of events ends the job. */
Test(job_step, every_job_can_end)
{
    bool ends[STATE_COUNT];
    for (int s = 0; s < STATE_COUNT; s++) {
        ends[s] = job_state_terminal((enum job_state)s);
    }
    for (int round = 0; round < STATE_COUNT; round++) {
        for (int s = 0; s < STATE_COUNT; s++) {
            for (int e = 0; e < EVENT_COUNT; e++) {
                ends[s] = ends[s] || (after[s][e] != NO_STEP && ends[after[s][e]]);
            }
        }
    }
    for (int s = 0; s < STATE_COUNT; s++) {
        cr_assert(ends[s], "%s", job_state_word((enum job_state)s));
    }
}

Test(job_step, only_what_waits_is_dispatched_or_expires_and_only_what_flies_commits)
{
    for (int s = 0; s < STATE_COUNT; s++) {
        bool waits = s == STATE_QUEUED || s == STATE_RETRYING,
             flies = s == STATE_SCHEDULED || s == STATE_RUNNING;
        cr_assert_eq(after[s][EVENT_DISPATCH] != NO_STEP, waits);
        cr_assert_eq(after[s][EVENT_EXPIRE] != NO_STEP, s == STATE_QUEUED);
        cr_assert_eq(after[s][EVENT_COMMIT] != NO_STEP, flies);
        cr_assert_eq(after[s][EVENT_FAULT] != NO_STEP, flies);
        cr_assert_eq(after[s][EVENT_CANCEL] != NO_STEP, waits || flies);
    }
}
