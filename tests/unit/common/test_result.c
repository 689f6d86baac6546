#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/model/result.h"

static struct job_result sample(void)
{
    struct job_result r;
    job_result_init(&r);
    r.verdict = VERDICT_TIME_LIMIT;
    (void)snprintf(r.reason, sizeof r.reason, "used more than 10 ms of CPU time");
    (void)snprintf(r.limit_name, sizeof r.limit_name, "cpu_ms");
    r.limit_value = 10;
    r.limit_used = 11;
    r.run = (struct run_result){ .present = true,
                                 .exit_code = -1,
                                 .signal = 9,
                                 .cpu_us = 11000,
                                 .wall_us = 12000,
                                 .guest_cpu_us = 10900,
                                 .memory_peak_bytes = 1 << 20,
                                 .oom_kills = 1,
                                 .process_refusals = 2,
                                 .leftover_processes = 3,
                                 .disk_used_bytes = 4096,
                                 .disk_files_used = 12,
                                 .disk_refusals = 4,
                                 .open_file_refusals = 5,
                                 .warm = true,
                                 .out = { .total_bytes = 1ull << 40, .truncated = true } };
    (void)snprintf(r.run.exec_error, sizeof r.run.exec_error, "bad \xff name \x01");
    r.limits.cpu_ms = 10;
    r.limits.open_files = 256;
    r.checker = (struct result_checker){ .present = true, .exit_code = 43, .cpu_us = 70 };
    (void)snprintf(r.checker.message, sizeof r.checker.message, "line 2: no");
    r.compared = true;
    r.compare = COMPARE_FLOAT;
    (void)snprintf(r.engine, sizeof r.engine, "qemu-tcg");
    r.vcpus = 1;
    r.memory_mib = 256;
    r.leased_wall_ms = 1700000000000;
    r.ended_wall_ms = 1700000000020;
    r.measured_ms = 20;
    r.lease_us = 900;
    return r;
}

Test(result, round_trip)
{
    struct job_result r = sample(), back;
    cleanup_free char *detail = job_result_detail(&r);
    struct err err = { 0 };
    cr_assert_eq(job_result_parse_detail(detail, strlen(detail), &back, &err), 0, "%s", err.text);
    cr_assert_eq(back.verdict, r.verdict);
    cr_assert_str_eq(back.reason, r.reason);
    cr_assert_str_eq(back.limit_name, "cpu_ms");
    cr_assert_eq(back.limit_value, 10);
    cr_assert_eq(back.limit_used, 11);
    cr_assert(back.run.present && !back.setup.present && back.run.warm);
    cr_assert_eq(back.run.exit_code, -1);
    cr_assert_eq(back.run.signal, 9);
    cr_assert_eq(back.run.memory_peak_bytes, 1 << 20);
    cr_assert_eq(back.run.disk_files_used, 12);
    cr_assert_eq(back.run.disk_refusals, 4);
    cr_assert_eq(back.run.open_file_refusals, 5);
    cr_assert(back.checker.present && back.checker.exit_code == 43 && back.checker.cpu_us == 70);
    cr_assert_str_eq(back.checker.message, "line 2: no");
    cr_assert_eq(back.run.out.total_bytes, 1ull << 40);
    cr_assert(back.run.out.truncated && !back.run.err_out.truncated);
    cr_assert_str_eq(back.run.exec_error, "bad ? name \x01");
    cr_assert_eq(memcmp(&back.limits, &r.limits, sizeof r.limits), 0);
    cr_assert(back.compared && back.compare == COMPARE_FLOAT);
    cr_assert_eq(back.measured_ms, 20);
    cr_assert_eq(back.first_byte_us, -1);
    cleanup_free char *again = job_result_detail(&back);
    back.run.exec_error[0] = 0;
    cr_assert_str_eq(again, detail);
    for (const char *p = detail; *p; p++) {
        cr_assert((unsigned char)*p < 0x80);
    }
}

/* The writer is our own: its bytes are those of the library that reads them. */
Test(result, the_bytes_are_those_of_jansson)
{
    static const char *const texts[] = { "",
                                         "plain",
                                         "quote \" and \\ and /",
                                         "a\tb\nc\x01\x1f\x7f",
                                         "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
                                         "no UTF-8: \xc3( \xff",
                                         "ends in {",
                                         "[" };
    static const int64_t numbers[] = { 0, -1, 7, 10, 1234567890, INT64_MAX, INT64_MIN };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct job_result r = sample();
        int64_t number = numbers[i % (sizeof numbers / sizeof numbers[0])];
        (void)snprintf(r.reason, sizeof r.reason, "%s", texts[i]);
        (void)snprintf(r.run.exec_error, sizeof r.run.exec_error, "%s", texts[i]);
        (void)snprintf(r.worker, sizeof r.worker, "%s", texts[i]);
        r.limit_value = r.run.cpu_us = r.lease_us = number;
        r.setup = (struct run_result){ .present = i % 2, .exit_code = (int)i - 1 };
        r.setup.out.cut_bytes = (int64_t)i;
        r.setup_steps = 2;
        r.setup_failed = (int)i - 1;
        r.tree = (struct result_tree){ .nodes = (int)i, .first_failed = -1 };
        r.artifacts.listed = (int64_t)i % 3;
        r.artifacts.truncated = i % 2;
        job_result_warn(&r, "%s", texts[i]);
        job_result_warn(&r, "another");
        cleanup_free char *detail = job_result_detail(&r);
        json_t *read = json_loads(detail, 0, NULL);
        cr_assert_not_null(read, "%s", detail);
        cleanup_free char *dumped = json_dumps(read, JSON_COMPACT | JSON_ENSURE_ASCII);
        cr_expect_str_eq(detail, dumped);
        json_decref(read);
        job_result_done(&r);
    }
}

Test(result, every_verdict)
{
    for (int v = 0; v < VERDICT_COUNT; v++) {
        struct job_result r, back;
        job_result_init(&r);
        r.verdict = (enum verdict)v;
        r.setup.present = true;
        cleanup_free char *detail = job_result_detail(&r);
        struct err err;
        cr_assert_eq(job_result_parse_detail(detail, strlen(detail), &back, &err), 0);
        cr_assert_eq((int)back.verdict, v);
        cr_assert(back.setup.present && !back.compared);
    }
}

Test(result, refused)
{
    const char *bad[] = { "",
                          "[]",
                          "{\"verdict\":\"great\"}",
                          "{\"verdict\":7}",
                          "{\"run\":7}",
                          "{\"run\":{\"cpu_us\":\"x\"}}",
                          "{\"compare\":\"x\"}",
                          "{\"vcpus\":99999999999}",
                          "{\"limit\":{\"name\":\"much_too_long_a_name\"}}",
                          "{\"run\":{\"stdout\":{\"total_bytes\":-1}}}" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct job_result r;
        struct err err = { 0 };
        cr_assert_eq(job_result_parse_detail(bad[i], strlen(bad[i]), &r, &err), -ERR_INVALID, "%s",
                     bad[i]);
        cr_assert(strncmp(err.text, "result", 6) == 0, "%s", err.text);
    }
    struct job_result r;
    struct err err;
    const char *newer =
        "{\"verdict\":\"accepted\",\"new\":{\"x\":[1]},\"run\":{\"exit_code\":0,\"also_new\":1}}";
    cr_assert_eq(job_result_parse_detail(newer, strlen(newer), &r, &err), 0);
    cr_assert_eq(r.run.exit_code, 0);
}

static void bytes(const char *data, size_t len, const char *want)
{
    json_t *obj = json_object();
    cr_assert_eq(json_put_bytes(obj, "stdout", data, len), 0);
    cleanup_free char *text = json_dumps(obj, JSON_COMPACT);
    cr_assert_str_eq(text, want);
    json_decref(obj);
}

Test(result, bytes_as_text_or_base64)
{
    bytes(NULL, 0, "{\"stdout\":\"\"}");
    bytes("a\n", 2, "{\"stdout\":\"a\\n\"}");
    bytes("\xe3\x81\x82", 3, "{\"stdout\":\"\xe3\x81\x82\"}");
    bytes("\xe3\x81", 2, "{\"stdout_base64\":\"44E=\"}"); /* cut in a letter */
    bytes("a\0b", 3, "{\"stdout_base64\":\"YQBi\"}");
    bytes("\xff", 1, "{\"stdout_base64\":\"/w==\"}");
    bytes("\xed\xa0\x80", 3, "{\"stdout_base64\":\"7aCA\"}"); /* a surrogate */
}

Test(result, done_frees_and_resets)
{
    struct job_result r = sample();
    r.run.out.head = (struct bytes){ .data = strdup("x"), .len = 1 };
    r.run.err_out.tail = (struct bytes){ .data = strdup("y"), .len = 1 };
    r.setup.out.tail = (struct bytes){ .data = strdup("z"), .len = 1 };
    job_result_done(&r);
    cr_assert_null(r.run.out.head.data);
    cr_assert_eq(r.verdict, VERDICT_NONE);
    job_result_done(&r);
}
