/* Artifacts of a run: asked of the guest, received, hashed, and given to the store.
 *
 * Theory: two steps, so that the sandbox is not held (and billed) while a store is slow. First
 * artifacts_receive sends Collect and takes what comes into one unlinked spool file, hashing on the
 * way; memory holds one frame and the manifest. Then, with the sandbox gone, artifacts_store hands
 * each content to the caller's put. Everything the guest says is hostile: a path that is not clean,
 * out of order, twice, below a file or matched by no glob; more files or bytes than asked; data
 * that is too long or too short; any other frame: -ERR_PROTOCOL. What had come whole by then stays
 * in the manifest, so an unlucky sandbox loses the rest of its artifacts and not the result.
 * docs/artifacts.md is the contract. Thread: the caller's, one at a time per set. */
#pragma once
#include "common/model/glob.h"
#include "common/model/manifest.h"
#include "common/wire/frame.h"
#include "worker/outq.h"

struct artifact_limits {
    uint32_t files_max;       /* listed, at most MANIFEST_FILES_MAX */
    uint64_t file_bytes_max;  /* of one; larger ones are listed and not stored */
    uint64_t total_bytes_max; /* of all that is stored */
};
#define ARTIFACT_FILES_DEFAULT 10000u
#define ARTIFACT_FILE_BYTES_DEFAULT (256ull << 20)
#define ARTIFACT_TOTAL_BYTES_DEFAULT (1024ull << 20)
#define ARTIFACT_TIMEOUT_MS_DEFAULT 120000
#define ARTIFACT_IDLE_MS_DEFAULT 30000

struct artifacts_job {
    int channel_fd;
    int abort_fd; /* readable: end at once with -ERR_STALE; -1: never */
    /* The session's: stdin that a run did not read may still be half sent, and bytes received. What
     * outq points at must still be there. */
    struct frame_parser *parser;
    struct outq *out;
    uint32_t run;      /* number of the run, whose Exit has come */
    const char *globs; /* each ended by NUL; globs_check has accepted them */
    size_t globs_len;
    struct artifact_limits limits;
    int64_t timeout_ms;    /* for all of it */
    int64_t idle_ms;       /* without a byte; 0: as long as timeout_ms */
    const char *spool_dir; /* folder of a local file system; the file in it has no name */
};

struct artifact_set {
    struct manifest manifest;
    int spool_fd; /* -1: nothing was spooled */
};

/* Zeroed but for the fd; done gives everything back. */
void artifacts_init(struct artifact_set *set);
void artifacts_done(struct artifact_set *set);

/* Ask and receive; set must be fresh. In every case set->manifest is whole and can be stored: after
 * an error it holds what had come, `truncated`, and a file that was under way as ARTIFACT_LOST.
 * Content is not stored yet (stored is false, reason ARTIFACT_OK). -ERR_PROTOCOL, -ERR_CLOSED,
 * -ERR_TIMEOUT, -ERR_STALE, -ERR_SYS (spool). After an error the channel is of no further use. */
MUST_CHECK int artifacts_receive(const struct artifacts_job *job, struct artifact_set *set,
                                 struct err *err);

struct artifact_object {
    const char *sha256; /* 64 hex digits of the content */
    int fd;             /* regular file, positioned at the content's first byte; the set's */
    uint64_t size;      /* bytes from there */
};
/* 0, or -ERR_X with err filled. May be called with the same content more than once. */
typedef int (*artifact_put)(void *arg, const struct artifact_object *object, struct err *err);
/* Put every content that is not stored yet and mark it. At the first error the rest is marked
 * ARTIFACT_STORE and the error returned; another call tries those again. */
MUST_CHECK int artifacts_store(struct artifact_set *set, artifact_put put, void *arg,
                               struct err *err);
/* Hand over what no store took (ARTIFACT_STORE) to hold, which keeps it for later: ARTIFACT_PENDING
 * then. Ends at the first error. */
MUST_CHECK int artifacts_hold(struct artifact_set *set, artifact_put hold, void *arg,
                              struct err *err);
