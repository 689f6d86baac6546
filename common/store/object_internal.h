/* Inside the object store: the table of functions that a driver fills, and what both drivers need
 * to move bytes. A driver embeds struct object_store as its first member. */
#pragma once
#define OPENSSL_SUPPRESS_DEPRECATED /* below */
#include <openssl/sha.h>
#include <sodium.h>
#include <stdatomic.h>
#include <sys/types.h>
#include "common/store/object.h"

#define OBJECT_CHUNK_BYTES (128 * 1024) /* one read or write */

struct object_ops {
    void (*free)(struct object_store *s);
    int (*put)(struct object_store *s, struct object_put *put, struct err *err);
    int (*get)(struct object_store *s, const struct object_id *id, int fd, int64_t *ret_size,
               struct err *err);
    /* stop_fd (-1: none) readable: -ERR_STALE, soon */
    int (*get_range)(struct object_store *s, const struct object_id *id, int64_t offset,
                     int64_t length, int fd, int64_t fd_offset, int stop_fd, struct err *err);
    /* NULL: objects are not local files */
    int (*open)(struct object_store *s, const struct object_id *id, int *ret_fd, struct err *err);
    int (*size)(struct object_store *s, const struct object_id *id, int stop_fd, int64_t *ret_size,
                struct err *err);
    int (*remove)(struct object_store *s, const struct object_id *id, struct err *err);
    int (*sweep)(struct object_store *s, const struct object_id *id, int64_t before_ms,
                 struct err *err);
    int (*list)(struct object_store *s, const struct object_id *after, struct object_info *rows,
                int max, struct err *err);
    /* NULL: there is nobody who would serve the URL */
    int (*presign)(struct object_store *s, const struct object_id *id, int expires_s,
                   char out[OBJECT_URL_MAX], struct err *err);
};

struct object_store {
    const struct object_ops *ops;
    char name[1024];
    int64_t renew_after_ms; /* 0: never */
    atomic_bool given_up;
    char tmp[600]; /* folder for temporary files, on the file system of the objects (dir driver) */
};

/* Last put at modified_ms (-1: not known, then no sweep takes it): must a put that finds it make it
 * young again? */
bool object_is_old(const struct object_store *s, int64_t modified_ms);

MUST_CHECK int object_dir_open(struct object_store **ret_store,
                               const struct object_options *options, struct err *err);
MUST_CHECK int object_s3_open(struct object_store **ret_store, const struct object_options *options,
                              struct err *err);

/* ---- digests (object.c) ---- */
/* SHA-256 by OpenSSL's libcrypto, which uses the processor's instructions for it: measured here,
 * 1243 MiB a second of CPU, libsodium 304. Its calls with a state on the stack are called
 * deprecated in favour of ones that allocate; they are the same code. */
struct object_hash {
    SHA256_CTX state;
};
static inline void object_hash_init(struct object_hash *h)
{
    (void)SHA256_Init(&h->state);
}
static inline void object_hash_add(struct object_hash *h, const void *data, size_t n)
{
    (void)SHA256_Update(&h->state, data, n);
}
/* Ends the hash. */
void object_id_from(struct object_id *ret_id, struct object_hash *h);
/* -ERR_CORRUPT: what is stored at `where` under the name id has the digest is. */
MUST_CHECK int object_corrupt(const struct object_id *id, const struct object_id *is,
                              const char *where, struct err *err);

/* ---- moving bytes (object_io.c) ---- */
/* Where a get writes to: fd at `at` by pwrite when it is a regular file, else plain write. */
struct object_sink {
    int fd;
    bool positioned;
    int64_t start, at; /* file positions; meaningless when not positioned */
};
/* From fd's current position. */
MUST_CHECK int object_sink_init(struct object_sink *k, int fd, struct err *err);
MUST_CHECK int object_sink_write(struct object_sink *k, const void *data, size_t n,
                                 struct err *err);
/* Keep what was written: the file's position moves behind it. */
MUST_CHECK int object_sink_keep(struct object_sink *k, struct err *err);
/* Take back what was written; bytes that went to a pipe are gone. */
void object_sink_undo(struct object_sink *k);

/* Where a put reads from. */
struct object_source {
    int fd;
    bool regular;
    int64_t start; /* regular: position of the first byte */
    int64_t size;  /* regular: bytes from start to the end; else -1 */
};
MUST_CHECK int object_source_init(struct object_source *src, const struct object_put *put,
                                  struct err *err);
/* Read n bytes or to the end: the count. at counts from the start, for regular files. */
ssize_t object_source_read(const struct object_source *src, int64_t at, void *data, size_t n);
/* Read all of the source, checking the put's size, maximum and wanted digest; write it to fd out
 * (named out_path in errors) unless that is -1. Sets ret_id and ret_size_bytes. */
MUST_CHECK int object_source_drain(const struct object_source *src, struct object_put *put, int out,
                                   const char *out_path, struct err *err);
MUST_CHECK int object_write_all(int fd, const void *data, size_t n);
/* Nobody waits for it any more: the store was given up, or stop_fd (-1: none) is readable. */
bool object_stopped(const struct object_store *s, int stop_fd);

/* ---- temporary files (object_tmp.c) ---- */
struct object_tmp {
    int fd;
    char path[700];
};
/* A new folder: what root makes in another user's is that user's; where the parent hands its group
 * down (setgid), the group may do in it what it may there. brood up's worker and scheduler are
 * users of their own and share the objects by that. */
void object_keep_owner(const char *path, const char *parent);
/* mkdir of dir and dir/tmp; sweeps dir/tmp. */
MUST_CHECK int object_tmp_prepare(struct object_store *s, const char *dir, struct err *err);
/* A new file in s->tmp, locked: a sweep takes away only files whose maker is gone. */
MUST_CHECK int object_tmp_new(struct object_store *s, struct object_tmp *ret_tmp, struct err *err);
/* Unlink (unless path is "") and close. */
void object_tmp_done(struct object_tmp *t);
