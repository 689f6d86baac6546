/* brood-bench-lease: what vmpool's part of a run costs. Talks to a running vmpool:
 *
 *   brood-bench-lease SOCKET TEMPLATE N_IDLE SECONDS_SATURATED SLOTS -- CMD...
 *
 * Idle: N leases one after the other, each with a warm sandbox waiting: time of the lease, of
 * identity, to the first byte of CMD's output, the private memory of the clone afterwards, its CPU
 * time before and during. Saturated: SLOTS threads lease, run CMD, release for some seconds. Prints
 * one JSON object. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <jansson.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/integration/vmpool/figures.h"
#include "tests/integration/vmpool/pool_client.h"

#define SAMPLES_MAX 2000
#define SLOTS_MAX 64
#define RUN_TIMEOUT_MS 20000
#define WARM_WAIT_MS 30000

static void die(const char *what, const struct err *err)
{
    (void)fprintf(stderr, "brood-bench-lease: %s: %s\n", what, err->text);
    exit(1);
}

/* CPU time of a process, all threads, in ms. */
static double cpu_ms(int pid)
{
    clockid_t clock;
    struct timespec ts;
    if (pid <= 0 || clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &ts) < 0) {
        return 0;
    }
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

/* Page faults that needed no disk, all threads. */
static double faults(int pid)
{
    char path[64], text[1024];
    unsigned long minor = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    const char *after = strrchr(text, ')');
    if (after) {
        (void)sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %lu", &minor);
    }
    if (f) {
        (void)fclose(f);
    }
    return (double)minor;
}

static void wait_warm(int fd, const char *name)
{
    struct err err;
    pool_StatusReply *s = calloc(1, sizeof *s);
    for (int64_t until = mono_ms() + WARM_WAIT_MS; s && mono_ms() < until; sleep_ms(20)) {
        if (pool_client_status(fd, s, &err) < 0) {
            die("status", &err);
        }
        for (int i = 0; i < s->snapshots_count; i++) {
            const pool_SnapshotStatus *o = &s->snapshots[i];
            if (strcmp(o->template, name) == 0 && o->warm > 0 && o->warm >= o->target &&
                o->starting == 0) {
                free(s);
                return;
            }
        }
    }
    free(s);
}

static json_t *bench_idle(const char *path, const char *name, int n, const char *const *cmd)
{
    static double lease[SAMPLES_MAX], identity[SAMPLES_MAX], first[SAMPLES_MAX], total[SAMPLES_MAX],
        mem[SAMPLES_MAX], all[SAMPLES_MAX], cpu_before[SAMPLES_MAX], cpu_run[SAMPLES_MAX],
        faults_before[SAMPLES_MAX], faults_run[SAMPLES_MAX];
    struct err err;
    int fd = pool_client_connect(path, 5000, &err);
    int exercised = 0, warm = 0, warm_run = 0;
    if (fd < 0) {
        die("connect", &err);
    }
    n = n > SAMPLES_MAX ? SAMPLES_MAX : n;
    for (int i = 0; i < n; i++) {
        struct pool_lease l;
        struct guest_result r;
        wait_warm(fd, name);
        int64_t t0 = mono_us();
        if (pool_client_lease(fd, name, false, &l, &err) < 0) {
            die("lease", &err);
        }
        int64_t t1 = mono_us();
        int pid = pool_lease_pid(&l);
        cpu_before[i] = cpu_ms(pid);
        faults_before[i] = faults(pid);
        if (guest_identity(l.channel, RUN_TIMEOUT_MS, &err) < 0) {
            die("identity", &err);
        }
        int64_t t2 = mono_us();
        if (guest_run(l.channel, cmd, RUN_TIMEOUT_MS, &r, &err) < 0) {
            die("run", &err);
        }
        cpu_run[i] = cpu_ms(pid) - cpu_before[i];
        faults_run[i] = faults(pid) - faults_before[i];
        lease[i] = (double)l.lease_us / 1e3;
        identity[i] = (double)(t2 - t1) / 1e3;
        first[i] = (double)r.first_byte_us / 1e3;
        all[i] = (double)(t2 - t0 + r.first_byte_us) / 1e3;
        total[i] = (double)r.total_us / 1e3;
        mem[i] = figures_private_mib(pid);
        exercised += l.reply.exercised;
        warm += l.reply.warm;
        warm_run += r.warm;
        if (i == 0) {
            (void)fprintf(stderr, "output: %s\n", r.output);
        }
        if (pool_client_release(fd, &l, &err) < 0) {
            die("release", &err);
        }
    }
    (void)close(fd);
    return json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:i,s:i,s:i}", "lease_ms",
        figures_quantiles(lease, n), "identity_ms", figures_quantiles(identity, n),
        "run_first_byte_ms", figures_quantiles(first, n), "lease_to_first_byte_ms",
        figures_quantiles(all, n), "run_total_ms", figures_quantiles(total, n), "clone_private_mib",
        figures_quantiles(mem, n), "cpu_ms_before_lease", figures_quantiles(cpu_before, n),
        "cpu_ms_of_run", figures_quantiles(cpu_run, n), "faults_before_lease",
        figures_quantiles(faults_before, n), "faults_of_run", figures_quantiles(faults_run, n),
        "exercised", exercised, "warm", warm, "warm_interpreter", warm_run);
}

struct slot {
    pthread_t thread;
    const char *path, *name;
    const char *const *cmd;
    int64_t until_ms;
    int runs, failed;
};

static void *slot_main(void *arg)
{
    struct slot *s = arg;
    struct err err;
    int fd = pool_client_connect(s->path, 5000, &err);
    while (fd >= 0 && mono_ms() < s->until_ms) {
        struct pool_lease l;
        struct guest_result r;
        if (pool_client_lease(fd, s->name, true, &l, &err) < 0) {
            s->failed++;
            sleep_ms(10);
            continue;
        }
        if (guest_identity(l.channel, RUN_TIMEOUT_MS, &err) < 0 ||
            guest_run(l.channel, s->cmd, RUN_TIMEOUT_MS, &r, &err) < 0 || r.exit_code != 0) {
            s->failed++;
        } else {
            s->runs++;
        }
        if (pool_client_release(fd, &l, &err) < 0) {
            break;
        }
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return NULL;
}

static json_t *bench_saturated(const char *path, const char *name, int seconds, int slots,
                               const char *const *cmd)
{
    static struct slot s[SLOTS_MAX];
    int runs = 0, failed = 0;
    slots = slots > SLOTS_MAX ? SLOTS_MAX : slots;
    int64_t t0 = mono_us();
    for (int i = 0; i < slots; i++) {
        s[i] = (struct slot){
            .path = path, .name = name, .cmd = cmd, .until_ms = mono_ms() + seconds * 1000
        };
        if (pthread_create(&s[i].thread, NULL, slot_main, &s[i]) != 0) {
            abort();
        }
    }
    for (int i = 0; i < slots; i++) {
        (void)pthread_join(s[i].thread, NULL);
        runs += s[i].runs;
        failed += s[i].failed;
    }
    double s_taken = (double)(mono_us() - t0) / 1e6;
    return json_pack("{s:f,s:i,s:i,s:f}", "runs_per_s", runs / s_taken, "runs", runs, "failed",
                     failed, "seconds", s_taken);
}

int main(int argc, char **argv)
{
    if (argc < 8 || strcmp(argv[6], "--") != 0) {
        (void)fprintf(
            stderr,
            "use: brood-bench-lease SOCKET TEMPLATE N_IDLE SECONDS_SATURATED SLOTS -- CMD...\n");
        return 2;
    }
    const char *const *cmd = (const char *const *)&argv[7];
    int n = (int)strtol(argv[3], NULL, 10), seconds = (int)strtol(argv[4], NULL, 10);
    int slots = (int)strtol(argv[5], NULL, 10);
    json_t *out = json_object();
    if (n > 0) {
        (void)json_object_set_new(out, "idle", bench_idle(argv[1], argv[2], n, cmd));
    }
    if (seconds > 0) {
        (void)json_object_set_new(out, "saturated",
                                  bench_saturated(argv[1], argv[2], seconds, slots, cmd));
    }
    char *text = json_dumps(out, JSON_INDENT(1) | JSON_REAL_PRECISION(4));
    (void)puts(text);
    free(text);
    json_decref(out);
    return 0;
}
