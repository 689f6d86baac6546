/* Helpers of the job tests: parse or die, and refused with this code and these words. */
#pragma once
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/model/job.h"

#define HEAD "{\"template\":\"python\",\"command\":[\"true\"]"

static inline struct job_spec *parse_n(const char *json, size_t len)
{
    struct job_spec *spec = NULL;
    struct err err = { 0 };
    int rc = job_parse(json, len, &spec, &err);
    cr_assert_eq(rc, 0, "refused: %s", err.text);
    return spec;
}

static inline struct job_spec *parse(const char *json)
{
    return parse_n(json, strlen(json));
}

static inline void refused_n(const char *json, size_t len, int code, const char *words)
{
    struct job_spec *spec = NULL;
    struct err err = { 0 };
    int rc = job_parse(json, len, &spec, &err);
    cr_assert_eq(rc, -code, "got %d (%s), want %d (%s)", rc, err.text, -code, words);
    cr_assert_null(spec);
    cr_assert(strstr(err.text, words), "\"%s\" does not say \"%s\"", err.text, words);
}

static inline void refused(const char *json, int code, const char *words)
{
    refused_n(json, strlen(json), code, words);
}

/* head, then n times fill, then tail. */
static inline char *filled(const char *head, const char *fill, size_t n, const char *tail,
                           size_t *ret_len)
{
    struct buf b;
    buf_init(&b, 200u << 20);
    struct err err;
    cr_assert_eq(buf_add_str(&b, head, &err), 0);
    size_t one = strlen(fill);
    char *to = buf_reserve(&b, one * n, &err);
    cr_assert_not_null(to);
    for (size_t i = 0; i < n; i++) {
        memcpy(to + i * one, fill, one);
    }
    buf_commit(&b, one * n);
    cr_assert_eq(buf_add_str(&b, tail, &err), 0);
    return buf_take(&b, ret_len);
}

static inline void fits(const char *head, const char *fill, size_t n, const char *tail)
{
    size_t len;
    cleanup_free char *json = filled(head, fill, n, tail, &len);
    cleanup_job_spec struct job_spec *spec = parse_n(json, len);
}

static inline void too_much(const char *head, const char *fill, size_t n, const char *tail,
                            int code, const char *words)
{
    size_t len;
    cleanup_free char *json = filled(head, fill, n, tail, &len);
    refused_n(json, len, code, words);
}
