/* A machine whose kernel and agent were taken over, against the whole service: rows of
 * tests/support/hostile.def played by the agent of real microVMs (hostile/agent.c), all in one
 * batch. Run by hostile/run, which gives it a home of its own. All sixty rows are in
 * tests/unit/worker/test_hostile.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/cleanup.h"
#include "common/model/result.h"
#include "tests/e2e/cli.h"

#define MACHINE_BYTES ((int64_t)512 << 20)
#define STDIN_BYTES (1u << 20)
#define RSS_KIB_MAX (256 << 10) /* of worker and vmpool, whatever they are sent */

static const struct row {
    const char *word;
    int rc;
    enum verdict verdict;
} rows[] = {
#define HOSTILE(name, code, v, words) { #name, code, VERDICT_##v },
#include "tests/support/hostile.def"
#undef HOSTILE
};

/* Those that a thread on a socket pair cannot stand for: they depend on how the port and QEMU carry
 * bytes, or end the machine. */
static const char *const played[] = {
    "silent",
    "half_frame",
    "close_start",
    "length_max",
    "noise",
    "started_twice",
    "settled",
    "exit_of_another",
    "tiny_frames",
    "empty_frames",
    "both_streams",
    "large_frames",
    "pulls",
    "never_reads",
    "hellos",
    "kill_then_flood",
    "kill_then_user_fault",
    "exit_numbers",
    "exit_text",
    "files_good",
    "files_dotdot",
    "files_size_max",
    "files_endless",
    "files_close",
};
#define N_PLAYED (sizeof played / sizeof played[0])

static json_t *job_of(const char *word, const char *stdin_text)
{
    return json_pack("{s:s, s:s, s:[s,s], s:s, s:[s], s:{s:i, s:i, s:i}}", "template", "python",
                     "name", word, "command", "hostile", word, "stdin", stdin_text, "artifacts",
                     "**", "limits", "wall_ms",
                     strstr(word, "close") ? 60000 : 2000 /* the machine ends, not the time */,
                     "cpu_ms", 20000, "output_bytes", 65536);
}

static const struct row *row_of(const char *word)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].word, word) == 0) {
            return &rows[i];
        }
    }
    cr_assert_fail("no such row: %s", word);
    return NULL;
}

static int64_t number(const json_t *v, const char *path)
{
    const json_t *n = e2e_at(v, path);
    return json_is_integer(n) ? json_integer_value(n) : 0;
}

static void check(const char *word, const json_t *result)
{
    const struct row *row = row_of(word);
    const char *want = row->rc ? "infra_error" : verdict_word(row->verdict);
    const json_t *reason = e2e_at(result, "reason");
    cr_expect_str_eq(e2e_verdict(result), want, "%s: %s: %s", word, e2e_verdict(result),
                     json_string_value(reason));
    cr_expect_leq(number(result, "memory_peak_bytes"), MACHINE_BYTES, "%s", word);
    cr_expect_leq(number(result, "disk_used_bytes"), MACHINE_BYTES, "%s", word);
    cr_expect_leq(number(result, "guest_cpu_us"), number(result, "wall_us") + 100000, "%s", word);
    cleanup_free char *text = json_dumps(result, JSON_ENCODE_ANY);
    cr_assert_not_null(text);
    for (const char *p = text; *p; p++) {
        cr_assert((unsigned char)*p >= ' ', "%s: a control character in its result", word);
    }
}

static long rss_kib(pid_t pid)
{
    char path[64], line[256];
    long kib = -1;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    cleanup_fclose FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        (void)sscanf(line, "VmHWM: %ld", &kib);
    }
    return kib;
}

Test(hostile_guest, nothing_of_it_reaches_the_host)
{
    static const char *const names[] = { "worker", "vmpool" };
    pid_t before[2], after;
    cleanup_free char *stdin_text = malloc(STDIN_BYTES + 1);
    json_t *jobs = json_array();
    memset(stdin_text, 'i', STDIN_BYTES);
    stdin_text[STDIN_BYTES] = 0;
    for (size_t i = 0; i < N_PLAYED; i++) {
        (void)json_array_append_new(jobs, job_of(played[i], stdin_text));
    }
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(e2e_pids(names[i], &before[i], 1), 1, "no %s", names[i]);
    }
    cleanup_free char *batch = e2e_submit(jobs);
    json_t *results = e2e_wait_results(batch, E2E_BATCH_MS);
    cr_assert_eq(json_array_size(results), N_PLAYED);
    for (size_t i = 0; i < N_PLAYED; i++) {
        check(played[i], json_array_get(results, i));
    }
    /* what broke the protocol was not billed, what broke a limit was, by the host's clock */
    cr_expect_eq(e2e_sql("SELECT count(*) FROM usage_records u JOIN jobs j ON j.id = u.job_id"
                         " WHERE j.batch_id = '%s' AND j.verdict = 'infra_error'",
                         batch),
                 0);
    cr_expect_eq(e2e_sql("SELECT count(*) FROM usage_records u JOIN jobs j ON j.id = u.job_id"
                         " WHERE j.batch_id = '%s' AND (u.measured_ms > 60000 OR u.amount > 512)",
                         batch),
                 0, "a figure of the guest's is on the bill");
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(e2e_pids(names[i], &after, 1), 1, "%s is gone", names[i]);
        cr_expect_eq(after, before[i], "%s was started anew", names[i]);
        cr_expect_lt(rss_kib(after), RSS_KIB_MAX, "%s", names[i]);
    }
    json_decref(results);
    json_decref(jobs);
}

Test(hostile_guest, zz_the_next_job_runs)
{
    json_t *jobs = json_array();
    (void)json_array_append_new(jobs, e2e_python("print('well')\n"));
    json_t *results = e2e_run_batch(jobs);
    cr_expect_str_eq(e2e_verdict(json_array_get(results, 0)), "accepted");
    json_decref(results);
    json_decref(jobs);
}
