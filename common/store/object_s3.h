/* Inside the S3 driver: the store, and one request over libcurl. */
#pragma once
#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include "common/base/buf.h"
#include "common/store/object_internal.h"
#include "common/store/object_s3_pure.h"

#define S3_IDLE_MAX 32        /* connections kept open between requests */
#define S3_TEXT_MAX (4 << 20) /* bytes of an answer that is text: 1000 keys are below 1 MiB */
#define S3_KEY_MAX 384        /* prefix and aa/bb/<digest> */
#define S3_QUERY_MAX 4096
#define S3_ETAG_MAX 128
/* Progress after which a broken download may use all its attempts again. */
#define S3_PROGRESS_BYTES (1 << 20)

/* The connection is kept in multi, which waits for stop_fd beside it. */
struct s3_handle {
    CURL *easy;
    CURLM *multi;
};

struct object_s3 {
    struct object_store base;
    struct object_s3_options o;
    char scheme[8], host[600]; /* host: as in the Host header */
    char base_path[80];        /* "" or "/bucket" */
    atomic_bool bucket_seen;   /* a request came back that only an existing bucket answers so */
    pthread_mutex_t lock;      /* guards idle */
    struct s3_handle idle[S3_IDLE_MAX];
    int n_idle;
};

struct s3_request {
    const char *method;
    const char *key;                 /* NULL: the bucket itself */
    const char *query;               /* encoded, names in order, each with "="; NULL: none */
    int body_fd;                     /* with body_bytes >= 0: the body, by pread */
    int64_t body_at, body_bytes;     /* body_bytes -1: no body from a file */
    const char *body_sha256;         /* of the body */
    const char *text;                /* body from memory, NULL: none */
    int64_t range_first, range_last; /* -1, -1: all; last -1: to the end */
    /* Called with the bytes of a 2xx answer; <0 ends the request with that. NULL: they go to
     * response.text. */
    int (*on_body)(void *ctx, const void *data, size_t n, struct err *err);
    void *ctx;
    int stop_fd; /* readable: the request ends with -ERR_STALE; -1: never */
};
#define S3_REQUEST(...)                                                                            \
    (struct s3_request)                                                                            \
    {                                                                                              \
        .body_fd = -1, .body_bytes = -1, .range_first = -1, .range_last = -1, .stop_fd = -1,       \
        __VA_ARGS__                                                                                \
    }

struct s3_response {
    long status;                 /* 0: none came */
    int64_t length_bytes;        /* Content-Length, -1 not said */
    int64_t range_first;         /* of Content-Range, -1 not said */
    int64_t modified_ms;         /* Last-Modified, UTC; -1 not said, or not understood */
    char etag[S3_ETAG_MAX];      /* with its quotes */
    char region[64];             /* x-amz-bucket-region */
    char code[64], message[200]; /* of an error document */
    struct buf text;
};
static inline void cleanup_s3_response_fn(struct s3_response *r)
{
    buf_done(&r->text);
}
#define cleanup_s3_response __attribute__((cleanup(cleanup_s3_response_fn)))
void s3_response_init(struct s3_response *r);
void s3_handle_done(struct s3_handle *h);

enum s3_outcome { S3_DONE, S3_AGAIN, S3_FINAL };
/* One attempt. err is filled unless S3_DONE; S3_AGAIN: another attempt may succeed. r is emptied
 * first. */
enum s3_outcome s3_try(struct object_s3 *s, const struct s3_request *q, struct s3_response *r,
                       struct err *err);
/* Another attempt? Counts *attempt (0 before the first) up and waits, no longer than until stop_fd
 * is readable; false when they are used up: err then says how many there were. */
bool s3_again(struct object_s3 *s, int stop_fd, int *attempt, struct err *err);
/* s3_try until it is done, final or out of attempts. */
MUST_CHECK int s3_send(struct object_s3 *s, const struct s3_request *q, struct s3_response *r,
                       struct err *err);
/* Fill err from a refused request. */
int s3_refused(struct object_s3 *s, const struct s3_request *q, const struct s3_response *r,
               struct err *err);

void s3_key(const struct object_s3 *s, const struct object_id *id, char out[S3_KEY_MAX]);
/* object_s3_put.c: the body at src (regular, size bytes) under the key of id. before: the source's
 * stat before its digest was made, so that a file which changes meanwhile is not completed in parts
 * (a single PUT carries the digest); NULL: nobody else has the file. */
struct stat;
MUST_CHECK int s3_upload(struct object_s3 *s, const struct object_source *src, int64_t size,
                         const struct object_id *id, const struct stat *before, struct err *err);
MUST_CHECK int s3_head(struct object_store *s, const struct object_id *id, int stop_fd,
                       int64_t *ret_size, struct err *err);
/* object_s3_get.c, object_s3_list.c: functions of the driver's table. */
MUST_CHECK int s3_get(struct object_store *s, const struct object_id *id, int fd, int64_t *ret_size,
                      struct err *err);
MUST_CHECK int s3_get_range(struct object_store *s, const struct object_id *id, int64_t offset,
                            int64_t length, int fd, int64_t fd_offset, int stop_fd,
                            struct err *err);
MUST_CHECK int s3_list(struct object_store *s, const struct object_id *after,
                       struct object_info *rows, int max, struct err *err);

static inline struct object_s3 *s3_of(struct object_store *s)
{
    return (struct object_s3 *)(void *)s;
}
