#include "common/model/json_read.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sodium.h>

void jr_printable(char out[JR_PATH_MAX], const char *src)
{
    size_t n = strlen(src);
    size_t keep = n < 64 ? n : 60;
    for (size_t i = 0; i < keep; i++) {
        unsigned char c = (unsigned char)src[i];
        out[i] = (char)(c < 0x20 || c >= 0x7f ? '?' : c);
    }
    memcpy(out + keep, keep < n ? "..." : "", keep < n ? 4 : 1);
}

bool jr_no_control(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        /* U+0080 to U+009F are C2 80 to C2 9F */
        bool c1 = c == 0xc2 && i + 1 < n && (unsigned char)s[i + 1] < 0xa0;
        if (c < 0x20 || c == 0x7f || c1) {
            return false;
        }
    }
    return true;
}

char *jr_dup(const char *s, size_t n)
{
    char *p = malloc(n + 1);
    if (!p) {
        abort();
    }
    if (n) {
        memcpy(p, s, n);
    }
    p[n] = 0;
    return p;
}

/* A small array or object costs the parser a hundred times its bytes, so count before it allocates.
 * Up to its first syntax error the text is cut into tokens here exactly as jansson cuts it, which
 * is all that is needed. */
static int check_size(const char *json, size_t len, struct err *err)
{
    if (len > JOB_JSON_MAX) {
        return err_set(err, ERR_TOO_LARGE, "job: %zu bytes of JSON; at most %u", len, JOB_JSON_MAX);
    }
    size_t values = 0;
    int depth = 0;
    for (size_t i = 0; i < len; i++) {
        switch (json[i]) {
        case '"':
            for (i++; i < len && json[i] != '"'; i++) {
                i += json[i] == '\\';
            }
            break;
        case '[':
        case '{':
            if (++depth > JOB_JSON_DEPTH_MAX) {
                return err_set(err, ERR_INVALID, "job: byte %zu: nested deeper than %d", i + 1,
                               JOB_JSON_DEPTH_MAX);
            }
            values++;
            break;
        case ']':
        case '}':
            depth--;
            break;
        case ',':
            values++;
            break;
        default:
            break;
        }
        if (values > JOB_JSON_VALUES_MAX) {
            return err_set(err, ERR_TOO_LARGE, "job: byte %zu: more than %d values", i + 1,
                           JOB_JSON_VALUES_MAX);
        }
    }
    return 0;
}

int jr_load(const char *json, size_t len, json_t **ret_root, struct err *err)
{
    int rc = check_size(json, len, err);
    if (rc < 0) {
        return rc;
    }
    json_error_t why;
    json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!root) {
        char text[sizeof why.text];
        size_t n = strnlen(why.text, sizeof why.text - 1);
        for (size_t i = 0; i < n; i++) {
            unsigned char c = (unsigned char)why.text[i];
            text[i] = (char)(c < 0x20 || c >= 0x7f ? '?' : c);
        }
        text[n] = 0;
        return err_set(err, ERR_INVALID, "not JSON: line %d, column %d: %s", why.line, why.column,
                       text);
    }
    *ret_root = root;
    return 0;
}

int jr_object(const json_t *v, const char *path, const char *const *known, struct err *err)
{
    if (!json_is_object(v)) {
        return err_set(err, ERR_INVALID, "%s: must be an object", *path ? path : "job");
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        int i = 0;
        while (known[i] && strcmp(known[i], key) != 0) {
            i++;
        }
        if (!known[i]) {
            char shown[JR_PATH_MAX], list[256] = "";
            jr_printable(shown, key);
            size_t used = 0;
            for (i = 0; known[i] && used < sizeof list - 1; i++) {
                int n = snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", known[i]);
                used += (size_t)n;
            }
            return err_set(err, ERR_INVALID, "%s%s%s: unknown field; known here: %s", path,
                           *path ? "." : "", shown, list);
        }
    }
    return 0;
}

int jr_string(const json_t *v, const char *path, size_t min_bytes, size_t max_bytes,
              enum jr_text kind, char **ret_text, struct err *err)
{
    if (!json_is_string(v)) {
        return err_set(err, ERR_INVALID, "%s: must be a string", path);
    }
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    if (n < min_bytes) {
        return err_set(err, ERR_INVALID, "%s: must not be empty", path);
    }
    if (n > max_bytes) {
        return err_set(err, ERR_TOO_LARGE, "%s: %zu bytes; at most %zu", path, n, max_bytes);
    }
    if (memchr(s, 0, n)) {
        return err_set(err, ERR_INVALID, "%s: must not hold a NUL character", path);
    }
    if (kind == JR_PRINTABLE && !jr_no_control(s, n)) {
        return err_set(err, ERR_INVALID, "%s: must not hold control characters", path);
    }
    *ret_text = jr_dup(s, n);
    return 0;
}

int jr_text_bytes(const json_t *v, const char *path, size_t max_bytes, struct bytes *ret_bytes,
                  struct err *err)
{
    if (!json_is_string(v)) {
        return err_set(err, ERR_INVALID, "%s: must be a string", path);
    }
    size_t n = json_string_length(v);
    if (n > max_bytes) {
        return err_set(err, ERR_TOO_LARGE, "%s: %zu bytes; at most %zu", path, n, max_bytes);
    }
    *ret_bytes = (struct bytes){ .data = jr_dup(json_string_value(v), n), .len = n };
    return 0;
}

int jr_base64_bytes(const json_t *v, const char *path, size_t max_bytes, struct bytes *ret_bytes,
                    struct err *err)
{
    if (!json_is_string(v)) {
        return err_set(err, ERR_INVALID, "%s: must be a string", path);
    }
    const char *s = json_string_value(v);
    size_t n = json_string_length(v), max = n / 4 * 3, got = 0;
    cleanup_free char *out = malloc(max + 1);
    if (!out) {
        abort();
    }
    if (n % 4 != 0 || sodium_base642bin((unsigned char *)out, max, s, n, NULL, &got, NULL,
                                        sodium_base64_VARIANT_ORIGINAL) != 0) {
        return err_set(err, ERR_INVALID,
                       "%s: must be base64 (A-Z a-z 0-9 + / with = padding, no spaces)", path);
    }
    if (got > max_bytes) {
        return err_set(err, ERR_TOO_LARGE, "%s: %zu bytes; at most %zu", path, got, max_bytes);
    }
    out[got] = 0;
    *ret_bytes = (struct bytes){ .data = TAKE_PTR(out), .len = got };
    return 0;
}

int jr_bytes(const json_t *v, const char *path, size_t max_bytes, struct bytes *ret_bytes,
             struct err *err)
{
    static const char *const known[] = { "base64", NULL };
    if (json_is_string(v)) {
        return jr_text_bytes(v, path, max_bytes, ret_bytes, err);
    }
    if (!json_is_object(v)) {
        return err_set(err, ERR_INVALID, "%s: must be a string or {\"base64\": \"...\"}", path);
    }
    int rc = jr_object(v, path, known, err);
    if (rc < 0) {
        return rc;
    }
    char sub[JR_PATH_MAX];
    (void)snprintf(sub, sizeof sub, "%s.base64", path);
    const json_t *b = json_object_get(v, "base64");
    if (!b) {
        return err_set(err, ERR_INVALID, "%s: missing", sub);
    }
    return jr_base64_bytes(b, sub, max_bytes, ret_bytes, err);
}

int jr_int(const json_t *v, const char *path, int64_t min, int64_t max, int64_t *ret_value,
           struct err *err)
{
    assert(min <= max);
    int64_t n = json_is_integer(v) ? (int64_t)json_integer_value(v) : 0;
    if (!json_is_integer(v) || n < min || n > max) {
        return err_set(err, ERR_INVALID, "%s: must be a whole number from %lld to %lld", path,
                       (long long)min, (long long)max);
    }
    *ret_value = n;
    return 0;
}

int jr_bool(const json_t *v, const char *path, bool *ret_value, struct err *err)
{
    if (!json_is_boolean(v)) {
        return err_set(err, ERR_INVALID, "%s: must be true or false", path);
    }
    *ret_value = json_is_true(v);
    return 0;
}

int jr_real(const json_t *v, const char *path, double max, double *ret_value, struct err *err)
{
    double d = json_is_number(v) ? json_number_value(v) : -1;
    if (!(d >= 0 && d <= max)) {
        return err_set(err, ERR_INVALID, "%s: must be a number from 0 to %g", path, max);
    }
    *ret_value = d;
    return 0;
}
