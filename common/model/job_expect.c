/* What counts as right: exit code and standard output. */
#include "common/model/job_part.h"

#include <string.h>

#define FLOAT_TOLERANCE 1e-6
#define FLOAT_TOLERANCE_MAX 1e300

static int read_compare(const json_t *v, const char *at, enum compare_mode *ret_mode,
                        struct err *err)
{
    for (int m = COMPARE_EXACT; json_is_string(v) && m < COMPARE_COUNT; m++) {
        const char *word = compare_word((enum compare_mode)m);
        if (json_string_length(v) == strlen(word) && strcmp(json_string_value(v), word) == 0) {
            *ret_mode = (enum compare_mode)m;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, "%s.compare: must be exact, trim, tokens, float or unordered",
                   at);
}

static int read_tolerance(const json_t *v, const char *at, struct job_expect *e, struct err *err)
{
    static const char *const known[] = { "absolute", "relative", NULL };
    char sub[JR_PATH_MAX];
    if (json_is_number(v)) {
        int rc = jr_real(v, at, FLOAT_TOLERANCE_MAX, &e->tolerance_abs, err);
        e->tolerance_rel = e->tolerance_abs;
        return rc;
    }
    if (!json_is_object(v) || json_object_size(v) == 0) {
        return err_set(err, ERR_INVALID,
                       "%s: must be a number or {\"absolute\": .., \"relative\": ..}", at);
    }
    int rc = jr_object(v, at, known, err);
    const json_t *a = json_object_get(v, "absolute"), *r = json_object_get(v, "relative");
    /* The one that is not given does not loosen the other. */
    e->tolerance_abs = e->tolerance_rel = 0;
    if (rc == 0 && a) {
        job_field(sub, at, "absolute");
        rc = jr_real(a, sub, FLOAT_TOLERANCE_MAX, &e->tolerance_abs, err);
    }
    if (rc == 0 && r) {
        job_field(sub, at, "relative");
        rc = jr_real(r, sub, FLOAT_TOLERANCE_MAX, &e->tolerance_rel, err);
    }
    return rc;
}

int job_read_expect(const json_t *v, const char *at, struct job_expect *e, bool *ret_given,
                    struct err *err)
{
    static const char *const known[] = { "exit_code", "stdout",  "compare",
                                         "tolerance", "checker", NULL };
    char sub[JR_PATH_MAX];
    *e = (struct job_expect){ .compare = COMPARE_TRIM,
                              .tolerance_abs = FLOAT_TOLERANCE,
                              .tolerance_rel = FLOAT_TOLERANCE };
    if (!v) {
        return 0;
    }
    int rc = jr_object(v, at, known, err);
    if (rc < 0) {
        return rc;
    }
    *ret_given = true;
    const json_t *code = json_object_get(v, "exit_code"), *out = json_object_get(v, "stdout");
    const json_t *compare = json_object_get(v, "compare"),
                 *tolerance = json_object_get(v, "tolerance");
    int64_t exit_code = 0;
    job_field(sub, at, "exit_code");
    if (code && (rc = jr_int(code, sub, 0, 255, &exit_code, err)) < 0) {
        return rc;
    }
    e->exit_code = (int)exit_code;
    job_field(sub, at, "stdout");
    if (out && (rc = jr_bytes(out, sub, JOB_EXPECT_BYTES_MAX, &e->text, err)) < 0) {
        return rc;
    }
    e->has_stdout = out != NULL;
    if (compare && (rc = read_compare(compare, at, &e->compare, err)) < 0) {
        return rc;
    }
    const json_t *checker = json_object_get(v, "checker");
    job_field(sub, at, "checker");
    if ((rc = job_read_checker(checker, sub, &e->checker, err)) < 0) {
        return rc;
    }
    if (checker && compare) {
        return err_set(err, ERR_INVALID, "%s.compare: not together with a checker", at);
    }
    if (compare && !out) {
        return err_set(err, ERR_INVALID, "%s.compare: only together with %s.stdout", at, at);
    }
    if (tolerance && e->compare != COMPARE_FLOAT) {
        return err_set(err, ERR_INVALID, "%s.tolerance: only with \"compare\": \"float\"", at);
    }
    job_field(sub, at, "tolerance");
    return tolerance ? read_tolerance(tolerance, sub, e, err) : 0;
}
