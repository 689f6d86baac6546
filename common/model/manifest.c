#include "common/model/manifest.h"

#include <assert.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/path.h"
#include "common/model/json_read.h"
#include "common/model/result.h"

#define VERSION 1

static const char *const type_words[ARTIFACT_TYPES] = { "file", "link", "other" };
static const char *const reason_words[ARTIFACT_REASONS] = {
    "",     "too_large", "total_too_large", "not_a_file", "unreadable", "target_too_long",
    "lost", "store",     "pending"
};
static const char *const change_words[ARTIFACT_CHANGES] = { "", "shrank", "grew", "read_error" };

const char *artifact_type_word(enum artifact_type t)
{
    assert(t < ARTIFACT_TYPES);
    return type_words[t];
}

const char *artifact_reason_word(enum artifact_reason r)
{
    assert(r < ARTIFACT_REASONS);
    return reason_words[r];
}

void manifest_done(struct manifest *m)
{
    for (size_t i = 0; i < m->n; i++) {
        free(m->files[i].path);
        free(m->files[i].target);
    }
    free(m->files);
    free(m->unmatched);
    *m = (struct manifest){ 0 };
}

int manifest_add(struct manifest *m, const char *path, size_t path_len, const char *target,
                 size_t target_len, struct artifact **ret_file, struct err *err)
{
    if (path_len > MANIFEST_PATH_BYTES_MAX || target_len > MANIFEST_PATH_BYTES_MAX) {
        return err_set(err, ERR_INVALID, "path: must be at most %u bytes", MANIFEST_PATH_BYTES_MAX);
    }
    if (!path_clean(path, path_len)) {
        return err_set(err, ERR_INVALID,
                       "path: must be relative, without \"..\", \".\" or empty parts");
    }
    if (target_len > 0 && memchr(target, '\0', target_len)) {
        return err_set(err, ERR_INVALID, "target: must not hold NUL");
    }
    if (m->n > 0) {
        const struct artifact *last = &m->files[m->n - 1];
        if (path_order(last->path, last->path_len, path, path_len) >= 0) {
            return err_set(err, ERR_INVALID, "path: twice or not in order");
        }
        /* what lies below a path follows it at once, so the last one is the only one to look at */
        if (path_below(path, path_len, last->path, last->path_len)) {
            return err_set(err, ERR_INVALID, "path: below another that is no folder");
        }
    }
    if (m->n >= MANIFEST_FILES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "files: at most %u", MANIFEST_FILES_MAX);
    }
    if (m->n == m->cap) {
        m->cap = m->cap ? m->cap * 2 : 16;
        m->files = realloc(m->files, m->cap * sizeof *m->files);
        if (!m->files) {
            abort();
        }
    }
    struct artifact *a = &m->files[m->n++];
    *a = (struct artifact){ .path = jr_dup(path, path_len), .path_len = path_len };
    if (target_len > 0) {
        a->target = jr_dup(target, target_len);
        a->target_len = target_len;
    }
    *ret_file = a;
    return 0;
}

/* ---- writing ---- */

static void put(json_t *obj, const char *key, json_t *v)
{
    if (json_object_set_new(obj, key, v) < 0) {
        abort();
    }
}

json_t *artifact_to_json(const struct artifact *a)
{
    json_t *o = json_object();
    char mode[8];
    (void)snprintf(mode, sizeof mode, "%04o", a->mode & 0777);
    (void)json_put_bytes(o, "path", a->path, a->path_len);
    put(o, "type", json_string(type_words[a->type]));
    put(o, "stored", json_boolean(a->stored));
    if (a->type == ARTIFACT_FILE) {
        put(o, "mode", json_string(mode));
        put(o, "size", json_integer((json_int_t)a->size));
    }
    if (a->target_len > 0) {
        (void)json_put_bytes(o, "target", a->target, a->target_len);
    }
    if (a->sha256[0]) {
        put(o, "sha256", json_string(a->sha256));
    }
    if (a->reason != ARTIFACT_OK) {
        put(o, "reason", json_string(reason_words[a->reason]));
    }
    if (a->change != ARTIFACT_SAME) {
        put(o, "change", json_string(change_words[a->change]));
    }
    return o;
}

char *manifest_json(const struct manifest *m)
{
    cleanup_json json_t *root = json_object();
    json_t *files = json_array(), *unmatched = json_array();
    put(root, "version", json_integer(VERSION));
    put(root, "files", files);
    put(root, "unmatched", unmatched);
    put(root, "truncated", json_boolean(m->truncated));
    put(root, "left_out", json_integer(m->left_out));
    put(root, "bytes_stored", json_integer((json_int_t)m->bytes_stored));
    for (size_t i = 0; i < m->n; i++) {
        (void)json_array_append_new(files, artifact_to_json(&m->files[i]));
    }
    for (size_t at = 0; at < m->unmatched_len; at += strlen(m->unmatched + at) + 1) {
        json_t *glob = json_string(m->unmatched + at);
        (void)json_array_append_new(unmatched, glob ? glob : json_string("?")); /* was JSON once */
    }
    char *out = json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_SORT_KEYS);
    if (!out) {
        abort();
    }
    return out;
}

/* ---- reading ---- */

/* obj[key] as text or obj[key_base64]; *ret is empty when there is neither. */
static int get_bytes(const json_t *obj, const char *key, struct bytes *ret, struct err *err)
{
    char name[32];
    const json_t *v = json_object_get(obj, key);
    *ret = (struct bytes){ 0 };
    if (v) {
        return jr_text_bytes(v, key, MANIFEST_PATH_BYTES_MAX, ret, err);
    }
    (void)snprintf(name, sizeof name, "%s_base64", key);
    v = json_object_get(obj, name);
    return v ? jr_base64_bytes(v, name, MANIFEST_PATH_BYTES_MAX, ret, err) : 0;
}

/* Index of obj[key] in words; a missing one is words[0] when that is "". */
static int get_word(const json_t *obj, const char *key, const char *const *words, int n,
                    int *ret_index, struct err *err)
{
    const char *text = json_string_value(json_object_get(obj, key));
    for (int i = 0; i < n; i++) {
        if (strcmp(text ? text : "", words[i]) == 0) {
            *ret_index = i;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, "%s: not a word of it", key);
}

static int get_mode(const json_t *obj, unsigned *ret_mode, struct err *err)
{
    const char *text = json_string_value(json_object_get(obj, "mode"));
    if (!text || strlen(text) != 4 || strspn(text, "01234567") != 4 || text[0] != '0') {
        return err_set(err, ERR_INVALID, "mode: must be octal, 0000 to 0777");
    }
    *ret_mode = (unsigned)strtoul(text, NULL, 8);
    return 0;
}

static int get_sha256(const json_t *obj, char *ret_hex, struct err *err)
{
    const char *text = json_string_value(json_object_get(obj, "sha256"));
    if (text) {
        if (strlen(text) != MANIFEST_SHA256_HEX ||
            strspn(text, "0123456789abcdef") != MANIFEST_SHA256_HEX) {
            return err_set(err, ERR_INVALID, "sha256: must be 64 lower-case hex digits");
        }
        memcpy(ret_hex, text, MANIFEST_SHA256_HEX + 1);
    }
    return 0;
}

static int read_words(struct artifact *a, const json_t *v, struct err *err)
{
    int type = 0, reason = 0, change = 0;
    int rc = get_word(v, "type", type_words, ARTIFACT_TYPES, &type, err);
    rc = rc ? rc : get_word(v, "reason", reason_words, ARTIFACT_REASONS, &reason, err);
    rc = rc ? rc : get_word(v, "change", change_words, ARTIFACT_CHANGES, &change, err);
    if (rc == 0) {
        a->type = (enum artifact_type)type;
        a->reason = (enum artifact_reason)reason;
        a->change = (enum artifact_change)change;
    }
    return rc;
}

static int read_file(struct manifest *m, const json_t *v, struct err *err)
{
    struct bytes path = { 0 }, target = { 0 };
    struct artifact *a;
    if (!json_is_object(v)) {
        return err_set(err, ERR_INVALID, "must be an object");
    }
    int rc = get_bytes(v, "path", &path, err);
    rc = rc ? rc : get_bytes(v, "target", &target, err);
    rc =
        rc ? rc
           : manifest_add(m, path.len ? path.data : "", path.len, target.data, target.len, &a, err);
    free(path.data);
    free(target.data);
    rc = rc ? rc : read_words(a, v, err);
    rc = rc ? rc : jr_bool(json_object_get(v, "stored"), "stored", &a->stored, err);
    if (rc < 0) {
        return rc;
    }
    if (a->type == ARTIFACT_FILE) {
        int64_t size;
        rc = jr_int(json_object_get(v, "size"), "size", 0, INT64_MAX, &size, err);
        rc = rc ? rc : get_mode(v, &a->mode, err);
        rc = rc ? rc : get_sha256(v, a->sha256, err);
        if (rc < 0) {
            return rc;
        }
        a->size = (uint64_t)size;
    }
    if ((a->stored && a->type == ARTIFACT_FILE && !a->sha256[0]) ||
        (a->stored && a->type == ARTIFACT_LINK && a->target_len == 0) ||
        (a->stored && a->type == ARTIFACT_OTHER)) {
        return err_set(err, ERR_INVALID, "stored, and without its content");
    }
    return 0;
}

static int read_unmatched(struct manifest *m, const json_t *list, struct err *err)
{
    cleanup_buf struct buf b = { 0 };
    buf_init(&b, MANIFEST_JSON_BYTES_MAX);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        const char *text = json_string_value(v);
        if (!text || strlen(text) != json_string_length(v)) {
            return err_set(err, ERR_INVALID, "unmatched[%zu]: must be text", i);
        }
        int rc = buf_add(&b, text, strlen(text) + 1, err);
        if (rc < 0) {
            return rc;
        }
    }
    if (b.len > 0) {
        m->unmatched = buf_take(&b, &m->unmatched_len);
    }
    return 0;
}

static int read_root(struct manifest *m, const json_t *root, struct err *err)
{
    int64_t version, left_out, bytes;
    int rc = jr_int(json_object_get(root, "version"), "version", VERSION, VERSION, &version, err);
    rc = rc ? rc : jr_bool(json_object_get(root, "truncated"), "truncated", &m->truncated, err);
    rc = rc ? rc
            : jr_int(json_object_get(root, "left_out"), "left_out", 0, UINT32_MAX, &left_out, err);
    rc = rc ? rc
            : jr_int(json_object_get(root, "bytes_stored"), "bytes_stored", 0, INT64_MAX, &bytes,
                     err);
    rc = rc ? rc : read_unmatched(m, json_object_get(root, "unmatched"), err);
    if (rc < 0) {
        return rc;
    }
    m->left_out = (uint32_t)left_out;
    m->bytes_stored = (uint64_t)bytes;
    const json_t *files = json_object_get(root, "files");
    for (size_t i = 0; i < json_array_size(files); i++) {
        rc = read_file(m, json_array_get(files, i), err);
        if (rc < 0) {
            (void)err_prefix(err, "files[%zu]", i);
            return rc;
        }
    }
    return 0;
}

int manifest_parse(const char *json, size_t len, struct manifest *ret_m, struct err *err)
{
    if (len > MANIFEST_JSON_BYTES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "manifest: at most %u bytes", MANIFEST_JSON_BYTES_MAX);
    }
    json_error_t why;
    cleanup_json json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(root)) {
        return err_set(err, ERR_INVALID, "manifest: not a JSON object");
    }
    struct manifest m = { 0 };
    int rc = read_root(&m, root, err);
    if (rc < 0) {
        manifest_done(&m);
        (void)err_prefix(err, "manifest");
        return rc;
    }
    *ret_m = m;
    return 0;
}
