/* brood-vmpool with a real QEMU and a real template: who dies with whom, and that two forks differ.
 *
 * Needs a built home (BROOD_TEST_HOME: kernel, templates); without one the tests are skipped. Each
 * test serves a home of its own under /tmp whose folders are links to that one, so that snapshots
 * are made once and locks do not clash. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/integration/vmpool/pool_home.h"

#define LEASES 3

Test(vmpool, forks_differ_and_die_when_released, .init = setup, .fini = teardown, .timeout = 600)
{
    struct pool_lease l[LEASES];
    struct guest_result r[LEASES];
    struct err err = { 0 };
    int pids[LEASES];
    static const char *const argv[] = {
        "python3", "-c",
        "import random, uuid, os, time\n"
        "print(random.random(), uuid.uuid4(), os.urandom(8).hex(), end='')\n",
        NULL
    };
    int fd = connect_pool();
    for (int i = 0; i < LEASES; i++) {
        lease(fd, &l[i]);
        pids[i] = pool_lease_pid(&l[i]);
        cr_assert(process_there(pids[i]));
        cr_assert_eq(guest_identity(l[i].channel, TIMEOUT_MS, &err), 0, "%s", err.text);
        cr_assert_eq(guest_run(l[i].channel, argv, TIMEOUT_MS, &r[i], &err), 0, "%s", err.text);
        cr_assert_eq(r[i].exit_code, 0, "%s", r[i].output);
        for (int j = 0; j < i; j++) {
            cr_assert_neq(l[i].reply.lease, l[j].reply.lease);
            cr_assert_str_neq(r[i].output, r[j].output);
        }
    }
    char stat[64] = "";
    cr_assert_gt(pread(l[0].schedstat, stat, sizeof stat - 1, 0), 0);
    cr_assert_gt(strtoll(stat, NULL, 10), 0, "schedstat: %s", stat);
    cr_assert_eq(pool_client_release(fd, &l[0], &err), 0);
    expect_gone(pids[0]);
    cr_assert(process_there(pids[1]), "its sibling lives on");
    /* the rest dies with the connection */
    (void)close(fd);
    for (int i = 1; i < LEASES; i++) {
        expect_gone(pids[i]);
        pool_lease_close(&l[i]);
    }
}

static void setup_too_busy(void)
{
    (void)setenv("BROOD_TEST_EXERCISE_MS", "1", 1);
    setup();
}

/* A host so busy that no exercise ends in time: sandboxes are slower, and there. */
Test(vmpool, without_exercise, .init = setup_too_busy, .fini = teardown, .timeout = 600)
{
    static const char *const argv[] = { "python3", "-c", "print(6 * 7, end='')", NULL };
    pool_StatusReply *s = calloc(1, sizeof *s);
    struct pool_lease l;
    struct guest_result r;
    struct err err = { 0 };
    int fd = connect_pool();
    for (int i = 0; i < 3; i++) {
        lease(fd, &l);
        cr_expect(!l.reply.exercised);
        cr_assert_eq(guest_identity(l.channel, TIMEOUT_MS, &err), 0, "%s", err.text);
        cr_assert_eq(guest_run(l.channel, argv, TIMEOUT_MS, &r, &err), 0, "%s", err.text);
        cr_expect_str_eq(r.output, "42");
        cr_assert_eq(pool_client_release(fd, &l, &err), 0);
        pool_lease_close(&l);
    }
    cr_assert_eq(pool_client_status(fd, s, &err), 0, "%s", err.text);
    cr_expect_eq(s->failures_total, 0u, "being late is no failure");
    free(s);
    (void)close(fd);
}

Test(vmpool, another_client_cannot_release, .init = setup, .fini = teardown, .timeout = 600)
{
    struct pool_lease l, foreign;
    struct err err = { 0 };
    pool_StatusReply *s = calloc(1, sizeof *s);
    int fd = connect_pool(), other = connect_pool();
    lease(fd, &l);
    foreign = l;
    foreign.channel = foreign.schedstat = -1;
    cr_assert_eq(pool_client_release(other, &foreign, &err), 0);
    cr_assert_eq(pool_client_status(other, s, &err), 0, "%s",
                 err.text); /* the release was taken before this */
    const pool_SnapshotStatus *mine = NULL;
    for (unsigned i = 0; i < s->snapshots_count; i++) {
        mine = strcmp(s->snapshots[i].template, template_name()) == 0 ? &s->snapshots[i] : mine;
    }
    cr_assert_not_null(mine);
    cr_assert_eq(mine->leased, 1u);
    cr_assert_str_eq(mine->state, "ready");
    cr_assert_eq(s->leases_total, 1u);
    cr_assert_gt(s->memory_used_mib, 0u);
    cr_assert_eq(pool_client_lease(other, "no-such-template", false, &foreign, &err),
                 -ERR_NOT_FOUND);
    cr_assert_eq(pool_client_lease(other, "../../etc", false, &foreign, &err), -ERR_INVALID);
    cr_assert(process_there(pool_lease_pid(&l)));
    pool_lease_close(&l);
    free(s);
    (void)close(fd);
    (void)close(other);
}

Test(vmpool, kill_9_leaves_nothing, .init = setup, .fini = teardown, .timeout = 600)
{
    struct pool_lease l;
    int all[256];
    int fd = connect_pool();
    lease(fd, &l);
    int n = descendants(pool.pid, all, 256);
    bool found = false;
    for (int i = 0; i < n; i++) {
        found = found || all[i] == pool_lease_pid(&l);
    }
    cr_assert(found, "the sandbox is not among %d descendants", n);
    cr_assert_eq(kill(pool.pid, SIGKILL), 0);
    cr_assert_eq(waitpid(pool.pid, NULL, 0), pool.pid);
    pool.pid = 0;
    for (int i = 0; i < n; i++) {
        expect_gone(all[i]);
    }
    pool_lease_close(&l);
    (void)close(fd);
    /* and its lock and socket do not hinder the next one */
    pool.pid = start_pool(pool.log);
    fd = connect_pool();
    lease(fd, &l);
    pool_lease_close(&l);
    (void)close(fd);
}

Test(vmpool, one_home_one_pool_and_a_clean_end, .init = setup, .fini = teardown, .timeout = 600)
{
    struct pool_lease l;
    int status, all[256];
    char second_log[128], text[512] = "";
    int fd = connect_pool();
    lease(fd, &l);
    (void)snprintf(second_log, sizeof second_log, "%s/second", pool.home);
    pid_t second = start_pool(second_log);
    cr_assert_eq(waitpid(second, &status, 0), second);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    FILE *f = fopen(second_log, "re");
    cr_assert(f);
    (void)!fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    cr_assert(strstr(text, "another brood-vmpool serves the home"), "%s", text);

    int n = descendants(pool.pid, all, 256);
    cr_assert_eq(kill(pool.pid, SIGTERM), 0);
    cr_assert_eq(waitpid(pool.pid, &status, 0), pool.pid);
    pool.pid = 0;
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_neq(access(pool.socket, F_OK), 0, "the socket is still there");
    for (int i = 0; i < n; i++) {
        expect_gone(all[i]);
    }
    pool_lease_close(&l);
    (void)close(fd);
}

/* A seed's command line asks for the state to be loaded and it was not made by a copy: its name is
 * still QEMU's. */
static int find_seed(void)
{
    int pids[64];
    int n = descendants((int)pool.pid, pids, 64);
    for (int i = 0; i < n; i++) {
        char path[64], comm[32] = "";
        (void)snprintf(path, sizeof path, "/proc/%d/comm", pids[i]);
        FILE *f = fopen(path, "re");
        bool named = f && fgets(comm, sizeof comm, f) && strncmp(comm, "qemu-system", 11) == 0;
        if (f) {
            (void)fclose(f);
        }
        if (named) {
            return pids[i];
        }
    }
    return 0;
}

/* The seed is only a helper: when it dies, its copies live on, and leases are served. */
Test(vmpool, a_dead_seed_harms_nobody, .init = setup, .fini = teardown, .timeout = 600)
{
    struct pool_lease before, after;
    struct guest_result r;
    struct err err = { 0 };
    static const char *const argv[] = { "python3", "-c", "print(6 * 7, end='')", NULL };
    int fd = connect_pool();
    lease(fd, &before);
    cr_assert_eq(guest_identity(before.channel, TIMEOUT_MS, &err), 0, "%s", err.text);
    int seed = find_seed();
    cr_assert_gt(seed, 0, "no seed");
    cr_assert_neq(seed, pool_lease_pid(&before), "what is leased is a copy");
    cr_assert_eq(kill(seed, SIGKILL), 0);
    expect_gone(seed);
    for (int i = 0; i < LEASES; i++) { /* warm copies first, then what is loaded or copied anew */
        lease(fd, &after);
        cr_assert_eq(guest_identity(after.channel, TIMEOUT_MS, &err), 0, "%s", err.text);
        cr_assert_eq(guest_run(after.channel, argv, TIMEOUT_MS, &r, &err), 0, "%s", err.text);
        cr_assert_str_eq(r.output, "42");
        cr_assert_eq(pool_client_release(fd, &after, &err), 0);
        pool_lease_close(&after);
    }
    cr_assert_eq(guest_run(before.channel, argv, TIMEOUT_MS, &r, &err), 0, "%s", err.text);
    cr_assert_str_eq(r.output, "42");
    pool_lease_close(&before);
    (void)close(fd);
}

/* Lines of vmpool's log that hold text. */
static int said(const char *text)
{
    char line[4096];
    int n = 0;
    FILE *log = fopen(pool.log, "re");
    while (log && fgets(line, sizeof line, log)) {
        n += strstr(line, text) != NULL;
    }
    if (log) {
        (void)fclose(log);
    }
    return n;
}

/* Clock ticks of processor that it has used. */
static long ticks_used(pid_t pid)
{
    char path[64], text[1024] = "";
    unsigned long user = 0, system = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    cr_assert(f && fgets(text, sizeof text, f));
    (void)fclose(f);
    cr_assert_eq(sscanf(strrchr(text, ')') + 1,
                        "%*s %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system),
                 2);
    return (long)(user + system);
}

/* At the limit of descriptors who comes anew waits, who is there is served, the loop does not spin;
 * afterwards all is as before. */
Test(vmpool, without_descriptors_new_clients_wait, .init = setup, .fini = teardown, .timeout = 600)
{
    struct rlimit was, none;
    struct pool_lease l;
    struct err err = { 0 };
    pool_StatusReply *s = calloc(1, sizeof *s);
    int fd = connect_pool();
    lease(fd, &l);
    cr_assert_eq(pool_client_release(fd, &l, &err), 0);
    pool_lease_close(&l);
    cr_assert_eq(prlimit(pool.pid, RLIMIT_NOFILE, NULL, &was), 0);
    none = (struct rlimit){ .rlim_cur = 3, .rlim_max = was.rlim_max };
    cr_assert_eq(prlimit(pool.pid, RLIMIT_NOFILE, &none, NULL), 0);
    int other = connect_pool();
    for (int64_t end = mono_ms() + GONE_MS; said("no more clients for now") == 0;) {
        cr_assert_lt(mono_ms(), end, "it did not say so");
        sleep_ms(10);
    }
    sleep_ms(1000); /* what else it tries now has failed by then */
    long ticks = ticks_used(pool.pid);
    sleep_ms(1000);
    ticks = ticks_used(pool.pid) - ticks;
    cr_expect_lt(ticks, sysconf(_SC_CLK_TCK) / 4, "%ld ticks in a second: it spins", ticks);
    cr_expect_eq(said("no more clients for now"), 1);
    cr_assert_eq(pool_client_status(fd, s, &err), 0, "%s", err.text);
    cr_assert_eq(prlimit(pool.pid, RLIMIT_NOFILE, &was, NULL), 0);
    cr_assert_eq(pool_client_status(other, s, &err), 0, "%s", err.text);
    cr_expect_eq(said("clients are taken again"), 1);
    int rc = -1;
    for (int64_t end = mono_ms() + TIMEOUT_MS; rc < 0 && mono_ms() < end; sleep_ms(100)) {
        rc = pool_client_lease(other, template_name(), false, &l, &err); /* it backs off at first */
    }
    cr_assert_eq(rc, 0, "%s", err.text);
    pool_lease_close(&l);
    free(s);
    (void)close(fd);
    (void)close(other);
}

static int count_fds(pid_t pid)
{
    char path[64];
    int n = -2; /* . and .. */
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    cr_assert_not_null(dir);
    while (readdir(dir)) {
        n++;
    }
    (void)closedir(dir);
    return n;
}

static int limit_fds(int n, struct rlimit *ret_was)
{
    cr_assert_eq(prlimit(pool.pid, RLIMIT_NOFILE, NULL, ret_was), 0);
    struct rlimit few = { .rlim_cur = (rlim_t)n, .rlim_max = ret_was->rlim_max };
    return prlimit(pool.pid, RLIMIT_NOFILE, &few, NULL);
}

static void setup_low_limit(void)
{
    struct rlimit few;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &few), 0);
    few.rlim_cur = 256;
    (void)setenv("BROOD_POOL_WARM_MAX", "1", 1);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    setup();
}

/* Wherever in the start of a machine the descriptors run out: it is said that there is no room, and
 * nothing else ends or is given up for it. */
Test(vmpool, without_descriptors_no_machine_is_lost, .init = setup_low_limit, .fini = teardown,
     .timeout = 600)
{
    struct rlimit was, whole;
    struct pool_lease l, fork;
    struct err err = { 0 };
    int fd = connect_pool(), n = 0, rc = -ERR_NO_CAPACITY, all[256];
    cr_assert_eq(prlimit(pool.pid, RLIMIT_NOFILE, NULL, &whole), 0);
    cr_expect_eq(whole.rlim_cur, whole.rlim_max, "as many as the host allows");
    lease(fd, &l);
    cr_assert_eq(guest_identity(l.channel, TIMEOUT_MS, &err), 0, "%s", err.text);
    cr_assert_eq(guest_settle(l.channel, TIMEOUT_MS, &err), 0, "%s", err.text);
    cr_assert_eq(pool_client_freeze(fd, &l, &err), 0, "%s", err.text);
    int before = descendants(pool.pid, all, 256);
    for (int used = count_fds(pool.pid); rc != 0 && n < 64; n++) {
        cr_assert_eq(limit_fds(used + n, &was), 0);
        rc = pool_client_fork(fd, l.reply.lease, &fork, &err);
        cr_assert_eq(prlimit(pool.pid, RLIMIT_NOFILE, &was, NULL), 0);
        cr_assert(rc == 0 || rc == -ERR_NO_CAPACITY, "with %d: %s", n, err.text);
    }
    cr_expect(rc == 0 && n > 8, "%d tries", n);
    cr_expect(process_there(pool_lease_pid(&l)));
    cr_assert_eq(pool_client_release(fd, &fork, &err), 0);
    expect_gone(pool_lease_pid(&fork));
    for (int64_t end = mono_ms() + GONE_MS; mono_ms() < end; sleep_ms(20)) {
        if (descendants(pool.pid, all, 256) <= before + 1) { /* perhaps one more that is warm */
            break;
        }
    }
    cr_expect_leq(descendants(pool.pid, all, 256), before + 1, "a machine that nobody has");
    pool_lease_close(&fork);
    pool_lease_close(&l);
    lease(fd, &l);
    pool_lease_close(&l);
    (void)close(fd);
}

static void setup_written(void)
{
    (void)setenv("BROOD_TEST_NO_SEED", "1", 1);
    setup();
}

/* As with KVM: no machine is copied, frozen ones are written out and forks loaded from that. */
Test(vmpool, a_tree_of_states_that_are_written_out, .init = setup_written, .fini = teardown,
     .timeout = 300)
{
    char command[512];
    (void)snprintf(command, sizeof command, "%s/brood-fork-tree %s %s 4 2>&1", BROOD_BINARY_DIR,
                   pool.socket, template_name());
    (void)close(connect_pool());
    FILE *out = popen(command, "re");
    char text[2048] = "";
    cr_assert_not_null(out);
    size_t n = fread(text, 1, sizeof text - 1, out);
    text[n] = 0;
    cr_assert_eq(pclose(out), 0, "%s", text);
    cr_assert_eq(strncmp(text, "{", 1), 0, "%s", text);
}
