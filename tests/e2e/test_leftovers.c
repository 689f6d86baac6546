/* After `brood down`, and after kill -9 of everything at once and the next `brood up`: nothing of
 * ours is left over. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "tests/e2e/cli.h"

#define UP_MS 600000
#define GONE_MS 30000

static const char *const parts[] = { "brood", "vmpool",       "worker",  "scheduler",
                                     "qemu",  "redis-server", "postgres" };
#define N_PARTS (sizeof parts / sizeof parts[0])

/* Distinct processes of the home, of all parts. */
static int all_pids(pid_t *ret_pids, int max)
{
    int n = 0;
    for (size_t i = 0; i < N_PARTS; i++) {
        pid_t some[E2E_PIDS_MAX];
        int m = e2e_pids(parts[i], some, E2E_PIDS_MAX);
        for (int k = 0; k < m; k++) {
            bool known = false;
            for (int j = 0; j < n; j++) {
                known = known || ret_pids[j] == some[k];
            }
            if (!known && n < max) {
                ret_pids[n++] = some[k];
            }
        }
    }
    return n;
}

/* A zombie waits for the host's init to reap it, which is not ours to hurry. */
static bool running(pid_t pid)
{
    char path[64], text[512] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f) {
        return false;
    }
    size_t n = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    text[n] = 0;
    const char *state = strrchr(text, ')');
    return state && strlen(state) > 2 && state[2] != 'Z' && state[2] != 'X';
}

static int still_alive(const pid_t *pids, int n)
{
    int alive = 0;
    for (int i = 0; i < n; i++) {
        alive += running(pids[i]);
    }
    return alive;
}

static int found; /* of the nftw walks */
static char found_path[512];
static const char *wanted_name;

static int count_named_dir(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    if (type == FTW_D && strstr(path + ftw->base, wanted_name)) {
        found++;
        (void)snprintf(found_path, sizeof found_path, "%s", path);
    }
    return 0;
}

static int count_socket(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)ftw;
    if (type == FTW_F && S_ISSOCK(st->st_mode)) {
        found++;
        (void)snprintf(found_path, sizeof found_path, "%s", path);
    }
    return 0;
}

/* The last part of the run folder is the home's own hash: it names the home's cgroups too. */
static int cgroups_left(void)
{
    const char *slash = strrchr(e2e_config()->run_dir, '/');
    wanted_name = slash ? slash + 1 : e2e_config()->run_dir;
    found = 0;
    (void)nftw("/sys/fs/cgroup", count_named_dir, 64, FTW_PHYS);
    return found;
}

static int sockets_in(const char *dir)
{
    found = 0;
    (void)nftw(dir, count_socket, 64, FTW_PHYS);
    return found;
}

static bool mounted_below_home(void)
{
    cleanup_buf struct buf mounts = { 0 };
    struct err err;
    buf_init(&mounts, 16u << 20);
    cr_assert_eq(buf_read_file(&mounts, "/proc/self/mountinfo", &err), 0);
    char home[CONFIG_STR_MAX + 2], run[CONFIG_STR_MAX + 2];
    (void)snprintf(home, sizeof home, "%s/", e2e_config()->home);
    (void)snprintf(run, sizeof run, "%s/", e2e_config()->run_dir);
    return strstr(mounts.data, home) || strstr(mounts.data, run);
}

static void nothing_is_left(void)
{
    pid_t pids[E2E_PIDS_MAX * 4];
    int64_t deadline_ms = mono_ms() + GONE_MS;
    int n;
    while ((n = all_pids(pids, E2E_PIDS_MAX * 4)) > 0 && mono_ms() < deadline_ms) {
        sleep_ms(100);
    }
    cr_expect_eq(n, 0, "%d processes are left, the first is %d", n, (int)pids[0]);
    cr_expect_eq(cgroups_left(), 0, "%s is left", found_path);
    cr_expect_eq(sockets_in(e2e_config()->run_dir), 0, "%s is left", found_path);
    cr_expect_not(mounted_below_home(), "something is mounted below the home");
    cr_expect_neq(access(e2e_config()->run_dir, F_OK), 0, "%s is left", e2e_config()->run_dir);
}

static void up(void)
{
    cleanup_e2e_run struct e2e_run r;
    e2e_run(&r, (const char *const[]){ E2E_SOURCE_DIR "/tests/e2e/fixture.sh", "again", NULL },
            NULL, UP_MS);
    cr_assert_eq(r.exit_code, 0, "up: %s%s", r.out.data, r.err.data);
}

static void a_job_runs(void)
{
    json_t *jobs = json_pack("[o]", e2e_python("print('well')\n"));
    json_t *results = e2e_run_batch(jobs);
    cr_expect_str_eq(e2e_verdict(json_array_get(results, 0)), "accepted");
    json_decref(results);
    json_decref(jobs);
}

/* A job whose artifact comes into the store and out of it again. */
static void an_artifact_is_kept(void)
{
    json_t *job = e2e_shell("echo $$.$(date +%s%N) > out.txt"), *jobs = json_array();
    (void)json_object_set_new(job, "artifacts", json_pack("[s]", "out.txt"));
    (void)json_array_append_new(jobs, job);
    json_t *results = e2e_run_batch(jobs);
    const json_t *r = json_array_get(results, 0);
    const char *id = json_string_value(e2e_at(r, "job"));
    cr_expect_str_eq(e2e_verdict(r), "accepted");
    cr_expect_eq(e2e_sql("SELECT count(*) FROM artifacts WHERE job_id = '%s' AND stored", id), 1);
    cleanup_e2e_run struct e2e_run out;
    E2E_BROOD(&out, E2E_SHORT_MS, "artifacts", id, "--tar", "-");
    cr_expect(out.exit_code == 0 && out.out.len > 0, "%s", out.err.data);
    json_decref(results);
    json_decref(jobs);
}

/* As a home looks whose services were all root, and where root has put things by hand. */
static void make_it_roots(void)
{
    cleanup_e2e_run struct e2e_run r;
    char line[2048];
    if (geteuid() != 0) {
        return;
    }
    (void)snprintf(line, sizeof line,
                   "cd '%s' && for d in objects kept spool; do [ ! -e $d ] || { chown -R 0:0 $d && "
                   "find $d -type d -exec chmod 0700 {} +; }; done",
                   e2e_config()->home);
    e2e_run(&r, (const char *const[]){ "sh", "-c", line, NULL }, NULL, E2E_SHORT_MS);
    cr_assert_eq(r.exit_code, 0, "%s", r.err.data);
}

/* An empty run folder of a home that is not running, last touched an hour ago; its path. */
static const char *make_stale_run_dir(void)
{
    static char path[CONFIG_STR_MAX];
    struct timespec old[2] = { { .tv_sec = time(NULL) - 3600 }, { .tv_sec = time(NULL) - 3600 } };
    (void)snprintf(path, sizeof path, "%s", e2e_config()->run_dir);
    char *last = path + strlen(path) - 1;
    *last = *last == '0' ? '1' : '0';
    cr_assert(mkdir(path, 0711) == 0 || errno == EEXIST, "%s", path);
    cr_assert_eq(utimensat(AT_FDCWD, path, old, 0), 0);
    return path;
}

Test(leftovers, a_down_leaves_nothing_and_can_be_repeated)
{
    a_job_runs();
    for (int i = 0; i < 2; i++) {
        cleanup_e2e_run struct e2e_run r;
        E2E_BROOD(&r, E2E_SHORT_MS, "down");
        cr_expect_eq(r.exit_code, 0, "down: %s%s", r.out.data, r.err.data);
        nothing_is_left();
    }
    const char *stale = make_stale_run_dir();
    up();
    cr_expect_neq(access(stale, F_OK), 0, "%s is left", stale);
    a_job_runs();
}

Test(leftovers, b_kill_of_everything_is_cleared_by_the_next_up)
{
    json_t *jobs = json_array();
    for (int i = 0; i < 10; i++) {
        (void)json_array_append_new(jobs,
                                    e2e_python("import time\ntime.sleep(1)\nprint('done')\n"));
    }
    cleanup_free char *batch = e2e_submit(jobs);
    json_decref(jobs);
    sleep_ms(1000);
    pid_t pids[E2E_PIDS_MAX * 4];
    int n = all_pids(pids, E2E_PIDS_MAX * 4);
    cr_assert_gt(n, 5, "only %d processes were found", n);
    for (int i = 0; i < n; i++) {
        (void)kill(pids[i], SIGKILL);
    }
    make_it_roots();
    up();
    cr_expect_eq(still_alive(pids, n), 0, "processes of the first life are left");
    json_t *results = e2e_wait_results(batch, E2E_BATCH_MS);
    for (size_t i = 0; i < json_array_size(results); i++) {
        cr_expect_str_eq(e2e_verdict(json_array_get(results, i)), "accepted", "job %zu: %s", i,
                         e2e_verdict(json_array_get(results, i)));
    }
    json_decref(results);
    an_artifact_is_kept();

    cleanup_e2e_run struct e2e_run r;
    E2E_BROOD(&r, E2E_SHORT_MS, "down");
    cr_expect_eq(r.exit_code, 0, "down: %s%s", r.out.data, r.err.data);
    nothing_is_left();
    up();
}
