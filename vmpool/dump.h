/* A dump: the pages of a stopped machine's RAM that are of no file, read from outside.
 *
 * A machine that can be written out (FREEZE_WRITE) maps its RAM privately from files: its
 * snapshot's memfd, and over it the dumps of those it goes on from. What its guest has written is
 * what is anonymous in that mapping; /proc/PID/pagemap tells, and the pages are read from
 * /proc/PID/mem. The reader is vmpool, not QEMU: then the pages are charged to vmpool's cgroup and
 * not to the machine's slot, which another machine will have after it, and nothing of QEMU has to
 * be believed. What a machine in hostile hands puts there is no more than memory of its own.
 *
 * The file has the form of SEED_DUMP (seed_wire.h): each page at its own offset, then a bit a page.
 * These calls read a hundred MiB and are made on a helper thread. */
#pragma once
#include <stdint.h>
#include "common/base/err.h"
#include "vmpool/engine.h"

/* An empty dump for so much RAM; its size is sealed. */
MUST_CHECK int dump_new(uint64_t ram_bytes, int *ret_fd, struct err *err);
/* Fill it. files: those that RAM is mapped from, n of them; out_fd: of dump_new. *ret_bytes: of the
 * pages. -ERR_UNAVAILABLE when the process has ended, -ERR_INTERNAL when it maps no such RAM. */
MUST_CHECK int dump_read(const struct machine_look *look, const int *files, size_t n,
                         uint64_t ram_bytes, int out_fd, uint64_t *ret_bytes, struct err *err);
/* Forbid every change. -ERR_SYS while somebody can still write it. */
MUST_CHECK int dump_seal(int fd, struct err *err);
