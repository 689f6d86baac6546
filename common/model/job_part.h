/* The parts that job_parse is made of. Internal to common/model.
 *
 * `at` is the field as the user would write it ("files", "branches[2].files"); a NULL value reads
 * as the field's default. Every reader fills what it was given even when it fails half-way, and
 * job_spec_free releases it. */
#pragma once
#include "common/model/json_read.h"

/* out = at + "." + name; at "" is the job itself. */
void job_field(char out[JR_PATH_MAX], const char *at, const char *name);
/* calloc that never fails; n may be 0. */
void *job_new_array(size_t n, size_t size);
/* s holds only letters, digits, _ and characters of extra. */
bool job_word_chars(const char *s, const char *extra);

/* Read `limits` (v may be NULL: all defaults) into c's limits and explicit_limits. setup chooses
 * the column of defaults. */
MUST_CHECK int job_read_limits(const json_t *v, const char *at, bool setup, struct job_command *c,
                               struct err *err);
/* c's own limits over those that base set explicitly; what neither set is the default. */
void job_inherit_limits(struct job_command *c, const struct job_command *base);
/* Read a command, an argv list or a shell line, and append args (NULL: none). */
MUST_CHECK int job_read_command(const json_t *v, const char *at, const json_t *args,
                                const char *args_at, struct job_command *c, struct err *err);
/* Arguments alone; c gets an argv of them. */
MUST_CHECK int job_read_args(const json_t *v, const char *at, struct job_command *c,
                             struct err *err);
/* A command, or {"command", "limits"}; limits from setup's column. */
MUST_CHECK int job_read_step(const json_t *v, const char *at, struct job_command *c,
                             struct err *err);
/* One step as job_read_step, or a list of {"command", "limits"}. */
MUST_CHECK int job_read_steps(const json_t *v, const char *at, struct job_command **ret_steps,
                              int *ret_n, struct err *err);
/* total: bytes of all files of the job so far. */
MUST_CHECK int job_read_files(const json_t *v, const char *at, struct job_file **ret_files,
                              int *ret_n, size_t *total, struct err *err);
MUST_CHECK int job_read_archive(const json_t *v, const char *at, struct job_archive *a,
                                size_t *total, struct err *err);
MUST_CHECK int job_read_env(const json_t *v, const char *at, struct job_pair **ret_env, int *ret_n,
                            struct err *err);
MUST_CHECK int job_read_expect(const json_t *v, const char *at, struct job_expect *e,
                               bool *ret_given, struct err *err);
/* *ret_checker: NULL without v; filled also when it fails half-way. */
MUST_CHECK int job_read_checker(const json_t *v, const char *at, struct job_checker **ret_checker,
                                struct err *err);
MUST_CHECK int job_read_artifacts(const json_t *v, const char *at, char ***ret_globs, int *ret_n,
                                  struct err *err);
/* After env and branches, whose names must be others, and after keep and isolation. */
MUST_CHECK int job_read_secrets(const json_t *v, struct job_spec *spec, struct err *err);
void job_free_secrets(struct job_spec *spec);
/* root as text, compact ASCII with sorted keys. */
MUST_CHECK int job_set_canonical(const json_t *root, struct job_spec *spec, struct err *err);
/* priority, not_before, deadline, retries of the job root. */
MUST_CHECK int job_read_schedule(const json_t *root, struct job_spec *spec, struct err *err);
MUST_CHECK int job_read_keep(const json_t *v, const char *at, struct job_keep *k, struct err *err);

/* The branches or tests of obj, and theirs, into *ret_branches. depth: of obj. */
struct branch_totals {
    size_t file_bytes; /* of all files of the job */
    int nodes;         /* the job itself included */
};
MUST_CHECK int job_read_branches(const json_t *obj, const char *at, int depth,
                                 struct branch_totals *totals, struct job_branch **ret_branches,
                                 int *ret_n, struct err *err);
void job_free_branches(struct job_branch *branches, int n);
