/* The state after a project's set-up, kept from one run of `brood ci` to the next (docs/ci.md,
 * "Starting from the last run's state").
 *
 * Only with key_files: set-up then runs with these files alone, in a job of its own that keeps its
 * state under a name made of everything set-up can depend on: template build, lines, limits,
 * environment, and path, mode and content of each key file. The checkout is unpacked over that
 * state. So a state can be used whenever its name exists, and nothing of an older checkout is in
 * it. */
#pragma once
#include "cli/ci_pack.h"
#include "common/model/job.h"

#define CI_KEEP_TTL_S 1209600 /* from the last use: two weeks */

struct ci_keep {
    struct checkout files; /* the key files; they borrow the checkout's paths */
    char name[JOB_SNAPSHOT_NAME_MAX + 1];
};
void ci_keep_done(struct ci_keep *k);

/* Does the plan ask for it: key_files and a setup, from a template? */
bool ci_keep_wanted(const struct brood_json *plan);
/* Find the key files and the name. -ERR_INVALID: nothing matches a glob of key_files; -ERR_SYS.
 * Keep c alive as long as *ret_k. */
MUST_CHECK int ci_keep_name(const struct brood_json *plan, const struct template_info *t,
                            const struct checkout *c, const char *dir, struct ci_keep *ret_k,
                            struct err *err);
/* The job that sets up and keeps. object: the packed key files. */
MUST_CHECK int ci_keep_job(const struct brood_json *plan, const struct ci_keep *k,
                           const char *object, struct job_spec **ret_spec, struct err *err);
/* From now on the plan starts there, and has no setup. */
void ci_keep_use(const struct ci_keep *k, struct brood_json *plan);
