/* The submitter's checker: judges what a run has printed, in a sandbox of its own.
 *
 * Theory (docs/verdicts.md, "Checkers"): the judged program's machine is gone when this one is
 * leased, so neither has ever held what the other must not see: the program never met the checker
 * or the expected output, the checker meets only three files. What the checker does wrong (crash,
 * limit, an exit code its protocol does not know) is judge_error; what fails around it is an error
 * of the attempt, as with any sandbox. Its time is the run's: it is added to the billed interval.
 * Thread: the caller's. */
#pragma once
#include "worker/node_run.h"

/* Must node's verdict r come from a checker? */
bool checker_wanted(const struct tree_node *node, const struct job_result *r);
/* Ask it: r->verdict is accepted before, and accepted, wrong_answer or judge_error after it; fills
 * r->checker. j->session is used; pool: the caller's connection, on which a sandbox is leased and
 * released. Errors as node_run's and pool_lease's. */
MUST_CHECK int checker_run(const struct node_job *j, struct pool_client *pool, struct job_result *r,
                           struct err *err);
/* What an exit code says. Pure. */
enum verdict checker_verdict(enum checker_protocol p, int exit_code);
