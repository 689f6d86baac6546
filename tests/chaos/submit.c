/* chaos_submit SEED FIRST N RATE MS_MAX: submits N scripted jobs, numbered from FIRST, as a client
 * that goes on until each is accepted: by chunks, each job with an idempotency key, repeated
 * whenever the answer did not come. RATE: jobs/s at most. Prints how many were accepted, how often
 * it had to repeat, and how many were told to be duplicates. Addresses as of every program of ours.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sodium.h>
#include "common/base/clock.h"
#include "common/base/config.h"
#include "common/store/jobs.h"
#include "common/store/queue.h"

#define CHUNK_MAX 50
#define GIVE_UP_MS 300000 /* without one chunk accepted */

/* The same seed and number, the same job. */
static uint64_t mix(uint64_t seed, uint64_t n)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + n;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static struct job_spec *make_job(uint64_t seed, int number, int ms_max)
{
    static const char *const verdicts[] = { "accepted",    "wrong_answer", "runtime_error",
                                            "time_limit",  "memory_limit", "accepted",
                                            "judge_error", "output_limit" };
    uint64_t r = mix(seed, (uint64_t)number);
    int ms = (r >> 8) % 16 == 0 ? ms_max * 20 : (int)((r >> 16) % (unsigned)(ms_max + 1));
    int breaks = (r >> 32) % 64 == 0;
    char text[512];
    (void)snprintf(text, sizeof text,
                   "{\"template\":\"python\",\"idempotency_key\":\"chaos-%llu-%d\",\"command\":["
                   "\"scripted\",\"%s\",\"%d\",\"output of %d\",\"%d\"]}",
                   (unsigned long long)seed, number, verdicts[r % 8], ms, number, breaks);
    struct job_spec *spec;
    struct err err;
    if (job_parse(text, strlen(text), &spec, &err) < 0) {
        (void)fprintf(stderr, "chaos_submit: %s\n", err.text);
        exit(1);
    }
    return spec;
}

int main(int argc, char **argv)
{
    static struct config config;
    struct pg pg;
    struct queue q;
    struct err err = { 0 };
    if (argc != 6 || sodium_init() < 0 || config_load(&config, NULL, NULL, &err) < 0) {
        (void)fprintf(stderr, "usage: chaos_submit SEED FIRST N RATE MS_MAX (%s)\n", err.text);
        return 2;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    uint64_t seed = strtoull(argv[1], NULL, 10);
    int first = (int)strtol(argv[2], NULL, 10), n = (int)strtol(argv[3], NULL, 10);
    int rate = (int)strtol(argv[4], NULL, 10), ms_max = (int)strtol(argv[5], NULL, 10);
    (void)!pg_open(&pg, config.postgres_url, &err);
    (void)!queue_open(&q, config.redis_url, &err);
    int accepted = 0, repeats = 0, duplicates = 0;
    int64_t start_ms = mono_ms();
    while (accepted < n) {
        struct submit_item items[CHUNK_MAX] = { 0 };
        int64_t due = (mono_ms() - start_ms) * rate / 1000 + 1 - accepted;
        int k = n - accepted < CHUNK_MAX ? n - accepted : CHUNK_MAX;
        k = due < k ? (int)due : k;
        if (k < 1) {
            sleep_ms(5);
            continue;
        }
        for (int i = 0; i < k; i++) {
            items[i].spec = make_job(seed, first + accepted + i, ms_max);
        }
        int64_t until_ms = mono_ms() + GIVE_UP_MS;
        int rc;
        while ((rc = store_submit(&pg, "chaos", NULL, NULL, 0, items, k, true, &err)) ==
                   -ERR_UNAVAILABLE &&
               mono_ms() < until_ms) {
            repeats++;
            sleep_ms(100);
        }
        if (rc < 0) {
            (void)fprintf(stderr, "chaos_submit: %s\n", err.text);
            return 1;
        }
        for (int i = 0; i < k; i++) {
            duplicates += items[i].ret_duplicate;
            job_spec_free((struct job_spec *)(uintptr_t)items[i].spec);
        }
        accepted += k;
        struct err wake;
        (void)!queue_wake(&q, &wake); /* the scheduler finds them by itself too */
    }
    (void)printf("{\"accepted\":%d,\"repeats\":%d,\"duplicates\":%d,\"seconds\":%.1f}\n", accepted,
                 repeats, duplicates, (double)(mono_ms() - start_ms) / 1000);
    return accepted < n;
}
