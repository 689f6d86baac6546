/* A snapshot's memory and device state: in memfds while used, as sparse files on disk. These calls
 * read and write a hundred MiB and are made on a helper thread. */
#pragma once
#include <stdint.h>
#include "common/base/err.h"
#include "vmpool/manifest.h"

/* Fresh memfd of the size. */
MUST_CHECK int ram_memfd(const char *name, uint64_t bytes, int *ret_fd, struct err *err);
/* All n bytes of data, at an offset. */
MUST_CHECK int ram_write_at(int fd, const void *data, size_t n, uint64_t at, struct err *err);
/* Give back pages of zeros to the host (holes), then forbid every change: F_SEAL_WRITE, GROW,
 * SHRINK, SEAL. Nobody may hold a shared writable mapping any more. *ret_used: bytes that remain.
 */
MUST_CHECK int ram_seal(int fd, uint64_t bytes, uint64_t *ret_used, struct err *err);
/* The same seals without the holes, for device state; an empty file is -ERR_INTERNAL. */
MUST_CHECK int ram_seal_whole(int fd, struct err *err);

/* Write ram_fd and state_fd and the manifest (its sums are filled in) to a temporary folder beside
 * dir, fsync, and rename it to dir; an older dir is removed. Parent folders are made. */
MUST_CHECK int ram_store(const char *dir, int ram_fd, int state_fd, struct manifest *manifest,
                         struct err *err);
/* Read dir/manifest.json only. -ERR_NOT_FOUND, -ERR_INVALID. */
MUST_CHECK int ram_read_manifest(const char *dir, struct manifest *ret_manifest, struct err *err);
/* Read dir into two sealed memfds; sums that differ from the manifest's are -ERR_MISMATCH. */
MUST_CHECK int ram_load(const char *dir, const struct manifest *manifest, int *ret_ram_fd,
                        int *ret_state_fd, struct err *err);
