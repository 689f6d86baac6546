/* brood.json: how `brood ci` runs a project's tests, kept in the project. docs/ci.md,
 * schemas/json/brood.schema.json.
 *
 * Every field may be missing; the command line wins over the file, and the command says what is
 * missing in the end. Unknown fields are refused: a misspelt "shard" must not quietly mean one
 * shard. Limits and environment are checked here, so that an error names the field of this file,
 * and again as part of the job that is made of them. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"

#define BROOD_JSON_BYTES_MAX 65536u
#define BROOD_JSON_STEPS_MAX 16 /* lines of setup */
#define BROOD_JSON_LINE_BYTES_MAX 16384u
#define BROOD_JSON_ARGS_MAX 512 /* words of test */

struct string_list {
    char **items; /* n of them, and a NULL behind */
    int n;
};

struct brood_json {
    char *template_name;      /* NULL: not given */
    struct string_list setup; /* shell lines, one after the other */
    struct string_list test;  /* argv, or one shell line; n 0: not given */
    bool test_is_shell;
    unsigned shards; /* 0: not given, else 1 to SHARDS_MAX (common/report/shard.h) */
    /* globs (common/model/glob.h) */
    struct string_list artifacts, reports, key_files, include, test_files;
    json_t *env, *limits, *setup_limits; /* objects as a job has them; NULL: not given */
};

/* Read text[len]. *ret_b is set on success only. -ERR_INVALID names the field and the rule;
 * -ERR_TOO_LARGE past BROOD_JSON_BYTES_MAX. Thread-safe. */
MUST_CHECK int brood_json_parse(const char *text, size_t len, struct brood_json *ret_b,
                                struct err *err);
/* The file dir/brood.json. 1, or 0 when there is none (*ret_b is then empty). */
MUST_CHECK int brood_json_read(const char *dir, struct brood_json *ret_b, struct err *err);
void brood_json_done(struct brood_json *b);
static inline void cleanup_brood_json_fn(struct brood_json *b)
{
    brood_json_done(b);
}
#define cleanup_brood_json CLEANUP(cleanup_brood_json_fn)
