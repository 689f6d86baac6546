#include "common/store/object_s3_pure.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB (1LL << 20)
#define XML_ENTITY_MAX 10 /* characters between & and ; that are looked at */

static_assert((OBJECT_SIZE_MAX + S3_PARTS_MAX - 1) / S3_PARTS_MAX < S3_PART_BYTES_MAX,
              "the largest object fits into the most parts of the largest size");

int s3_plan(int64_t size_bytes, int64_t part_bytes, struct s3_plan *ret_plan, struct err *err)
{
    assert(size_bytes >= 0 && part_bytes >= 1);
    if (size_bytes > OBJECT_SIZE_MAX) {
        return err_set(err, ERR_TOO_LARGE, "object of %" PRId64 " bytes; at most %lld", size_bytes,
                       OBJECT_SIZE_MAX);
    }
    int64_t part = part_bytes > S3_PART_BYTES_MAX ? S3_PART_BYTES_MAX : part_bytes;
    if (size_bytes > 0 && (size_bytes - 1) / part >= S3_PARTS_MAX) {
        part = (size_bytes + S3_PARTS_MAX - 1) / S3_PARTS_MAX;
        part = (part + MIB - 1) / MIB * MIB;
    }
    if (size_bytes <= part) {
        *ret_plan = (struct s3_plan){ .multipart = false, .part_bytes = size_bytes, .parts = 1 };
        return 0;
    }
    int64_t parts = (size_bytes + part - 1) / part;
    assert(parts >= 2 && parts <= S3_PARTS_MAX && part <= S3_PART_BYTES_MAX);
    *ret_plan = (struct s3_plan){ .multipart = true, .part_bytes = part, .parts = (int)parts };
    return 0;
}

int64_t s3_backoff_ms(int64_t base_ms, int64_t max_ms, int attempt, uint64_t random)
{
    assert(base_ms >= 0 && max_ms >= 0 && attempt >= 1);
    int64_t cap = base_ms;
    for (int i = 1; i < attempt && cap < max_ms; i++) {
        cap *= 2;
    }
    cap = cap > max_ms ? max_ms : cap;
    return (int64_t)(random % ((uint64_t)cap + 1));
}

bool s3_status_again(long status)
{
    return status == 429 || (status >= 500 && status <= 599 && status != 501);
}

/* ---- XML ---- */

/* Position of "<tag" + ('>' or space or '/') at or after at; n when there is none. */
static size_t find_open(const char *xml, size_t n, size_t at, const char *tag)
{
    size_t len = strlen(tag);
    while (at < n) {
        const char *lt = memchr(xml + at, '<', n - at);
        if (!lt) {
            return n;
        }
        size_t p = (size_t)(lt - xml);
        if (n - p > len + 1 && memcmp(lt + 1, tag, len) == 0 &&
            (lt[1 + len] == '>' || lt[1 + len] == '/' || isspace((unsigned char)lt[1 + len]))) {
            return p;
        }
        at = p + 1;
    }
    return n;
}

bool s3_xml_element(const char *xml, size_t n, size_t *pos, const char *tag, size_t *ret_at,
                    size_t *ret_len)
{
    size_t open = find_open(xml, n, *pos, tag);
    if (open == n) {
        return false;
    }
    const char *gt = memchr(xml + open, '>', n - open);
    if (!gt) {
        return false;
    }
    size_t start = (size_t)(gt - xml) + 1;
    if (gt[-1] == '/') { /* <tag/> */
        *pos = *ret_at = start;
        *ret_len = 0;
        return true;
    }
    char end[64];
    int len = snprintf(end, sizeof end, "</%s>", tag);
    assert(len > 0 && (size_t)len < sizeof end);
    const char *close = memmem(xml + start, n - start, end, (size_t)len);
    if (!close) {
        return false;
    }
    *ret_at = start;
    *ret_len = (size_t)(close - xml) - start;
    *pos = start + *ret_len + (size_t)len;
    return true;
}

/* One character of s[0..n), an entity decoded: it is put into *ret_c, its length returned. What is
 * not ASCII after decoding becomes '?': these texts are for messages, keys and numbers. */
static size_t decode(const char *s, size_t n, char *ret_c)
{
    static const struct {
        const char *name;
        char c;
    } named[] = {
        { "&lt;", '<' }, { "&gt;", '>' }, { "&amp;", '&' }, { "&quot;", '"' }, { "&apos;", '\'' }
    };
    *ret_c = s[0];
    if (s[0] != '&') {
        return 1;
    }
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        size_t len = strlen(named[i].name);
        if (n >= len && memcmp(s, named[i].name, len) == 0) {
            *ret_c = named[i].c;
            return len;
        }
    }
    const char *semi = memchr(s, ';', n < XML_ENTITY_MAX ? n : XML_ENTITY_MAX);
    if (!semi || s[1] != '#') {
        return 1;
    }
    char digits[XML_ENTITY_MAX + 1];
    size_t len = (size_t)(semi - s) - 2;
    memcpy(digits, s + 2, len);
    digits[len] = 0;
    bool hex = digits[0] == 'x' || digits[0] == 'X';
    char *end;
    unsigned long v = strtoul(hex ? digits + 1 : digits, &end, hex ? 16 : 10);
    if (*end || len == 0) {
        return 1;
    }
    *ret_c = v > 0 && v < 128 ? (char)v : '?';
    return len + 3;
}

bool s3_xml_text(const char *xml, size_t n, size_t *pos, const char *tag, char *out, size_t room)
{
    assert(room > 0);
    size_t at, len, used = 0;
    if (!s3_xml_element(xml, n, pos, tag, &at, &len)) {
        return false;
    }
    const char *s = xml + at;
    while (len > 0 && isspace((unsigned char)*s)) {
        s++;
        len--;
    }
    while (len > 0 && isspace((unsigned char)s[len - 1])) {
        len--;
    }
    while (len > 0 && used < room - 1) {
        char c;
        size_t step = decode(s, len, &c);
        out[used++] = c == 0 ? '?' : c;
        s += step;
        len -= step;
    }
    out[used] = 0;
    return true;
}

int64_t s3_time_ms(const char *text)
{
    struct tm tm = { 0 };
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!end || (*end != 'Z' && *end != '.')) {
        return -1;
    }
    return (int64_t)timegm(&tm) * 1000;
}
