/* The spool: ends of attempts on the local disk while Postgres is away.
 *
 * Theory: one append-only file of records for a worker. A record is a head (magic, length, number)
 * with a digest over head and payload, then the payload. An append writes all its records and
 * returns after fsync, so what was appended survives kill -9 and a power cut. Records are read in
 * their order; when the last one was consumed the file is cut to nothing. Consuming is not written
 * down: after a crash the records are committed again, which the guard in Postgres makes a no-op. A
 * tail that is torn (the crash came in the middle of an append, which then had not returned) is
 * cut off when the file is opened.
 *
 * Files are DIR/results.0, .1 ..; a worker locks the first that is free, and takes over what is in
 * others whose worker is gone. One thread at a time. docs/reliability.md. */
#pragma once
#include <stdint.h>
#include "common/base/buf.h"

#define SPOOL_RECORD_MAX (256u << 20) /* bytes of a payload */
#define SPOOL_RECORDS_MAX 4096        /* not consumed; the file may have more */
#define SPOOL_FILES_MAX 64

struct spool;

/* dir is made when it is missing (its parent must exist). bytes_max: of the file. Logs what it
 * found. -ERR_SYS; -ERR_LIMIT: SPOOL_FILES_MAX workers use this folder. */
MUST_CHECK int spool_open(struct spool **ret_spool, const char *dir, int64_t bytes_max,
                          struct err *err);
void spool_close(struct spool *s); /* NULL allowed */

/* Records not consumed yet, those of before that are beyond SPOOL_RECORDS_MAX not counted; bytes of
 * the file. */
int spool_count(const struct spool *s);
int64_t spool_bytes(const struct spool *s);
/* Append n payloads: all of them durable when it returns 0, else none is there. -ERR_NO_CAPACITY:
 * bytes_max or SPOOL_RECORDS_MAX would be passed; -ERR_SYS: the disk is full, or worse. */
MUST_CHECK int spool_append(struct spool *s, const struct buf *payloads, int n, struct err *err);
/* Payload of the index-th record not consumed (0: the oldest) into out, which is emptied first.
 * -ERR_CORRUPT: the disk does not give back what was written. */
MUST_CHECK int spool_read(struct spool *s, int index, struct buf *out, struct err *err);
/* The n oldest are done with. The count may be larger by records of before, which come last. */
void spool_consume(struct spool *s, int n);
