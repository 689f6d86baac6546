/* chaos_submit KIND SEED FIRST N RATE: submits N jobs, numbered from FIRST, as a client that goes
 * on until each is accepted: by chunks, each job with an idempotency key, repeated whenever the
 * answer did not come. KIND: scripted, outcomes for brood-worker-scripted; real, Python programs
 * that earn theirs in a microVM, and trees of states. What must come of a job stands in its labels:
 * verdict, text (its stdout), sandboxes (how many it is billed), branches (of a tree: what its
 * nodes print, in their order). RATE: jobs/s at most. Prints how many were accepted, how often it
 * had to repeat, and how many were told to be duplicates. Addresses as of every program of ours. */
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

#define MS_MAX 40 /* of a scripted job; one in 16 takes 20 times as long */

static void scripted_text(uint64_t r, const char *key, int number, char *out, size_t room)
{
    static const char *const verdicts[] = { "accepted",    "wrong_answer", "runtime_error",
                                            "time_limit",  "memory_limit", "accepted",
                                            "judge_error", "output_limit" };
    int ms = (r >> 8) % 16 == 0 ? MS_MAX * 20 : (int)((r >> 16) % (MS_MAX + 1));
    const char *verdict = verdicts[r % 8];
    (void)snprintf(out, room,
                   "{\"template\":\"python\",\"idempotency_key\":\"%s\",\"command\":["
                   "\"scripted\",\"%s\",\"%d\",\"output of %d\",\"%d\"],"
                   "\"labels\":{\"verdict\":\"%s\",\"text\":\"output of %d\",\"sandboxes\":\"1\"}}",
                   key, verdict, ms, number, (r >> 32) % 64 == 0, verdict, number);
}

/* A state, forked twice below the root and twice below one of those: it is frozen, and it is copied
 * or loaded, while things break. */
static void tree_text(const char *key, int number, char *out, size_t room)
{
    (void)snprintf(
        out, room,
        "{\"template\":\"python\",\"idempotency_key\":\"%s\",\"setup\":\"echo %d > path\","
        "\"command\":\"cat path; sleep 0.2\",\"branches\":[{},{\"setup\":\"echo inner >> "
        "path\",\"branches\":[{},{}]}],"
        "\"labels\":{\"verdict\":\"accepted\",\"text\":\"\",\"sandboxes\":\"5\",\"branches\":"
        "\"%d |%d inner |%d inner \"}}",
        key, number, number, number, number);
}

/* Each prints its output first, and then deserves its verdict. The processors are overcommitted and
 * things break while it runs, so the limits that must not be met are wide; but for one that is met
 * whenever time is held against it for which a worker was stopped or Redis said nothing. Every
 * other is shown live. */
static void real_text(uint64_t r, const char *key, int number, char *out, size_t room)
{
    static const struct {
        const char *verdict, *rest, *limits, *wanted;
    } kinds[] = {
        { "accepted", "pass", "", "output of %d" },
        { "accepted", "import time; time.sleep(0.3)", "", "output of %d" },
        { "accepted", "sum(range(200000))", "", "output of %d" },
        { "accepted", "import time; time.sleep(0.6)", "\"wall_ms\":2500,", "output of %d" },
        { "wrong_answer", "pass", "", "not the output of %d" },
        { "runtime_error", "import sys; sys.exit(3)", "", "output of %d" },
        { "runtime_error", "import os; os.kill(os.getpid(), 11)", "", "output of %d" },
        { "time_limit", "[0 for _ in iter(int, 1)]", "\"cpu_ms\":400,", "output of %d" },
        { "wall_time_limit", "import time; time.sleep(300)", "\"wall_ms\":2000,", "output of %d" },
    };
    size_t k = r % (sizeof kinds / sizeof kinds[0]);
    char wanted[64];
    if ((r >> 44) % 8 == 0) {
        tree_text(key, number, out, room);
        return;
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* of the table above */
    (void)snprintf(wanted, sizeof wanted, kinds[k].wanted, number);
#pragma GCC diagnostic pop
    (void)snprintf(out, room,
                   "{\"template\":\"python\",\"idempotency_key\":\"%s\",\"stream\":%s,\"command\":["
                   "\"python3\",\"-c\",\"print('output of %d', end='', flush=True); %s\"],"
                   "\"limits\":{%s\"processes\":16},\"expect\":{\"stdout\":\"%s\"},"
                   "\"labels\":{\"verdict\":\"%s\",\"text\":\"output of %d\",\"sandboxes\":\"1\"}}",
                   key, (r >> 40) % 2 ? "true" : "false", number, kinds[k].rest, kinds[k].limits,
                   wanted, kinds[k].verdict, number);
}

static struct job_spec *make_job(bool real, uint64_t seed, int number)
{
    uint64_t r = mix(seed, (uint64_t)number);
    char text[1024], key[64];
    (void)snprintf(key, sizeof key, "chaos-%llu-%d", (unsigned long long)seed, number);
    (real ? real_text : scripted_text)(r, key, number, text, sizeof text);
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
        (void)fprintf(stderr, "usage: chaos_submit scripted|real SEED FIRST N RATE (%s)\n",
                      err.text);
        return 2;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    bool real = strcmp(argv[1], "real") == 0;
    uint64_t seed = strtoull(argv[2], NULL, 10);
    int first = (int)strtol(argv[3], NULL, 10), n = (int)strtol(argv[4], NULL, 10);
    int rate = (int)strtol(argv[5], NULL, 10);
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
            items[i].spec = make_job(real, seed, first + accepted + i);
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
