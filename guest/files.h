/* Job files: written below the work folder, for the job's user. One at a time; the host's path is
 * checked again and resolved by the kernel with RESOLVE_BENEATH and no symlinks, since an earlier
 * run may have laid any trap there. */
#pragma once
#include <stdint.h>
#include "schemas/proto/guest.pb.h"
#include "common/base/err.h"

struct job_file {
    int fd;        /* -1: what still arrives is dropped, the error has been told */
    uint64_t left; /* bytes still to come */
};

/* A file; a symbolic link, which must stay in the work folder and be the first of its name; or a
 * folder, also one that is there. -ERR_INVALID (path, mode, target), -ERR_TOO_LARGE (no space),
 * -ERR_SYS. `left` is set in every case: the data frames follow. */
MUST_CHECK int job_file_open(struct job_file *f, int work_fd, const guest_File *msg,
                             struct err *err);
/* More of it. -ERR_PROTOCOL when more than announced, -ERR_TOO_LARGE when the disk is full. Closes
 * at the end. */
MUST_CHECK int job_file_data(struct job_file *f, const uint8_t *data, size_t len, struct err *err);
void job_file_drop(struct job_file *f);
/* Remove everything in the folders that a job can write to; the folders stay. */
void files_wipe(void);
