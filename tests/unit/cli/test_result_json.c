#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "cli/result_json.h"

static struct bytes bytes(const char *s, size_t n)
{
    return (struct bytes){ .data = (char *)(uintptr_t)s, .len = n };
}

static struct result_row row(void)
{
    struct result_row r = {
        .job_id = "01",
        .seq = 4,
        .attempt = 1,
        .labels = (char *)(uintptr_t) "{\"k\":\"v\",\"expected_verdict\":\"time_limit\"}",
        .state = STATE_COMPLETED,
        .has_result = true,
        .submitted_ms = 0,
        .finished_ms = 1500,
        .cost_nanousd = 7
    };
    job_result_init(&r.result);
    r.result.verdict = VERDICT_TIME_LIMIT;
    r.result.run.exit_code = -1;
    r.result.run.signal = 9;
    return r;
}

Test(result_json, streams)
{
    struct result_row r = row();
    r.result.run.out = (struct stream_result){
        .head = bytes("ab", 2), .tail = bytes("yz", 2), .total_bytes = 26, .truncated = true
    };
    r.result.run.err_out = (struct stream_result){ .head = bytes("\xff\0", 2), .total_bytes = 2 };
    json_t *j = result_to_json(&r);
    cr_assert_str_eq(json_string_value(json_object_get(j, "stdout")), "ab");
    cr_assert_str_eq(json_string_value(json_object_get(j, "stdout_tail")), "yz");
    cr_assert_eq(json_integer_value(json_object_get(j, "stdout_bytes")), 26);
    cr_assert(json_is_true(json_object_get(j, "stdout_truncated")));
    cr_assert_str_eq(json_string_value(json_object_get(j, "stderr_base64")), "/wA=");
    cr_assert_null(json_object_get(j, "stderr"));
    cr_assert(json_is_null(json_object_get(j, "exit_code")));
    cr_assert_eq(json_integer_value(json_object_get(j, "signal")), 9);
    cr_assert(json_is_null(json_object_get(j, "setup")));
    cr_assert(json_is_null(json_object_get(j, "limit")));
    cr_assert_str_eq(json_string_value(json_object_get(j, "finished_at")),
                     "1970-01-01T00:00:01.500Z");
    cr_assert_str_eq(json_string_value(json_object_get(json_object_get(j, "labels"), "k")), "v");
    json_decref(j);
}

Test(result_json, no_result_yet)
{
    struct result_row r = { .job_id = "01", .state = STATE_RUNNING, .finished_ms = -1 };
    json_t *j = result_to_json(&r);
    cr_assert(json_is_null(json_object_get(j, "verdict")));
    cr_assert(json_is_null(json_object_get(j, "finished_at")));
    cr_assert_str_eq(json_string_value(json_object_get(j, "state")), "running");
    json_decref(j);
}

Test(result_json, expected_verdict)
{
    char want[64];
    struct result_row r = row();
    cr_assert(result_expected(&r, want, sizeof want));
    cr_assert_str_eq(want, "time_limit");
    r.labels = (char *)(uintptr_t) "{}";
    cr_assert_not(result_expected(&r, want, sizeof want));
    cr_assert(verdict_in("time_limit", VERDICT_TIME_LIMIT));
    cr_assert(verdict_in("wrong_answer|time_limit", VERDICT_TIME_LIMIT));
    cr_assert(verdict_in("time_limit|accepted", VERDICT_TIME_LIMIT));
    cr_assert_not(verdict_in("wall_time_limit", VERDICT_TIME_LIMIT));
    cr_assert_not(verdict_in("time_limits", VERDICT_TIME_LIMIT));
    cr_assert_not(verdict_in("", VERDICT_TIME_LIMIT));
    cr_assert_not(verdict_in("|", VERDICT_TIME_LIMIT));
}

Test(result_json, a_plain_job_has_no_new_keys)
{
    struct result_row r = row();
    json_t *j = result_to_json(&r);
    const char *keys[] = { "tree", "branches", "warnings", "setup_steps", "artifacts" };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        cr_assert_null(json_object_get(j, keys[i]), "%s", keys[i]);
    }
    cr_assert_null(json_object_get(j, "stdout_cut_bytes"));
    json_decref(j);
}

Test(result_json, what_was_cut_has_a_tail)
{
    struct result_row r = row();
    r.result.run.out = (struct stream_result){
        .head = bytes("ab", 2), .tail = bytes("yz", 2), .total_bytes = 26, .cut_bytes = 22
    };
    r.result.setup_steps = 2;
    r.result.setup_failed = -1;
    json_t *j = result_to_json(&r);
    cr_assert_str_eq(json_string_value(json_object_get(j, "stdout_tail")), "yz");
    cr_assert_eq(json_integer_value(json_object_get(j, "stdout_cut_bytes")), 22);
    cr_assert(json_is_false(json_object_get(j, "stdout_truncated")));
    cr_assert(json_is_null(json_object_get(j, "setup_failed")));
    json_decref(j);
}
