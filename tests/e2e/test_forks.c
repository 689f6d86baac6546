/* Forks of one snapshot are machines of their own: clock, names, generators. (What must differ
 * between forks is also told by the case files case_B073_* and fork_differs_*.) */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/e2e/cli.h"

#define FORKS 8
#define CLOCK_TOLERANCE_MS 1000

static char *text_of(const json_t *result)
{
    struct buf b;
    e2e_output(result, "stdout", &b);
    return buf_take(&b, NULL);
}

Test(forks, agree_with_the_hosts_clock)
{
    json_t *jobs = json_array();
    for (int i = 0; i < FORKS; i++) {
        (void)json_array_append_new(jobs,
                                    e2e_python("import time\nprint(int(time.time() * 1000))\n"));
        (void)json_array_append_new(jobs, e2e_shell("date +%s%3N"));
    }
    int64_t before_ms = wall_ms();
    json_t *results = e2e_run_batch(jobs), *result;
    int64_t after_ms = wall_ms();
    size_t i;
    json_array_foreach(results, i, result)
    {
        cleanup_free char *text = text_of(result);
        int64_t guest_ms = strtoll(text, NULL, 10);
        cr_expect_str_eq(e2e_verdict(result), "accepted");
        /* The interval in which the job ran on the host, from its own record. */
        int64_t from_ms = e2e_sql(
            "SELECT (extract(epoch FROM from_ts) * 1000)::bigint FROM usage_records WHERE job_id = "
            "'%s' AND meter = 'vcpu_seconds'",
            json_string_value(e2e_at(result, "job")));
        int64_t to_ms = e2e_sql(
            "SELECT (extract(epoch FROM to_ts) * 1000)::bigint FROM usage_records WHERE job_id = "
            "'%s' AND meter = 'vcpu_seconds'",
            json_string_value(e2e_at(result, "job")));
        cr_expect(from_ms >= before_ms && to_ms <= after_ms + 1);
        cr_expect(guest_ms >= from_ms - CLOCK_TOLERANCE_MS &&
                      guest_ms <= to_ms + CLOCK_TOLERANCE_MS,
                  "job %zu: the guest says %lld, the job ran from %lld to %lld", i,
                  (long long)guest_ms, (long long)from_ms, (long long)to_ms);
    }
    json_decref(results);
    json_decref(jobs);
}

Test(forks, differ_in_everything_random)
{
    static const char *const code = "import os, random, socket, tempfile, uuid\n"
                                    "print(random.random())\n"
                                    "print(uuid.uuid4())\n"
                                    "print(os.urandom(16).hex())\n"
                                    "print(tempfile.mktemp())\n"
                                    "print(socket.gethostname())\n"
                                    "print(open('/etc/machine-id').read().strip())\n"
                                    "print(random.SystemRandom().random())\n"
                                    "print(open('/proc/sys/kernel/random/uuid').read().strip())\n";
    json_t *jobs = json_array();
    for (int i = 0; i < FORKS; i++) {
        (void)json_array_append_new(jobs, e2e_python(code));
    }
    json_t *results = e2e_run_batch(jobs), *seen = json_object(), *result;
    size_t i;
    int lines = 0;
    json_array_foreach(results, i, result)
    {
        cleanup_free char *text = text_of(result);
        int n = 0;
        char *rest = text;
        for (char *line; (line = strsep(&rest, "\n")) && *line; n++) {
            char key[300];
            (void)snprintf(key, sizeof key, "%d:%.256s", n, line);
            cr_expect_null(json_object_get(seen, key), "fork %zu repeats line %d of another: %s", i,
                           n, line);
            (void)json_object_set_new(seen, key, json_true());
        }
        cr_expect_eq(n, 8, "fork %zu printed %d lines: %s", i, n,
                     json_string_value(e2e_at(result, "reason")));
        lines += n;
    }
    cr_expect_eq(lines, FORKS * 8);
    json_decref(seen);
    json_decref(results);
    json_decref(jobs);
}

Test(forks, start_as_the_snapshot_was_not_as_a_sibling_left_it)
{
    json_t *jobs = json_array();
    for (int i = 0; i < FORKS; i++) {
        (void)json_array_append_new(
            jobs,
            e2e_shell(
                "ls /tmp | wc -l; echo spoiled > /tmp/spoiled; mkdir -p ~/x 2>/dev/null; ls | wc "
                "-l; "
                "touch here; ps -e 2>/dev/null | grep -c sleep; (setsid sleep 100 &) ; exit 0"));
    }
    json_t *results = e2e_run_batch(jobs);
    for (size_t i = 1; i < json_array_size(results); i++) {
        cleanup_free char *a = text_of(json_array_get(results, 0));
        cleanup_free char *b = text_of(json_array_get(results, i));
        cr_expect_str_eq(a, b, "fork %zu", i);
    }
    json_decref(results);
    json_decref(jobs);
}
