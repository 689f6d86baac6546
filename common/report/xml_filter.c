/* One pass that finds what XML 1.0 forbids. A character reference is only one outside CDATA and
 * comments, so the pass follows those two. */
#include "common/report/xml_filter.h"

#include <assert.h>
#include <string.h>

#define DECLARATION_BYTES_MAX 256u
#define REFERENCE_DIGITS_MAX 12u

static bool at(const char *data, size_t len, size_t i, const char *word)
{
    size_t n = strlen(word);
    return len - i >= n && memcmp(data + i, word, n) == 0;
}

enum xml_encoding xml_encoding_of(const char *data, size_t len)
{
    if (at(data, len, 0, "\xff\xfe") || at(data, len, 0, "\xfe\xff")) {
        return XML_WIDE;
    }
    struct report_slice head = { data, len < DECLARATION_BYTES_MAX ? len : DECLARATION_BYTES_MAX };
    if (head.n < 6 || !slice_starts(head, "<?xml")) {
        return XML_UTF8;
    }
    const char *end = memmem(head.s, head.n, "?>", 2);
    const char *said = end ? memmem(head.s, (size_t)(end - head.s), "encoding", 8) : NULL;
    if (!said) {
        return XML_UTF8;
    }
    struct report_slice value = { said + 8, (size_t)(end - said) - 8 };
    while (value.n && strchr(" \t\r\n=\"'", value.s[0] ? value.s[0] : 'x')) {
        value.s++;
        value.n--;
    }
    bool utf8 = slice_starts(value, "utf-8") || slice_starts(value, "utf8") ||
                slice_starts(value, "us-ascii") || slice_starts(value, "ascii");
    return utf8 ? XML_UTF8 : XML_BYTES;
}

/* Length of a reference "&#...;" to a character that XML forbids; 0 when there is none at data + i.
 */
static size_t bad_reference(const char *data, size_t len, size_t i)
{
    size_t from = i + 2, base = 10;
    if (!at(data, len, i, "&#")) {
        return 0;
    }
    if (from < len && data[from] == 'x') {
        base = 16;
        from++;
    }
    uint64_t code = 0;
    size_t k = from;
    for (; k < len && k - from < REFERENCE_DIGITS_MAX; k++) {
        char c = data[k];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                                : 99;
        if (digit >= base) {
            break;
        }
        code = code * base + digit;
    }
    if (k == from || k >= len || data[k] != ';') {
        return 0;
    }
    return code <= 0x10ffff && report_xml_char((uint32_t)code) ? 0 : k + 1 - i;
}

/* Bytes to be replaced at data + i, or 0; *ret_step is what to go on by when nothing is replaced.
 */
static size_t bad_bytes(enum xml_encoding encoding, const char *data, size_t len, size_t i,
                        size_t *ret_step)
{
    unsigned char c = (unsigned char)data[i];
    *ret_step = 1;
    if (c < 0x80 || encoding == XML_BYTES) {
        return c < 0x80 && !report_xml_char(c) ? 1 : 0;
    }
    uint32_t code;
    size_t n = report_utf8(data + i, len - i, &code);
    if (n == 0) {
        return 1;
    }
    *ret_step = n;
    return report_xml_char(code) ? 0 : n;
}

void xml_filter(enum xml_encoding encoding, const char *data, size_t len, struct buf *out,
                const char **ret_data, size_t *ret_len)
{
    assert(out->len == 0 && out->max >= 3 * len);
    const char *replacement = encoding == XML_BYTES ? "?" : "\xef\xbf\xbd";
    const char *until = NULL; /* the end of the CDATA section or comment we are in */
    size_t kept = 0;          /* up to here it is in out */
    for (size_t i = 0; encoding != XML_WIDE && i < len;) {
        size_t step, bad = bad_bytes(encoding, data, len, i, &step);
        if (bad == 0 && until && at(data, len, i, until)) {
            until = NULL;
        } else if (bad == 0 && !until && data[i] == '<') {
            until = at(data, len, i, "<![CDATA[") ? "]]>" : at(data, len, i, "<!--") ? "-->" : NULL;
        } else if (bad == 0 && !until && data[i] == '&') {
            bad = bad_reference(data, len, i);
        }
        if (bad) {
            int rc = buf_add(out, data + kept, i - kept, NULL);
            rc = rc < 0 ? rc : buf_add_str(out, replacement, NULL);
            assert(rc == 0);
            kept = i + bad;
        }
        i += bad ? bad : step;
    }
    if (kept == 0) {
        *ret_data = data;
        *ret_len = len;
        return;
    }
    int rc = buf_add(out, data + kept, len - kept, NULL);
    assert(rc == 0);
    *ret_data = out->data;
    *ret_len = out->len;
}
