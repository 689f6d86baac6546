/* The list of what a node's artifact patterns found: the manifest that is stored with its result.
 *
 * Every file that matched is listed, also one that was not stored; then `reason` says why. A
 * symbolic link is stored as a link (its target is here), never followed. Paths are bytes. Pure; a
 * list is owned by who made it. */
#pragma once
#include "common/model/job.h"

#define ARTIFACT_PATH_MAX 4096
#define ARTIFACT_REASON_MAX 160
#define SHA256_HEX 64

enum artifact_kind { ARTIFACT_KIND_FILE, ARTIFACT_KIND_LINK, ARTIFACT_KIND_OTHER };
const char *artifact_kind_word(enum artifact_kind k); /* "file", "link", "other" */
int artifact_kind_parse(const char *word);            /* -1: unknown */

struct artifact {
    struct bytes path;   /* relative to the work folder, clean; not NUL, need not be UTF-8 */
    struct bytes target; /* of a link */
    char sha256[SHA256_HEX + 1]; /* of the content; "" when not stored, or a link */
    int64_t size_bytes;
    uint32_t mode; /* permission bits */
    enum artifact_kind kind;
    bool stored; /* a file: its content is in the object store; a link: it is listed
                    whole */
    char reason[ARTIFACT_REASON_MAX]; /* why not stored; "" when it is */
};

struct artifact_list {
    struct artifact *items;
    int n, cap;
};
/* Append a copy of *a (its bytes too). -ERR_TOO_LARGE past JOB_NODE_ARTIFACTS_MAX, -ERR_INVALID for
 * a path that is empty, too long or holds NUL. */
MUST_CHECK int artifact_add(struct artifact_list *l, const struct artifact *a, struct err *err);
void artifact_list_done(struct artifact_list *l);
/* How much of it is stored. */
struct artifact_sums {
    int64_t listed, stored, stored_bytes;
};
void artifact_count(const struct artifact_list *l, struct artifact_sums *sums); /* adds to *sums */
