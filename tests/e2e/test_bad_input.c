/* What a person does wrong: each is refused with the place, the field and the rule, and nothing
 * runs half. */
#include <criterion/criterion.h>
#include <string.h>
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/model/job.h"
#include "tests/e2e/cli.h"

#define GOOD "{\"template\":\"python\",\"command\":[\"true\"]}\n"

static void submit_text(struct e2e_run *r, const char *text, size_t len, const char *option)
{
    cleanup_free char *path = e2e_temp_file(text, len);
    if (option) {
        E2E_BROOD(r, E2E_SHORT_MS, "submit", path, "--json", option);
    } else {
        E2E_BROOD(r, E2E_SHORT_MS, "submit", path, "--json");
    }
    (void)unlink(path);
}

static int64_t jobs_in_database(void)
{
    return e2e_sql("SELECT count(*) FROM jobs");
}

/* One line is refused; stderr names what. */
static void refused(const char *line, const char *const *names)
{
    int64_t before = jobs_in_database();
    cleanup_e2e_run struct e2e_run r;
    submit_text(&r, line, strlen(line), NULL);
    cr_expect_eq(r.exit_code, 2, "exit %d for %.200s: %s", r.exit_code, line, r.err.data);
    for (; *names; names++) {
        cr_expect_not_null(strstr(r.err.data, *names), "\"%s\" is not named for %.200s:\n%s",
                           *names, line, r.err.data);
    }
    cr_expect_eq(jobs_in_database(), before, "something was submitted");
}
#define REFUSED(line, ...) refused((line), (const char *const[]){ __VA_ARGS__, NULL })

Test(bad_input, malformed_line_37)
{
    cleanup_buf struct buf text = { 0 };
    struct err err;
    buf_init(&text, 1u << 20);
    for (int i = 1; i <= 40; i++) {
        cr_assert_eq(buf_add_str(&text, i == 37 ? "{\"template\":\"python\",,}\n" : GOOD, &err), 0);
    }
    int64_t before = jobs_in_database();
    cleanup_e2e_run struct e2e_run r;
    submit_text(&r, text.data, text.len, NULL);
    cr_expect_eq(r.exit_code, 2);
    cr_expect_not_null(strstr(r.err.data, ":37:"), "the line's number: %s", r.err.data);
    cr_expect_not_null(strstr(r.err.data, "nothing"), "nothing of it runs: %s", r.err.data);
    cr_expect_not_null(strstr(r.err.data, "--skip-invalid"), "what to do: %s", r.err.data);
    cr_expect_eq(jobs_in_database(), before);

    cleanup_e2e_run struct e2e_run skip;
    submit_text(&skip, text.data, text.len, "--skip-invalid");
    cr_expect_eq(skip.exit_code, 0, "%s", skip.err.data);
    cr_expect_not_null(strstr(skip.err.data, ":37:"));
    cr_expect_eq(jobs_in_database(), before + 39);
    json_t *said = json_loads(skip.out.data, 0, NULL);
    cr_assert_not_null(json_string_value(json_object_get(said, "batch")), "%s", skip.out.data);
    json_t *results =
        e2e_wait_results(json_string_value(json_object_get(said, "batch")), E2E_BATCH_MS);
    cr_expect_eq(json_array_size(results), 39);
    json_decref(results);
    json_decref(said);
}

Test(bad_input, paths)
{
    REFUSED("{\"template\":\"python\",\"command\":[\"true\"],\"files\":[{\"path\":\"../"
            "up\",\"text\":\"\"}]}",
            ":1:", "files[0].path", "..");
    REFUSED("{\"template\":\"python\",\"command\":[\"true\"],\"files\":[{\"path\":\"a/../../"
            "up\",\"text\":\"\"}]}",
            "files[0].path");
    REFUSED("{\"template\":\"python\",\"command\":[\"true\"],\"files\":[{\"path\":\"ok\",\"text\":"
            "\"\"},"
            "{\"path\":\"/etc/passwd\",\"text\":\"\"}]}",
            "files[1].path", "relative");
    REFUSED("{\"template\":\"python\",\"command\":[\"true\"],\"files\":[{\"path\":\"\",\"text\":"
            "\"\"}]}",
            "files[0].path");
}

Test(bad_input, template_field_and_limits)
{
    REFUSED("{\"template\":\"no-such\",\"command\":[\"true\"]}", "template", "no-such", "python");
    REFUSED("{\"command\":[\"true\"]}", "template", "missing");
    REFUSED("{\"template\":\"python\"}", "command", "missing");
    REFUSED("{\"template\":\"python\",\"command\":[\"true\"],\"comand\":1}", "comand");
    REFUSED("{\"template\":\"python\",\"command\":[\"true\"],\"limits\":{\"cpu_ms\":0}}",
            "limits.cpu_ms", "10");
    REFUSED("{\"template\":\"python\",\"command\":[\"true\"],\"limits\":{\"wall_ms\":99999999999}}",
            "limits.wall_ms");
    REFUSED("{\"template\":\"python\",\"command\":[\"true\"],\"limits\":{\"memory_mib\":4}}",
            "limits.memory_mib", "8");
    REFUSED("{\"template\":\"python\",\"command\":[\"true\"],\"limits\":{\"memory_mib\":60000}}",
            "limits.memory_mib");
    REFUSED("{\"template\":\"python\",\"command\":[\"true\"],\"limits\":{\"cpu\":5}}",
            "limits.cpu");
    REFUSED("[1]\n", ":1:");
    REFUSED("\n\n", "no jobs");
}

Test(bad_input, a_file_over_the_maximum)
{
    cleanup_buf struct buf text = { 0 };
    struct err err;
    buf_init(&text, JOB_FILE_BYTES_MAX + 4096);
    cr_assert_eq(buf_add_str(&text,
                             "{\"template\":\"python\",\"command\":[\"true\"],\"files\":[{\"path\":"
                             "\"big\",\"text\":\"",
                             &err),
                 0);
    void *room = buf_reserve(&text, JOB_FILE_BYTES_MAX + 1, &err);
    cr_assert_not_null(room);
    memset(room, 'x', JOB_FILE_BYTES_MAX + 1);
    buf_commit(&text, JOB_FILE_BYTES_MAX + 1);
    cr_assert_eq(buf_add_str(&text, "\"}]}\n", &err), 0);
    char most[32];
    (void)snprintf(most, sizeof most, "%u", JOB_FILE_BYTES_MAX);
    REFUSED(text.data, "files[0].text", most);
}

Test(bad_input, one_idempotency_key_two_contents)
{
    char one[300], other[300];
    long long now = (long long)wall_ns();
    (void)snprintf(
        one, sizeof one,
        "{\"template\":\"python\",\"command\":[\"true\"],\"idempotency_key\":\"e2e-%lld\"}\n", now);
    (void)snprintf(
        other, sizeof other,
        "{\"template\":\"python\",\"command\":[\"false\"],\"idempotency_key\":\"e2e-%lld\"}\n",
        now);
    int64_t before = jobs_in_database();
    cleanup_e2e_run struct e2e_run first, again, conflict;
    submit_text(&first, one, strlen(one), NULL);
    cr_expect_eq(first.exit_code, 0, "%s", first.err.data);
    submit_text(&again, one, strlen(one), NULL);
    cr_expect_eq(again.exit_code, 0, "the same again is no error: %s", again.err.data);
    cr_expect_eq(jobs_in_database(), before + 1, "the same key and content is one job");
    submit_text(&conflict, other, strlen(other), NULL);
    cr_expect_eq(conflict.exit_code, 2);
    cr_expect_not_null(strstr(conflict.err.data, "idempotency_key"), "%s", conflict.err.data);
    cr_expect_eq(jobs_in_database(), before + 1);
}

/* The services of a home where nothing runs. */
Test(bad_input, services_that_are_not_there)
{
    char dir[] = "/tmp/brood-e2e-empty-XXXXXX";
    cr_assert_not_null(mkdtemp(dir));
    cleanup_free char *path = e2e_temp_file(GOOD, strlen(GOOD));
    cleanup_e2e_run struct e2e_run r;
    E2E_BROOD(&r, E2E_SHORT_MS, "submit", path, "--home", dir);
    cr_expect_eq(r.exit_code, 3);
    cr_expect_not_null(strstr(r.err.data, "Postgres"), "which: %s", r.err.data);
    cr_expect_not_null(strstr(r.err.data, "/pg"), "where: %s", r.err.data);
    cr_expect_not_null(strstr(r.err.data, "brood up"), "what to do: %s", r.err.data);

    /* Postgres is there, Redis is not: the jobs are durable, and the answer says what could not be
     * reached. */
    (void)setenv("BROOD_REDIS_URL", "unix:///tmp/brood-e2e-no-redis.sock", 1);
    cleanup_e2e_run struct e2e_run no_redis;
    E2E_BROOD(&no_redis, E2E_SHORT_MS, "run", "--", "true");
    (void)unsetenv("BROOD_REDIS_URL");
    cr_expect_neq(no_redis.exit_code, 0);
    cr_expect_not_null(strstr(no_redis.err.data, "Redis"), "%s", no_redis.err.data);
    cr_expect_not_null(strstr(no_redis.err.data, "/tmp/brood-e2e-no-redis.sock"), "%s",
                       no_redis.err.data);
    (void)unlink(path);
    (void)rmdir(dir);
}

Test(bad_input, command_line)
{
    cleanup_e2e_run struct e2e_run unknown, nothing, batch, reader;
    E2E_BROOD(&unknown, E2E_SHORT_MS, "frobnicate");
    cr_expect_eq(unknown.exit_code, 2);
    cr_expect_not_null(strstr(unknown.err.data, "--help"));
    E2E_BROOD(&nothing, E2E_SHORT_MS, "submit", "/no/such/file");
    cr_expect_eq(nothing.exit_code, 2);
    cr_expect_not_null(strstr(nothing.err.data, "/no/such/file"));
    E2E_BROOD(&batch, E2E_SHORT_MS, "results", "00000000-0000-7000-8000-000000000000");
    cr_expect_eq(batch.exit_code, 2);
    /* A reader that goes away ends the command at once (case B149). */
    e2e_run(
        &reader,
        (const char *const[]){ "sh", "-c", "\"$0\" usage --help | head -1", e2e_binary(), NULL },
        NULL, E2E_SHORT_MS);
    cr_expect_not(reader.timed_out);
}

Test(run, exit_code_output_and_verdict)
{
    cleanup_e2e_run struct e2e_run r, failing, limit;
    E2E_BROOD(&r, E2E_BATCH_MS, "run", "--", "python3", "-c", "print(6*7)");
    cr_expect_eq(r.exit_code, 0, "%s", r.err.data);
    cr_expect_str_eq(r.out.data, "42\n");
    cr_expect_not_null(strstr(r.err.data, "accepted"), "%s", r.err.data);
    E2E_BROOD(&failing, E2E_BATCH_MS, "run", "--", "sh", "-c", "echo out; echo err >&2; exit 7");
    cr_expect_eq(failing.exit_code, 7);
    cr_expect_str_eq(failing.out.data, "out\n");
    cr_expect_not_null(strstr(failing.err.data, "err\n"));
    E2E_BROOD(&limit, E2E_BATCH_MS, "run", "--limit", "wall_ms=1000", "--", "sleep", "60");
    cr_expect_neq(limit.exit_code, 0);
    cr_expect_not_null(strstr(limit.err.data, "wall_time_limit"), "%s", limit.err.data);
}
