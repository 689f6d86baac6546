/* The parts of the S3 driver that only compute: part sizes, back-off, XML, signatures. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/store/object.h"

/* S3's limits (Amazon S3 User Guide, "Multipart upload limits"). */
#define S3_PARTS_MAX 10000
#define S3_PART_BYTES_MAX (5LL << 30) /* of one part, and of one PUT */

struct s3_plan {
    bool multipart;     /* false: one PUT */
    int64_t part_bytes; /* of every part but the last */
    int parts;          /* 1 .. S3_PARTS_MAX */
};
/* How a body of size_bytes is sent when parts shall have part_bytes (1 or more): one PUT up to
 * part_bytes; more parts than S3_PARTS_MAX never, the parts grow instead, to whole MiB.
 * -ERR_TOO_LARGE beyond OBJECT_SIZE_MAX. */
MUST_CHECK int s3_plan(int64_t size_bytes, int64_t part_bytes, struct s3_plan *ret_plan,
                       struct err *err);

/* Wait before attempt + 1 (attempt: 1 or more), ms: "full jitter", uniform in 0 .. min(max, base *
 * 2^(attempt-1)), chosen by random. */
int64_t s3_backoff_ms(int64_t base_ms, int64_t max_ms, int attempt, uint64_t random);
/* May the same request succeed later? 429 and 5xx but 501. */
bool s3_status_again(long status);

/* Text of the first element <tag> in xml[*pos .. n): entities decoded, white space around it taken
 * off, cut at room (NUL included). true when found; *pos is then behind it. Tolerant: attributes
 * and anything around are passed over, an element that does not end is not found. Nothing is
 * allocated and nothing is read twice. */
bool s3_xml_text(const char *xml, size_t n, size_t *pos, const char *tag, char *out, size_t room);
/* Where the content of the next element <tag> lies, itself XML. */
bool s3_xml_element(const char *xml, size_t n, size_t *pos, const char *tag, size_t *ret_at,
                    size_t *ret_len);
/* "2026-11-30T01:02:03.000Z" -> ms since 1970 (seconds only), -1 when it is not that. */
int64_t s3_time_ms(const char *text);

/* Percent-encode as SigV4 wants it (RFC 3986 unreserved characters stay; '/' too when keep_slash).
 * -ERR_TOO_LARGE when out[room] is too small. */
MUST_CHECK int s3_encode(const char *text, bool keep_slash, char *out, size_t room,
                         struct err *err);

struct s3_presign {
    const char *scheme; /* "https" */
    const char *host;   /* as the Host header has it: with the port unless it is the scheme's own */
    const char *path;   /* "/bucket/key", not encoded */
    const char *access_key, *secret_key, *session_token; /* token "" or NULL: none */
    const char *region;
    int64_t at_s; /* UTC */
    int expires_s;
};
/* Signature Version 4 in the query (Amazon S3 API reference, "Authenticating Requests: Using Query
 * Parameters"), method GET, only the host header signed. */
MUST_CHECK int s3_presign_get(const struct s3_presign *in, char out[OBJECT_URL_MAX],
                              struct err *err);
