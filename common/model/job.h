/* The job as brood understands it: parsed and validated once (job_parse), immutable afterwards.
 *
 * JSON form: schemas/json/job.schema.json, docs/jobs.md. Every string that can hold program bytes
 * is a `struct bytes` (may contain NUL, need not be UTF-8). A refused job's error names the field
 * (JSON path) and the rule it broke. Ownership: job_spec owns everything below it; job_spec_free
 * releases it. Pure: no clock, no I/O. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/buf.h"
#include "common/base/err.h"

#define JOB_JSON_MAX (24u << 20)   /* bytes of one job's JSON */
#define JOB_JSON_DEPTH_MAX 24      /* nested arrays and objects: two a level of branches */
#define JOB_JSON_VALUES_MAX 131072 /* values in all; bounds what the parser allocates */
#define JOB_FILES_MAX 256
#define JOB_FILE_BYTES_MAX (16u << 20)  /* one file */
#define JOB_FILES_BYTES_MAX (16u << 20) /* all files of a job */
#define JOB_STDIN_BYTES_MAX (16u << 20)
#define JOB_EXPECT_BYTES_MAX (16u << 20)
#define JOB_ARGS_MAX 512
#define JOB_ARGV_BYTES_MAX 36000 /* of argv and args, NULs included */
#define JOB_ENV_MAX 128
#define JOB_ENV_BYTES_MAX 16000
#define JOB_SECRETS_MAX 32
#define JOB_SECRETS_BYTES_MAX 3500 /* names and values; with env they fit one Run */
#define JOB_LABELS_MAX 32
#define JOB_LABEL_KEY_MAX 64    /* bytes */
#define JOB_LABEL_VALUE_MAX 256 /* bytes */
#define JOB_NAME_MAX 128
#define JOB_KEY_MAX 128 /* idempotency key */
#define JOB_PATH_MAX 400
#define JOB_ARCHIVE_ENTRIES_MAX 50000u          /* with the folders that paths imply */
#define JOB_ARCHIVE_BYTES_MAX (256ull << 20)    /* of all files, unpacked; also of one */
#define JOB_ARCHIVE_PATH_BYTES_MAX JOB_PATH_MAX /* of a path, and of a link's target */
#define JOB_TEMPLATE_MAX 96
#define JOB_TENANT_MAX 64

/* The maxima of limits.def: JOB_TREE_DEPTH_MAX and so on. */
enum job_max {
#define JOB_MAX(name, value, help) JOB_##name##_MAX = (value),
#include "common/model/limits.def"
};
#define JOB_KEEP_TTL_S_DEFAULT 604800 /* a week */
#define JOB_KEEP_TTL_S_MIN 60
#define SNAPSHOT_TEMPLATE_PREFIX "snapshot:" /* of job_spec.template_name */

struct bytes {
    char *data; /* NUL-terminated behind len for convenience; NULL only when len is 0 */
    size_t len;
};

enum verdict {
#define VERDICT_DEF(name, word, billed, passed) VERDICT_##name,
#include "common/model/verdict.def"
#undef VERDICT_DEF
    VERDICT_COUNT
};
const char *verdict_word(enum verdict v);
/* -1 for an unknown word. */
int verdict_parse(const char *word);
bool verdict_billed(enum verdict v);

enum job_state {
#define JOB_STATE(name, word, terminal) STATE_##name,
#include "common/model/state.def"
#undef JOB_STATE
    STATE_COUNT
};
const char *job_state_word(enum job_state s);
int job_state_parse(const char *word);
bool job_state_terminal(enum job_state s);

/* Order inside a tenant's own share. In the database: its number. */
enum job_priority { PRIORITY_HIGH, PRIORITY_NORMAL, PRIORITY_BULK, PRIORITY_COUNT };
const char *job_priority_word(enum job_priority p); /* "high", "normal", "bulk" */
/* -1 for an unknown word. */
int job_priority_parse(const char *word);

struct job_limits {
#define JOB_LIMIT(field, json, def, setup_def, min, max, help) int64_t field;
#include "common/model/limits.def"
#undef JOB_LIMIT
};

/* Bit numbers of job_command.explicit_limits, in the table's order. */
enum job_limit_bit {
#define JOB_LIMIT(field, json, def, setup_def, min, max, help) LIMIT_##field,
#include "common/model/limits.def"
#undef JOB_LIMIT
    LIMIT_COUNT
};

struct job_file {
    char *path; /* relative, clean, UTF-8 */
    struct bytes content;
    uint32_t mode; /* permission bits */
    /* Only of an archive's entries, whose paths are bytes and need not be UTF-8: */
    char *target; /* of a symbolic link, which stays in the work folder; else NULL */
    bool folder;
};

struct job_command {
    char **argv; /* argc strings and a NULL; a shell line becomes {"/bin/sh","-c",line,"sh"} */
    int argc;    /* 0: absent */
    struct job_limits limits;
    uint32_t explicit_limits; /* bit LIMIT_x set: the job itself gave that limit (else it is a
                                 default) */
};

enum compare_mode {
    COMPARE_EXACT,
    COMPARE_TRIM,
    COMPARE_TOKENS,
    COMPARE_FLOAT,
    COMPARE_UNORDERED,
    COMPARE_COUNT
};
const char *compare_word(enum compare_mode m);

/* A program of the submitter's that judges the output: in a machine of its own, after the run's is
 * gone (docs/verdicts.md, "Checkers"). */
enum checker_protocol { CHECKER_KATTIS, CHECKER_TESTLIB };
const char *checker_protocol_word(enum checker_protocol p); /* "kattis", "testlib" */
/* In its work folder: what it reads, and a folder that it may write into. */
#define CHECKER_INPUT "input"
#define CHECKER_OUTPUT "output"
#define CHECKER_ANSWER "answer"
#define CHECKER_FEEDBACK "feedback"

struct job_checker {
    enum checker_protocol protocol;
    char *template_name; /* NULL: the job's */
    struct job_file *files;
    int n_files;
    struct job_command *steps; /* set-up: n_steps */
    int n_steps;
    struct job_command command; /* with the protocol's arguments */
};

struct job_expect {
    int exit_code; /* default 0 */
    bool has_stdout;
    struct bytes text; /* expected stdout */
    enum compare_mode compare;
    double tolerance_abs, tolerance_rel; /* COMPARE_FLOAT: equal if either holds */
    struct job_checker *checker;         /* or NULL; then text is its answer file */
};

struct job_pair {
    char *key, *value;
};

/* The state of a node, kept as a snapshot of the tenant. An inner node's is taken after its setup
 * (where its branches start), a leaf's after its command, when that was accepted. */
struct job_keep {
    char *name;    /* NULL: not kept */
    int64_t ttl_s; /* 0 when pin */
    bool pin;      /* no expiry, never evicted */
};

enum archive_format { ARCHIVE_TAR, ARCHIVE_TAR_GZ, ARCHIVE_TAR_ZST, ARCHIVE_ZIP };
const char *archive_word(enum archive_format f); /* "tar", "tar.gz", "tar.zst", "zip" */

/* Files as an archive: inline, or by the content's SHA-256 in the object store. */
struct job_archive {
    bool present;
    enum archive_format format;
    struct bytes content; /* inline; len 0 when object is set */
    char object[65];      /* 64 lower-case hex digits, or "" */
};

enum job_stop { JOB_STOP_ALL, JOB_STOP_FIRST_FAILURE };
const char *job_stop_word(enum job_stop s); /* "all", "first_failure" */
enum job_isolation { ISOLATION_VM, ISOLATION_SHARED };
const char *job_isolation_word(enum job_isolation i); /* "vm", "shared" */

/* A branch (or test) as the job gives it: nothing inherited is filled in. Whoever runs it reads
 * struct tree_node (common/model/tree.h) instead. */
struct job_branch {
    char *name; /* NULL: its number among its siblings */
    struct job_file *files;
    int n_files;
    struct job_pair *env;
    int n_env;
    struct job_command *steps; /* setup, in order */
    int n_steps;
    struct job_command command; /* argc 0: inherited. limits: only those of explicit_limits count */
    struct job_command args;    /* only argv: appended to an inherited command */
    bool has_stdin, has_expect, has_artifacts, is_test;
    struct bytes stdin_data;
    struct job_expect expect;
    char **artifacts;
    int n_artifacts;
    struct job_keep keep;
    int64_t weight; /* -1: not given */
    struct job_branch *branches;
    int n_branches;
};

struct tree;

struct job_spec {
    char *template_name;   /* "python" or "python@digest" */
    char *name;            /* display name or NULL */
    char *idempotency_key; /* or NULL */
    struct job_file *files;
    int n_files;
    struct job_archive archive;
    struct job_command *steps; /* setup: n_steps commands, one after the other */
    int n_steps;
    struct job_command setup; /* the first step again, not owned; argc 0: none */
    struct job_command
        command; /* args already appended; argc 0: none (only with branches or keep) */
    struct job_command on_fork; /* run first in each fork; argc 0: none */
    struct bytes stdin_data;
    struct job_pair *env;
    int n_env;
    struct job_pair *secrets; /* variables like env's; see secrets.h */
    int n_secrets;
    bool secrets_sealed; /* their values are, as in the canonical form; a worker opens them */
    struct job_pair *labels;
    int n_labels;
    struct job_expect expect;
    bool has_expect; /* false: only "exit code 0" counts as accepted */
    bool stream;     /* output is published while it runs (brood run) */
    struct job_branch *branches;
    int n_branches; /* 0: a plain job */
    int parallel;   /* 1..JOB_PARALLEL_MAX */
    enum job_priority priority;
    int64_t not_before_ms; /* UTC; not dispatched earlier; 0: at once */
    int64_t deadline_ms;   /* UTC; not dispatched by then: expired; 0: none */
    int retries; /* 0..JOB_RETRIES_MAX: further tries while the verdict is the program's and not
                    accepted */
    enum job_stop stop;
    enum job_isolation isolation;
    struct job_keep keep;
    char **artifacts;
    int n_artifacts;
    struct tree *tree; /* the job as nodes, nodes[0] the job itself; never NULL after job_parse */
    char *canonical;   /* compact ASCII JSON with sorted keys: what is stored and hashed */
    size_t canonical_len;
};

/* Parse and validate one job. json need not be NUL-terminated. -ERR_INVALID / -ERR_TOO_LARGE, text
 * "field: rule". */
MUST_CHECK int job_parse(const char *json, size_t len, struct job_spec **ret_spec, struct err *err);
void job_spec_free(struct job_spec *spec);
static inline void cleanup_job_spec_fn(struct job_spec **s)
{
    job_spec_free(*s);
}
#define cleanup_job_spec __attribute__((cleanup(cleanup_job_spec_fn)))

/* What is known of a template, for validation and billing. */
struct template_info {
    char name[JOB_TEMPLATE_MAX + 1];
    char digest[72];
    int memory_mib, vcpus;
};
/* The rules that need the template: an explicit memory limit, of command or setup, is at most the
 * template's RAM less TEMPLATE_MEMORY_RESERVE_MIB (-ERR_INVALID names the field). A default above
 * that is no error: see job_clamp_to_template. */
MUST_CHECK int job_check_template(const struct job_spec *spec, const struct template_info *t,
                                  struct err *err);
/* Lower the memory limits, of command and setup, to what t has. Call after job_check_template,
 * before the run. */
void job_clamp_to_template(struct job_spec *spec, const struct template_info *t);
#define TEMPLATE_MEMORY_RESERVE_MIB 96 /* the guest's kernel, agent and warm interpreter */

/* A template's name, without snapshot: or @digest. */
bool job_template_ok(const char *name);
/* The name behind "snapshot:" of the job's template; NULL when it is a template. */
const char *job_snapshot_name(const struct job_spec *spec);
bool snapshot_name_ok(const char *name); /* [A-Za-z0-9_][A-Za-z0-9_.-]{0,63} */

/* Shared rules, used by host and guest side tests. true when path is relative, clean, no "..", no
 * empty or "." part. */
bool job_path_ok(const char *path);
#define JOB_PATH_PART_MAX 255 /* bytes between two slashes (NAME_MAX) */
/* "2026-11-30T08:00:00Z", also with three digits of a second: UTC milliseconds since 1970. */
bool job_time_parse(const char *text, int64_t *ret_ms);
bool job_tenant_ok(const char *tenant); /* [a-z0-9][a-z0-9_-]{0,63} */
/* 32-byte BLAKE2b of canonical, for "same key, same content". */
void job_spec_hash(const struct job_spec *spec, uint8_t out[32]);
