/* Reading JSON that a stranger wrote: every getter checks type and range and names the field it
 * refuses.
 *
 * Internal to common/model. `path` is the field as the user would write it ("files[3].path"); texts
 * that end in an error are made printable ASCII first. Getters return 0, -ERR_INVALID or
 * -ERR_TOO_LARGE, and write their ret_ argument only on success; strings handed out are the
 * caller's to free. Pure, thread-safe. */
#pragma once
#include <jansson.h>
#include "common/base/cleanup.h"
#include "common/model/job.h"

/* Bytes of a field's path in an error, NUL included: JOB_TREE_DEPTH_MAX times "branches[1023].",
 * and the field. */
#define JR_PATH_MAX 320

/* Parse bounded text: at most JOB_JSON_MAX bytes, JOB_JSON_DEPTH_MAX, JOB_JSON_VALUES_MAX, no
 * duplicate keys, nothing behind the value. The error tells line and column. The caller owns
 * *ret_root (json_decref). */
MUST_CHECK int jr_load(const char *json, size_t len, json_t **ret_root, struct err *err);

/* v is an object that holds only names of the NULL-ended list known. path "" is the job itself. */
MUST_CHECK int jr_object(const json_t *v, const char *path, const char *const *known,
                         struct err *err);

/* What a string may hold besides being min_bytes..max_bytes long. */
enum jr_text {
    JR_NO_NUL,    /* any UTF-8 but NUL */
    JR_PRINTABLE, /* no control characters */
};
MUST_CHECK int jr_string(const json_t *v, const char *path, size_t min_bytes, size_t max_bytes,
                         enum jr_text kind, char **ret_text, struct err *err);
/* Bytes given as text (any, NUL too). */
MUST_CHECK int jr_text_bytes(const json_t *v, const char *path, size_t max_bytes,
                             struct bytes *ret_bytes, struct err *err);
/* Bytes given as standard base64 with padding, without white space. */
MUST_CHECK int jr_base64_bytes(const json_t *v, const char *path, size_t max_bytes,
                               struct bytes *ret_bytes, struct err *err);
/* "text" or {"base64": "..."}. */
MUST_CHECK int jr_bytes(const json_t *v, const char *path, size_t max_bytes,
                        struct bytes *ret_bytes, struct err *err);
MUST_CHECK int jr_int(const json_t *v, const char *path, int64_t min, int64_t max,
                      int64_t *ret_value, struct err *err);
MUST_CHECK int jr_bool(const json_t *v, const char *path, bool *ret_value, struct err *err);
/* A whole or fractional number from 0 to max. */
MUST_CHECK int jr_real(const json_t *v, const char *path, double max, double *ret_value,
                       struct err *err);

/* Copy src to out[JR_PATH_MAX] for an error's text: printable ASCII, cut with "...". */
void jr_printable(char out[JR_PATH_MAX], const char *src);
/* True when the n bytes of UTF-8 hold no C0 or C1 control character and no DEL. */
bool jr_no_control(const char *s, size_t n);
/* strndup that may hold NUL and never fails. */
char *jr_dup(const char *s, size_t n);

DEFINE_CLEANUP(jr_decref_fn, json_t, json_decref)
#define cleanup_json CLEANUP(jr_decref_fn)
