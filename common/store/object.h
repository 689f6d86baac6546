/* Objects: bytes kept under the SHA-256 of their content. The one way in and out of the store of
 * artifacts and snapshot layers.
 *
 * An object's name is the digest of its bytes, so a put can be repeated, two writers of one object
 * cannot disagree, and every whole read can be checked. Two drivers stand behind one table of
 * functions: a directory (the default, part of brood) and S3. Both use the same layout,
 * aa/bb/<digest>, where aa and bb are the first four hex digits. docs/objects.md has the details.
 *
 * Threads: one store may be used by any number of threads at the same time. Calls block; time-outs
 * come from the options. A process that uses it ignores SIGPIPE.
 *
 * Descriptors given to a call stay the caller's. Errors name the path, or bucket, key, HTTP status
 * and the server's code. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/err.h"

#define OBJECT_HEX 64               /* characters of a digest */
#define OBJECT_PATH 70              /* characters of "aa/bb/<digest>" */
#define OBJECT_LIST_MAX 1000        /* objects handed out by one object_list */
#define OBJECT_URL_MAX 4096         /* bytes of a pre-signed URL, NUL included */
#define OBJECT_PRESIGN_S_MAX 604800 /* longest life of a pre-signed URL (S3's limit, 7 days) */
#define OBJECT_RANGES_MAX 16        /* threads of object_get_parallel */
#define OBJECT_SIZE_MAX (5LL << 40) /* 5 TiB, S3's limit for one object */

/* A digest as text: 64 lower-case hex digits and NUL. */
struct object_id {
    char hex[OBJECT_HEX + 1];
};
/* -ERR_INVALID unless text is 64 lower-case hex digits. */
MUST_CHECK int object_id_parse(struct object_id *ret_id, const char *text, struct err *err);
/* "aa/bb/<digest>" */
void object_id_path(const struct object_id *id, char out[OBJECT_PATH + 1]);

enum object_driver { OBJECT_DIR, OBJECT_S3 };
enum object_s3_style { OBJECT_S3_PATH, OBJECT_S3_VIRTUAL };

struct object_s3_options {
    char endpoint[512]; /* http[s]://host[:port], no path */
    char region[64], bucket[64];
    char prefix[256]; /* before every key; "" or ends with '/'; [A-Za-z0-9._/-] only */
    char access_key[256], secret_key[256];
    char session_token[2048]; /* "" = none */
    enum object_s3_style style;
    int64_t part_bytes; /* multipart for bodies over this; 1 or more (S3 itself: 5 MiB or more) */
    int connect_timeout_ms, stall_timeout_s; /* stall: no byte moved for that long */
    int attempts_max;                        /* of one request, 1 or more */
    int64_t retry_base_ms, retry_max_ms;     /* back-off: 0 .. base * 2^n, at most max */
};
struct object_options {
    enum object_driver driver;
    char dir[512]; /* dir driver: root; S3: holds tmp/ for bodies that come from a pipe. Made when
                      missing (its parent must exist) */
    int64_t renew_after_s; /* a put that finds an object older than this makes it young again, so
                              that no sweep takes it before its row is written; 0: never */
    struct object_s3_options s3;
};
struct config;
/* The options that configuration and the standard AWS_* variables give (docs/objects.md: which
 * wins). -ERR_INVALID names the key that is missing or wrong. */
MUST_CHECK int object_options_from(struct object_options *ret_options, const struct config *c,
                                   struct err *err);

struct object_store;
/* Open. dir: makes root and tmp/, removes what killed writers left in tmp/. S3: nothing is sent; a
 * wrong key or an absent bucket shows with the first call. */
MUST_CHECK int object_store_open(struct object_store **ret_store,
                                 const struct object_options *options, struct err *err);
void object_store_free(struct object_store *s); /* NULL allowed; no call may be under way */
/* Nobody waits for it any more: requests under way, in other threads, end within about a second,
 * and further ones at once, with -ERR_STALE. (S3; a folder is not waited for.) */
void object_store_give_up(struct object_store *s);
/* "dir ROOT" or "s3 BUCKET/PREFIX at ENDPOINT", for messages. Lives as long as the store. */
const char *object_store_name(const struct object_store *s);

/* ---- put ---- */
struct object_put {
    int fd; /* read from its current position to the end, or to size_bytes. A regular file is read
               by position: its offset does not move */
    int64_t size_bytes;           /* exactly so many, else -ERR_INVALID; -1: not known */
    int64_t max_bytes;            /* -ERR_TOO_LARGE beyond; 0: OBJECT_SIZE_MAX */
    const struct object_id *want; /* NULL: not known. Other content is -ERR_CORRUPT, nothing is
                                     stored. When it is there already the fd may stay unread */
    struct object_id ret_id;      /* set on success */
    int64_t ret_size_bytes;
    bool ret_existed; /* it was there, nothing was copied */
};
/* Store; visible at once or not at all, durable when it returns. */
MUST_CHECK int object_put(struct object_store *s, struct object_put *put, struct err *err);
/* The same from memory. ret_id may be NULL. */
MUST_CHECK int object_put_bytes(struct object_store *s, const void *data, size_t n,
                                struct object_id *ret_id, struct err *err);

/* ---- get ---- */
/* Write the whole object to fd (file, pipe or socket) and check it on the way. The bytes are good
 * only when this returns 0; after an error a regular file is cut back to where it began. Returns 0;
 * -ERR_NOT_FOUND; -ERR_CORRUPT names the digest. ret_size_bytes may be NULL. */
MUST_CHECK int object_get(struct object_store *s, const struct object_id *id, int fd,
                          int64_t *ret_size_bytes, struct err *err);
/* Bytes offset .. offset + length of the object into the regular file fd at position fd_offset
 * (pwrite: several threads may fill one file). All of the range must exist: -ERR_INVALID otherwise.
 * A part cannot be checked by itself: object_verify when all are there. */
MUST_CHECK int object_get_range(struct object_store *s, const struct object_id *id, int64_t offset,
                                int64_t length, int fd, int64_t fd_offset, struct err *err);
/* The whole object into the regular file fd from position 0, as up to `ranges` ranges (1 ..
 * OBJECT_RANGES_MAX) of at least min_range_bytes fetched at the same time, then checked. After an
 * error the file is cut to 0. stop_fd (-1: none) readable ends it within a fraction of a second:
 * -ERR_STALE. */
MUST_CHECK int object_get_parallel(struct object_store *s, const struct object_id *id, int fd,
                                   int ranges, int64_t min_range_bytes, int stop_fd,
                                   int64_t *ret_size_bytes, struct err *err);
/* An fd to read (O_RDONLY, position 0). Local object: the object itself, no copy, checked only when
 * verify. S3: an unlinked temporary file, always checked. */
MUST_CHECK int object_open(struct object_store *s, const struct object_id *id, bool verify,
                           int *ret_fd, struct err *err);
/* Do the bytes of the regular file fd (all of it) have this digest? -ERR_CORRUPT names it. */
MUST_CHECK int object_verify(const struct object_id *id, int fd, struct err *err);

/* ---- the rest ---- */
/* Size in bytes; -ERR_NOT_FOUND. */
MUST_CHECK int object_size(struct object_store *s, const struct object_id *id,
                           int64_t *ret_size_bytes, struct err *err);
/* 1 there, 0 not. */
MUST_CHECK int object_exists(struct object_store *s, const struct object_id *id, struct err *err);
/* Gone afterwards; 0 also when it was not there. */
MUST_CHECK int object_delete(struct object_store *s, const struct object_id *id, struct err *err);
/* Delete what was last put before before_ms (UTC): 1; 0: it is younger, or not there. For what
 * nobody wants, by the rule of docs/objects.md ("Sweeping"). Directory: a put of the same object at
 * the same time comes either before, then it stays, or after. S3 has no such thing: its age is
 * asked for by the request before the deletion. */
MUST_CHECK int object_sweep(struct object_store *s, const struct object_id *id, int64_t before_ms,
                            struct err *err);

struct object_info {
    struct object_id id;
    int64_t size_bytes;
    int64_t modified_ms; /* UTC; -1 when the server's date was not understood */
};
/* Up to max (1 .. OBJECT_LIST_MAX) objects in order of their digests, those after *after (NULL:
 * from the first). Returns how many; fewer than max: that was the end. Names that are not objects
 * are passed over. */
MUST_CHECK int object_list(struct object_store *s, const struct object_id *after,
                           struct object_info *ret_rows, int max, struct err *err);
struct object_total {
    int64_t objects, bytes;
};
/* Count and add up all objects (reads the whole list). */
MUST_CHECK int object_total(struct object_store *s, struct object_total *ret_total,
                            struct err *err);
/* A URL that anybody may GET for expires_s seconds (1 .. OBJECT_PRESIGN_S_MAX) from now. Nothing is
 * sent. -ERR_UNSUPPORTED with the directory driver. */
MUST_CHECK int object_presign_get(struct object_store *s, const struct object_id *id, int expires_s,
                                  char out[OBJECT_URL_MAX], struct err *err);
