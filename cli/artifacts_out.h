/* Artifacts written out: into a folder, or as one tar.zst.
 *
 * Theory: what is to be written is noted first, each under its path and, when several branches are
 * written at once, below a folder named like its branch; then sorted, so that folder and archive
 * get them in path_order. Names and targets are the job's and hostile. In a folder every part of a
 * path is resolved beneath it without symbolic links, so nothing that lies there already and no
 * link that was written before leads out; a link is made and never gone through. A file appears
 * under its name when it is whole and has its digest. What is listed but cannot be had (not stored,
 * gone from the store, damaged there) is told on stderr and counted; the others are written. */
#pragma once
#include "common/model/manifest.h"
#include "common/store/object.h"

struct artifacts_out;
struct artifacts_out_sum {
    int written, missing;
    int64_t bytes; /* of files written */
};

struct artifacts_out *artifacts_out_new(void);
void artifacts_out_free(struct artifacts_out *o); /* NULL allowed */
/* Note a (copied) below the folder named like the branch; "" for none. "." and ".." as names of a
 * branch become %2E and %2E%2E. -ERR_INVALID: a path that cannot be written. */
MUST_CHECK int artifacts_out_add(struct artifacts_out *o, const char *branch,
                                 const struct artifact *a, struct err *err);
/* Write all into the folder dir, which is made when only it is missing. What is there under the
 * same name is replaced, unless it is a folder. After an error what came before is there. */
MUST_CHECK int artifacts_out_dir(struct artifacts_out *o, struct object_store *objects,
                                 const char *dir, struct artifacts_out_sum *ret_sum,
                                 struct err *err);
/* As a tar.zst (common/archive/pack.h) to fd, the caller's. After an error it is of no use. */
MUST_CHECK int artifacts_out_tar(struct artifacts_out *o, struct object_store *objects, int fd,
                                 struct artifacts_out_sum *ret_sum, struct err *err);
/* The same to a new file of that name, which appears when it is whole and replaces another. */
MUST_CHECK int artifacts_out_tar_file(struct artifacts_out *o, struct object_store *objects,
                                      const char *path, struct artifacts_out_sum *ret_sum,
                                      struct err *err);
