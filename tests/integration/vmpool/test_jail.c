/* A machine's QEMU seen from outside: whose it is, what it can reach, what ends with it. Copies of
 * a seed, forks of a frozen sandbox, and machines that are loaded from the snapshot. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/integration/vmpool/pool_home.h"

#define UIDS_FIRST 0x70000000ul /* config_uids */
#define OVERHEAD_MIB 320ull
#define NOBODY 65534
#define FORKS 36
#define STRING_(x) #x
#define STRING(x) STRING_(x)

struct jailed {
    int pid;
    unsigned long uid;
    char cgroup[600]; /* folder of its memory cgroup; "" when the host has none that may be used */
};

static bool as_root(void)
{
    return geteuid() == 0;
}

static void status_field(int pid, const char *name, char *out, size_t room)
{
    char path[64], line[512];
    size_t len = strlen(name);
    (void)snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "re");
    *out = 0;
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, name, len) == 0 && line[len] == ':') {
            char *value = line + len + 1 + strspn(line + len + 1, " \t");
            value[strcspn(value, "\n")] = 0;
            (void)snprintf(out, room, "%s", value);
        }
    }
    if (f) {
        (void)fclose(f);
    }
}

static void expect_field(int pid, const char *name, const char *want)
{
    char have[128];
    status_field(pid, name, have, sizeof have);
    cr_expect_str_eq(have, want, "%s of process %d: %s", name, pid, have);
}

static void expect_limit(int pid, const char *name, const char *soft_and_hard)
{
    char path[64], line[256], soft[32], hard[32], both[72] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/limits", pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, name, strlen(name)) == 0 &&
            sscanf(line + strlen(name), "%31s %31s", soft, hard) == 2) {
            (void)snprintf(both, sizeof both, "%s %s", soft, hard);
        }
    }
    if (f) {
        (void)fclose(f);
    }
    cr_expect_str_eq(both, soft_and_hard, "%s of process %d: %s", name, pid, both);
}

/* Folder of its cgroup, v1's memory or v2's. */
static void find_cgroup(int pid, char *out, size_t room)
{
    char path[64], line[512];
    (void)snprintf(path, sizeof path, "/proc/%d/cgroup", pid);
    FILE *f = fopen(path, "re");
    *out = 0;
    while (f && fgets(line, sizeof line, f)) {
        char *at = strstr(line, ":memory:");
        line[strcspn(line, "\n")] = 0;
        if (strstr(line, "/vm-") && (at || strncmp(line, "0::", 3) == 0)) {
            (void)snprintf(out, room, "/sys/fs/cgroup%s%s", at ? "/memory" : "",
                           at ? at + 8 : line + 3);
        }
    }
    if (f) {
        (void)fclose(f);
    }
}

static unsigned long long cgroup_limit(const char *folder)
{
    static const char *const files[] = { "memory.limit_in_bytes", "memory.max" };
    unsigned long long value = 0;
    for (int i = 0; i < 2 && value == 0; i++) {
        char path[700];
        (void)snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        FILE *f = fopen(path, "re");
        if (f && fscanf(f, "%llu", &value) != 1) {
            value = 0;
        }
        if (f) {
            (void)fclose(f);
        }
    }
    return value;
}

static bool own_namespace(int pid, const char *name)
{
    char path[64], its[64] = "", ours[64] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, name);
    cr_assert_gt(readlink(path, its, sizeof its - 1), 0, "%s", path);
    (void)snprintf(path, sizeof path, "/proc/self/ns/%s", name);
    cr_assert_gt(readlink(path, ours, sizeof ours - 1), 0);
    return strcmp(its, ours) != 0;
}

/* Everything that a machine's root has, and that nothing of it can be written. */
static void look_at_root(int pid)
{
    static const char *const there[] = {
        "brood-qemu-seed.so", "dev", "lib", "lib64", "proc", "usr"
    };
    char path[96];
    int seen = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/root/", pid);
    DIR *dir = opendir(path);
    struct dirent *e;
    cr_assert_not_null(dir);
    while ((e = readdir(dir))) {
        bool known = e->d_name[0] == '.';
        for (size_t i = 0; i < sizeof there / sizeof there[0]; i++) {
            known = known || strcmp(e->d_name, there[i]) == 0;
        }
        cr_expect(known, "%s in a jail's root", e->d_name);
        seen++;
    }
    (void)closedir(dir);
    cr_expect_eq(seen, 8);
    (void)snprintf(path, sizeof path, "/proc/%d/mountinfo", pid);
    FILE *f = fopen(path, "re");
    char line[1024], at[256], options[256];
    int mounts = 0;
    while (f && fgets(line, sizeof line, f)) {
        cr_assert_eq(sscanf(line, "%*s %*s %*s %*s %255s %255s", at, options), 2);
        cr_expect(strcmp(at, "/proc") == 0 || strncmp(options, "ro,", 3) == 0, "%s", line);
        cr_expect(strstr(options, "nosuid"), "%s", line);
        mounts++;
    }
    if (f) {
        (void)fclose(f);
    }
    cr_expect(mounts >= 5 && mounts < 12, "%d mounts", mounts);
}

static struct jailed look_at(int pid, unsigned memory_mib)
{
    static const char *const namespaces[] = { "mnt", "pid", "ipc", "uts", "net" };
    struct jailed j = { .pid = pid };
    char text[128];
    unsigned long ids[4];
    status_field(pid, "Uid", text, sizeof text);
    cr_assert_eq(sscanf(text, "%lu %lu %lu %lu", &ids[0], &ids[1], &ids[2], &ids[3]), 4, "%s",
                 text);
    for (int i = 0; i < 4; i++) {
        cr_expect(ids[i] >= UIDS_FIRST && ids[i] == ids[0], "Uid: %s", text);
    }
    j.uid = ids[0];
    char gids[128];
    status_field(pid, "Gid", gids, sizeof gids);
    cr_expect_str_eq(gids, text, "the group is numbered as the user");
    expect_field(pid, "Groups", "");
    expect_field(pid, "CapInh", "0000000000000000");
    expect_field(pid, "CapPrm", "0000000000000000");
    expect_field(pid, "CapEff", "0000000000000000");
    expect_field(pid, "CapBnd", "0000000000000000");
    expect_field(pid, "CapAmb", "0000000000000000");
    expect_field(pid, "NoNewPrivs", "1");
    expect_field(pid, "Seccomp", "2");
    expect_limit(pid, "Max core file size", "0 0");
    expect_limit(pid, "Max open files", "256 256");
    expect_limit(pid, "Max processes", "4096 4096");
    char size[64];
    (void)snprintf(size, sizeof size, "%llu %llu", (memory_mib + 64ull) << 20,
                   (memory_mib + 64ull) << 20);
    expect_limit(pid, "Max file size", size);
    for (size_t i = 0; i < sizeof namespaces / sizeof namespaces[0]; i++) {
        cr_expect(own_namespace(pid, namespaces[i]), "%s namespace", namespaces[i]);
    }
    char path[64];
    struct stat st;
    (void)snprintf(path, sizeof path, "/proc/%d/fd", pid);
    cr_assert_eq(stat(path, &st), 0);
    cr_expect_eq(st.st_uid, 0u, "it can be looked at by its user: PR_SET_DUMPABLE");
    look_at_root(pid);
    find_cgroup(pid, j.cgroup, sizeof j.cgroup);
    if (j.cgroup[0]) {
        int64_t until_ms = mono_ms() + GONE_MS; /* the jailer is told, and not waited for */
        while (cgroup_limit(j.cgroup) != (memory_mib + OVERHEAD_MIB) << 20 &&
               mono_ms() < until_ms) {
            sleep_ms(5);
        }
        cr_expect_eq(cgroup_limit(j.cgroup), (memory_mib + OVERHEAD_MIB) << 20);
    }
    return j;
}

/* What a process of user uid may do to another, without any filter: nothing when this is true. */
static bool cannot_touch(unsigned long uid, int pid, bool signals_too)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        char path[64];
        int bad = 0;
        if (setgroups(0, NULL) < 0 || setresgid((gid_t)uid, (gid_t)uid, (gid_t)uid) < 0 ||
            setresuid((uid_t)uid, (uid_t)uid, (uid_t)uid) < 0) {
            _exit(64);
        }
        (void)snprintf(path, sizeof path, "/proc/%d/mem", pid);
        bad |= signals_too && (kill(pid, 0) == 0 || errno != EPERM) ? 1 : 0;
        bad |= ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0 ? 2 : 0;
        bad |= open(path, O_RDONLY) >= 0 ? 4 : 0;
        (void)snprintf(path, sizeof path, "/proc/%d/maps", pid);
        int maps = open(path, O_RDONLY);
        char byte;
        bad |= maps >= 0 && read(maps, &byte, 1) > 0 ? 8 : 0;
        _exit(bad);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "user %lu, process %d: %d", uid, pid,
              WEXITSTATUS(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void ready(struct pool_lease *l, bool settle)
{
    struct err err = { 0 };
    cr_assert_eq(guest_identity(l->channel, TIMEOUT_MS, &err), 0, "%s", err.text);
    if (settle) {
        cr_assert_eq(guest_settle(l->channel, TIMEOUT_MS, &err), 0, "%s", err.text);
    }
}

static unsigned memory_of_template(int fd)
{
    pool_StatusReply *s = calloc(1, sizeof *s);
    struct err err = { 0 };
    unsigned mib = 0;
    cr_assert_eq(pool_client_status(fd, s, &err), 0, "%s", err.text);
    for (unsigned i = 0; i < s->snapshots_count; i++) {
        if (strcmp(s->snapshots[i].template, template_name()) == 0) {
            mib = s->snapshots[i].memory_mib;
        }
    }
    free(s);
    return mib;
}

static unsigned memory_used(int fd)
{
    pool_StatusReply *s = calloc(1, sizeof *s);
    struct err err = { 0 };
    cr_assert_eq(pool_client_status(fd, s, &err), 0, "%s", err.text);
    unsigned mib = s->memory_used_mib;
    free(s);
    return mib;
}

static void setup_large(void)
{
    (void)setenv("BROOD_POOL_MEMORY_MIB_MAX", "65536",
                 1); /* forks take little of what they count */
    setup();
}

/* Forks of one frozen sandbox are one user's: what that user may have is enough for all of them. */
static void fork_many(int fd, uint64_t frozen)
{
    struct pool_lease fork;
    struct err err = { 0 };
    int n = 0, rc = 0;
    while (n < FORKS && (rc = pool_client_fork(fd, frozen, &fork, &err)) == 0) {
        pool_lease_close(&fork);
        n++;
    }
    cr_expect_eq(rc, 0, "after %d forks: %s", n, err.text);
}

/* Copies of a seed, forks of a frozen one, a fork of a fork: each in its jail, none within reach of
 * another. */
Test(jail, copies_and_forks, .init = setup_large, .fini = teardown, .timeout = 600)
{
    struct pool_lease a, b, f1, f2;
    struct err err = { 0 };
    if (!as_root()) {
        cr_skip_test("needs root");
    }
    int fd = connect_pool();
    lease(fd, &a);
    lease(fd, &b);
    unsigned mib = memory_of_template(fd);
    struct jailed ja = look_at(pool_lease_pid(&a), mib), jb = look_at(pool_lease_pid(&b), mib);
    cr_expect_neq(ja.uid, jb.uid);
    cr_expect(!ja.cgroup[0] || strcmp(ja.cgroup, jb.cgroup) != 0, "%s", ja.cgroup);
    cr_expect(cannot_touch(ja.uid, jb.pid, true));
    cr_expect(cannot_touch(jb.uid, ja.pid, true));
    ready(&a, true);
    unsigned running = memory_used(fd);
    cr_assert_eq(pool_client_freeze(fd, &a, &err), 0, "%s", err.text);
    unsigned frozen = memory_used(fd);
    cr_expect_lt(frozen, running, "a frozen one takes what it holds, not all that it could: %u, %u",
                 frozen, running);
    cr_assert_eq(pool_client_fork(fd, a.reply.lease, &f1, &err), 0, "%s", err.text);
    cr_assert_eq(pool_client_fork(fd, a.reply.lease, &f2, &err), 0, "%s", err.text);
    struct jailed j1 = look_at(pool_lease_pid(&f1), mib), j2 = look_at(pool_lease_pid(&f2), mib);
    cr_expect_eq(j1.uid, ja.uid, "forks of one sandbox are one job's, and one user's");
    cr_expect_eq(j2.uid, ja.uid);
    cr_expect(!ja.cgroup[0] || (strcmp(j1.cgroup, ja.cgroup) && strcmp(j1.cgroup, j2.cgroup)));
    cr_expect(cannot_touch(j1.uid, j2.pid, false)); /* the filter stops signals: test_filter */
    cr_expect(cannot_touch(j1.uid, jb.pid, true));
    static const char *const argv[] = { "python3", "-c", "print(6 * 7, end='')", NULL };
    struct guest_result r;
    struct pool_lease *all[] = { &b, &f1, &f2 };
    for (int i = 0; i < 3; i++) {
        ready(all[i], false);
        cr_assert_eq(guest_run(all[i]->channel, argv, TIMEOUT_MS, &r, &err), 0, "%s", err.text);
        cr_expect_str_eq(r.output, "42");
    }
    fork_many(fd, a.reply.lease);
    (void)close(fd);
    int pids[] = { ja.pid, jb.pid, j1.pid, j2.pid };
    for (int i = 0; i < 4; i++) {
        expect_gone(pids[i]);
    }
    pool_lease_close(&a);
    pool_lease_close(&b);
    pool_lease_close(&f1);
    pool_lease_close(&f2);
}

/* Capabilities and filters are each thread's own; as those of a process that has the strict filter.
 */
static void expect_threads_as(int pid, int strict_pid)
{
    char path[64], want[64], have[64];
    int n = 0;
    status_field(strict_pid, "Seccomp_filters", want, sizeof want);
    (void)snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    struct dirent *e;
    cr_assert_not_null(dir);
    while ((e = readdir(dir))) {
        if (e->d_name[0] != '.') {
            int tid = (int)strtol(e->d_name, NULL, 10);
            expect_field(tid, "CapPrm", "0000000000000000");
            expect_field(tid, "CapInh", "0000000000000000");
            expect_field(tid, "CapAmb", "0000000000000000");
            status_field(tid, "Seccomp_filters", have, sizeof have);
            cr_expect_str_eq(have, want, "filters of thread %d: %s", tid, have);
            n++;
        }
    }
    (void)closedir(dir);
    cr_expect_geq(n, 3, "%d threads", n);
}

/* Loaded from a kept state, and no copy of a seed: bound like one. */
Test(jail, from_a_kept_state, .init = setup, .fini = teardown, .timeout = 600)
{
    struct pool_lease a, k, fork;
    struct guest_result r;
    struct err err = { 0 };
    char id[80], spec[96];
    static const char *const argv[] = { "python3", "-c", "print(6 * 7, end='')", NULL };
    if (!as_root()) {
        cr_skip_test("needs root");
    }
    int fd = connect_pool();
    lease(fd, &a);
    unsigned mib = memory_of_template(fd);
    ready(&a, true);
    cr_assert_eq(pool_client_freeze(fd, &a, &err), 0, "%s", err.text);
    cr_assert_eq(pool_client_keep(fd, &a, id, sizeof id, &err), 0, "%s", err.text);
    (void)snprintf(spec, sizeof spec, "kept:%s", id);
    cr_assert_eq(pool_client_lease(fd, spec, false, &k, &err), 0, "%s", err.text);
    struct jailed jk = look_at(pool_lease_pid(&k), mib);
    expect_threads_as(jk.pid, pool_lease_pid(&a));
    ready(&k, true);
    cr_assert_eq(pool_client_freeze(fd, &k, &err), 0, "%s", err.text);
    cr_assert_eq(pool_client_fork(fd, k.reply.lease, &fork, &err), 0, "%s", err.text);
    struct jailed jf = look_at(pool_lease_pid(&fork), mib);
    expect_threads_as(jf.pid, pool_lease_pid(&a));
    cr_expect_eq(jf.uid, jk.uid);
    ready(&fork, false);
    cr_assert_eq(guest_run(fork.channel, argv, TIMEOUT_MS, &r, &err), 0, "%s", err.text);
    cr_expect_str_eq(r.output, "42");
    pool_lease_close(&a);
    pool_lease_close(&k);
    pool_lease_close(&fork);
    (void)close(fd);
}

static void setup_plain(void)
{
    (void)setenv("BROOD_TEST_NO_SEED", "1", 1);
    setup();
}

/* Loaded from the snapshot, as with KVM: no seed, no copy. */
Test(jail, plainly_started, .init = setup_plain, .fini = teardown, .timeout = 600)
{
    struct pool_lease a, b;
    if (!as_root()) {
        cr_skip_test("needs root");
    }
    int fd = connect_pool();
    lease(fd, &a);
    lease(fd, &b);
    unsigned mib = memory_of_template(fd);
    struct jailed ja = look_at(pool_lease_pid(&a), mib), jb = look_at(pool_lease_pid(&b), mib);
    cr_expect_neq(ja.uid, jb.uid);
    cr_expect(cannot_touch(ja.uid, jb.pid, true));
    pool_lease_close(&a);
    pool_lease_close(&b);
    (void)close(fd);
}

static int find_jailer(void)
{
    int all[256];
    int n = descendants((int)pool.pid, all, 256);
    for (int i = 0; i < n; i++) {
        char name[64];
        status_field(all[i], "Name", name, sizeof name);
        if (strcmp(name, "brood-jailer") == 0) {
            return all[i];
        }
    }
    return 0;
}

static int count_mounts(void)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    int n = 0;
    for (int c; f && (c = fgetc(f)) != EOF;) {
        n += c == '\n';
    }
    if (f) {
        (void)fclose(f);
    }
    return n;
}

static void expect_no_folder(const char *vm_folder)
{
    char above[600];
    (void)snprintf(above, sizeof above, "%s", vm_folder);
    char *slash = strrchr(above, '/');
    if (!slash) {
        return;
    }
    *slash = 0;
    int64_t until_ms = mono_ms() + GONE_MS;
    while (access(above, F_OK) == 0 && mono_ms() < until_ms) {
        sleep_ms(5);
    }
    cr_expect_neq(access(above, F_OK), 0, "%s is still there", above);
}

/* The jailer, its keeper and every machine of it end with one another; no cgroup or mount stays. */
static void kill_and_look(bool the_jailer)
{
    struct pool_lease l;
    int all[256], status, mounts = count_mounts();
    if (!as_root()) {
        cr_skip_test("needs root");
    }
    int fd = connect_pool();
    lease(fd, &l);
    struct jailed j = look_at(pool_lease_pid(&l), memory_of_template(fd));
    int n = descendants((int)pool.pid, all, 256), jailer = find_jailer();
    cr_assert(n >= 5 && jailer > 0);
    cr_expect_eq(count_mounts(), mounts);
    cr_assert_eq(kill(the_jailer ? jailer : (int)pool.pid, SIGKILL), 0);
    cr_assert_eq(waitpid(pool.pid, &status, 0), pool.pid);
    pool.pid = 0;
    cr_expect(the_jailer ? WIFEXITED(status) && WEXITSTATUS(status) == 1 : WIFSIGNALED(status));
    for (int i = 0; i < n; i++) {
        expect_gone(all[i]);
    }
    expect_no_folder(j.cgroup);
    cr_expect_eq(count_mounts(), mounts);
    pool_lease_close(&l);
    (void)close(fd);
}

Test(jail, kill_9_of_the_jailer, .init = setup, .fini = teardown, .timeout = 600)
{
    kill_and_look(true);
}

Test(jail, kill_9_of_the_broker, .init = setup, .fini = teardown, .timeout = 600)
{
    kill_and_look(false);
}

/* The supervisor starts vmpool as root, and it becomes another user by itself: that takes the
 * parent-death signal away. */
Test(jail, kill_9_of_its_parent, .init = setup_home, .fini = teardown, .timeout = 120)
{
    int all[256], run;
    char run_dir[96];
    if (!as_root()) {
        cr_skip_test("needs root");
    }
    (void)snprintf(run_dir, sizeof run_dir, "%s/run", pool.home);
    (void)setenv("BROOD_RUN_DIR", run_dir, 1);
    cr_assert_eq(chown(pool.home, NOBODY, NOBODY), 0);
    pool.user = "--user=" STRING(NOBODY) ":" STRING(NOBODY);
    pid_t parent = fork();
    if (parent == 0) {
        (void)start_pool(pool.log);
        (void)pause();
        _exit(0);
    }
    (void)close(connect_pool());
    int n = descendants((int)parent, all, 256);
    cr_assert_geq(n, 3, "%d processes: vmpool, its jailer, the keeper", n);
    pool.pid = all[0];
    status_field(all[0], "Uid", run_dir, sizeof run_dir);
    cr_assert_eq(sscanf(run_dir, "%d", &run), 1);
    cr_assert_eq(run, NOBODY);
    cr_assert_eq(kill(parent, SIGKILL), 0);
    cr_assert_eq(waitpid(parent, NULL, 0), parent);
    for (int i = 0; i < n; i++) {
        expect_gone(all[i]);
    }
    pool.pid = 0;
}
