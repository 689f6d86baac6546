/* A job's archive as files for its sandbox.
 *
 * Theory: unpack.h decides what is refused (docs/artifacts.md, "Archives that are read"); here the
 * entries become the same struct job_file that a job's own files are, in the archive's order:
 * folders before what is in them where the archive has them, links with their targets, hard links
 * as copies that count like files. All of it is in memory until it is sent, so the maxima
 * (JOB_ARCHIVE_*) bound what one slot may hold; they are above what a sandbox's disk takes by
 * default. */
#pragma once
#include "common/model/job.h"
#include "common/store/object.h"
#include "worker/judge.h"

/* Unpack a (a->present) from its content or from objects (NULL: there is no store). The files are
 * the caller's: job_files_free. No file: NULL and 0. Errors of the user's (err_fault says so):
 * -ERR_INVALID, -ERR_TOO_LARGE name the entry and the rule. All others are ours or the store's:
 * -ERR_UNAVAILABLE (also: the object is not there now), -ERR_CORRUPT, -ERR_SYS, ..., with a text
 * that names paths or servers: not for the user. Blocking; any thread. */
MUST_CHECK int job_archive_files(const struct job_archive *a, struct object_store *objects,
                                 struct job_file **ret_files, int *ret_n, struct err *err);
void job_files_free(struct job_file *files, int n); /* NULL allowed */

/* An archive that was unpacked, or why it cannot be. */
struct job_unpacked {
    struct job_file *files;
    int n;
    char refused[RUN_REFUSED_MAX]; /* not empty: by the job's fault; then there are no files */
};
/* Empty again, and may be done again. */
void job_unpacked_done(struct job_unpacked *u);
