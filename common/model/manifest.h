/* The manifest of a job's artifacts: what was found, what of it is stored under which digest, and
 * what was not found.
 *
 * Theory: the worker fills it while the guest sends, the store keeps its JSON, the CLI reads it
 * back to write files. The files are in path_order without a path twice and without one below
 * another that is no folder, so that they can be written out one after the other. Content lies in
 * the object store under its SHA-256; a link is stored by standing here. Paths and targets are
 * bytes: in JSON a name that is not UTF-8 is path_base64. A target is whatever the job wrote and
 * may point anywhere: it is never followed. docs/artifacts.md is the contract. Pure. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/err.h"

#define MANIFEST_FILES_MAX 100000u
#define MANIFEST_JSON_BYTES_MAX (256u << 20)
#define MANIFEST_PATH_BYTES_MAX 1024u
#define MANIFEST_SHA256_HEX 64

enum artifact_type { ARTIFACT_FILE, ARTIFACT_LINK, ARTIFACT_OTHER, ARTIFACT_TYPES };

/* Why an artifact is listed and not stored. */
enum artifact_reason {
    ARTIFACT_OK,
    ARTIFACT_TOO_LARGE,  /* over the maximum of one file */
    ARTIFACT_TOTAL,      /* the maximum of all was reached before it */
    ARTIFACT_KIND,       /* device, fifo or socket */
    ARTIFACT_UNREADABLE, /* could not be opened, or lies on a file system of the job's own */
    ARTIFACT_TARGET,     /* link with a target that is too long */
    ARTIFACT_LOST,       /* the sandbox ended before all of it had come */
    ARTIFACT_STORE,      /* the object store did not take it */
    ARTIFACT_PENDING,    /* nor is it lost: it waits on the worker's disk for the store */
    ARTIFACT_REASONS
};

/* What happened to a file while it was read; its size is the one it had at the beginning. */
enum artifact_change {
    ARTIFACT_SAME,
    ARTIFACT_SHRANK, /* filled up with zeros */
    ARTIFACT_GREW,   /* cut */
    ARTIFACT_READ_ERROR,
    ARTIFACT_CHANGES
};

struct artifact {
    char *path; /* path_len bytes and NUL; owned */
    size_t path_len;
    char *target; /* of a link; owned, else NULL */
    size_t target_len;
    enum artifact_type type;
    unsigned mode; /* permission bits */
    uint64_t size; /* bytes; of files that are not stored, too */
    char
        sha256[MANIFEST_SHA256_HEX + 1]; /* lower-case hex; "" unless a file's content came whole */
    bool stored;
    enum artifact_reason reason;
    enum artifact_change change;
    uint64_t spool_offset; /* worker only: where the content lies in the spool; not in JSON */
};

struct manifest {
    struct artifact *files;
    size_t n, cap;
    char *unmatched; /* globs that matched nothing, each ended by NUL; owned */
    size_t unmatched_len;
    bool truncated;    /* not everything that matches is listed */
    uint32_t left_out; /* entries that could not be listed: too deep, path too long */
    uint64_t bytes_stored;
};

/* m must be zeroed before its first use. */
void manifest_done(struct manifest *m);
/* Append a copy of path (and target, when target_len > 0); the rest is zero. The pointer is good
 * until the next call. -ERR_INVALID: path not clean, too long, not in order, or below a file or
 * link; -ERR_TOO_LARGE: MANIFEST_FILES_MAX. */
MUST_CHECK int manifest_add(struct manifest *m, const char *path, size_t path_len,
                            const char *target, size_t target_len, struct artifact **ret_file,
                            struct err *err);
/* Compact ASCII JSON, sorted names: equal manifests have equal text. free(). */
char *manifest_json(const struct manifest *m);
/* Read it back, checking everything as if a stranger wrote it. Unknown names are ignored. */
MUST_CHECK int manifest_parse(const char *json, size_t len, struct manifest *ret_m,
                              struct err *err);
struct json_t;
/* One file as it stands in the manifest; new reference. */
struct json_t *artifact_to_json(const struct artifact *a);
const char *artifact_type_word(enum artifact_type t);
const char *artifact_reason_word(enum artifact_reason r); /* "" for ARTIFACT_OK */

static inline void cleanup_manifest_fn(struct manifest *m)
{
    manifest_done(m);
}
#define cleanup_manifest __attribute__((cleanup(cleanup_manifest_fn)))
