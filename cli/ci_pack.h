/* The checkout as one object: packed, stored once by its content. */
#pragma once
#include "cli/brood_json.h"
#include "cli/checkout.h"
#include "common/store/object.h"

#define CI_STALE_MAX 1000

struct ci_upload {
    struct object_id id;
    int64_t size_bytes;
    bool existed; /* it was there, nothing was copied */
};
/* Pack into an unlinked temporary file, then store. */
MUST_CHECK int ci_pack_upload(const struct checkout *c, const char *dir, struct object_store *store,
                              struct ci_upload *ret_upload, struct err *err);

/* Files of the checkout that look like reports (they match a glob of reports): a shard that does
 * not write its report would hand in these. So their digests are remembered, and an artifact that
 * has the same path and digest is not read. */
struct ci_stale {
    struct ci_stale_file {
        const char *path; /* the checkout's */
        char sha256[OBJECT_HEX + 1];
    } * files;
    size_t n;
};
MUST_CHECK int ci_stale_find(const struct checkout *c, const char *dir,
                             const struct string_list *reports, struct ci_stale *ret_stale,
                             struct err *err);
bool ci_stale_is(const struct ci_stale *s, const char *path, const char *sha256);
void ci_stale_done(struct ci_stale *s);
/* SHA-256 of a regular file, as hex. */
MUST_CHECK int ci_file_digest(int dir_fd, const char *path, char hex[OBJECT_HEX + 1],
                              struct err *err);
/* One of the globs matches path[n]. */
bool ci_globs_match(const struct string_list *globs, const char *path, size_t n);
