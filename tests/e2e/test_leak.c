/* After a hundred jobs the file descriptors of worker and vmpool are as many as before, and only
 * the warm machines are left. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/e2e/cli.h"

#define JOBS 100
#define SETTLE_MS 60000
#define FD_SLACK 4 /* a connection that is just being made again */

/* The service itself: what vmpool starts for its jail is of the same program, under other names. */
static pid_t service(const char *name)
{
    pid_t pids[E2E_PIDS_MAX], found = 0;
    int n = e2e_pids(name, pids, E2E_PIDS_MAX), services = 0;
    for (int i = 0; i < n; i++) {
        char path[64], comm[32] = "", want[32];
        (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)pids[i]);
        (void)snprintf(want, sizeof want, "brood-%s\n", name);
        cleanup_fclose FILE *f = fopen(path, "re");
        if (f && fgets(comm, sizeof comm, f) && strcmp(comm, want) == 0) {
            found = pids[i];
            services++;
        }
    }
    cr_assert_eq(services, 1, "%d of %d processes are %s itself", services, n, name);
    return found;
}

static int fds_of(const char *name)
{
    int fds = 0;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)service(name));
    DIR *dir = opendir(path);
    cr_assert_not_null(dir);
    while (readdir(dir)) {
        fds++;
    }
    (void)closedir(dir);
    return fds;
}

static void run_jobs(int n)
{
    json_t *jobs = json_array();
    for (int i = 0; i < n; i++) {
        (void)json_array_append_new(jobs, e2e_python("print(1)\n"));
    }
    json_t *results = e2e_run_batch(jobs), *result;
    size_t i;
    json_array_foreach(results, i, result)
    {
        cr_expect_str_eq(e2e_verdict(result), "accepted");
    }
    json_decref(results);
    json_decref(jobs);
}

/* Until the pool is as full as it means to be and holds still: its number of machines does not
 * change for two seconds. */
static int settled_qemus(void)
{
    pid_t pids[E2E_PIDS_MAX];
    int last = -1;
    int64_t deadline_ms = mono_ms() + SETTLE_MS, same_since_ms = mono_ms();
    while (mono_ms() < deadline_ms && mono_ms() - same_since_ms < 2000) {
        int n = e2e_pids("qemu", pids, E2E_PIDS_MAX);
        if (n != last) {
            last = n;
            same_since_ms = mono_ms();
        }
        sleep_ms(100);
    }
    return last;
}

Test(leak, descriptors_and_machines_are_flat)
{
    run_jobs(20);
    int qemus_before = settled_qemus(), worker_before = fds_of("worker"),
        pool_before = fds_of("vmpool");
    run_jobs(JOBS);
    int qemus = settled_qemus(), worker = fds_of("worker"), pool = fds_of("vmpool");
    cleanup_e2e_run struct e2e_run r;
    E2E_BROOD(&r, E2E_SHORT_MS, "status", "--json");
    int64_t most = e2e_config()->pool_warm_max;
    cr_expect_leq(qemus, (int)most * 2,
                  "%d machines; at most %lld warm ones for each of two templates", qemus,
                  (long long)most);
    cr_expect_leq(worker, worker_before + FD_SLACK, "worker: %d descriptors, were %d", worker,
                  worker_before);
    /* A warm machine more or less has some descriptors of its own in vmpool. */
    int per_machine = qemus_before > 0 ? pool_before / qemus_before + 1 : 8;
    int grown = qemus > qemus_before ? (qemus - qemus_before) * per_machine : 0;
    cr_expect_leq(pool, pool_before + FD_SLACK + grown,
                  "vmpool: %d descriptors for %d machines, were %d for %d", pool, qemus,
                  pool_before, qemus_before);
}
