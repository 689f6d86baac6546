/* Where the jails' cgroups go, on hierarchies of plain files: cgroup v1, v2, v2 whose own cgroup
 * can give nothing, part of a hierarchy only, none. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "vmpool/jail/cgroup.h"

static char top[64];
static int proc = -1;
static struct err err;

/* A file of the fake tree, with its folders. */
static void put(const char *path, const char *text)
{
    char full[512];
    (void)snprintf(full, sizeof full, "%s/%s", top, path);
    for (char *p = strchr(full + strlen(top) + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        (void)mkdir(full, 0755);
        *p = '/';
    }
    FILE *f = fopen(full, "we");
    cr_assert_not_null(f, "%s", full);
    (void)fputs(text, f);
    (void)fclose(f);
}

static const char *get(const char *path)
{
    static char text[256];
    char full[512];
    (void)snprintf(full, sizeof full, "%s/%s", top, path);
    FILE *f = fopen(full, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    if (f) {
        (void)fclose(f);
    }
    return text;
}

static void begin(const char *cgroup, const char *mounts)
{
    char all[2048], path[96];
    (void)snprintf(top, sizeof top, "/tmp/brood-test-cgroup-XXXXXX");
    cr_assert(mkdtemp(top));
    /* each # in mounts is the tree's folder */
    size_t n = 0;
    for (const char *p = mounts; *p && n + sizeof top < sizeof all; p++) {
        n += (size_t)snprintf(all + n, sizeof all - n, *p == '#' ? "%s" : "%.1s",
                              *p == '#' ? top : p);
    }
    put("proc/self/cgroup", cgroup);
    put("proc/self/mountinfo", all);
    (void)snprintf(path, sizeof path, "%s/proc", top);
    proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_geq(proc, 0);
}

static void end(void)
{
    char command[96];
    (void)snprintf(command, sizeof command, "rm -rf %s", top);
    if (top[0]) {
        (void)!system(command);
    }
}

static void limits_and_joins(const struct cgroups *c, int n_fds)
{
    int fds[JAIL_CGROUPS_MAX];
    cr_assert_eq(cgroups_make(c, 3, &err), 0, "%s", err.text);
    cr_assert_eq(cgroups_limit(c, 3, 256, 2, &err), 0, "%s", err.text);
    cr_assert_eq(cgroups_join_fds(c, 3, fds, &err), n_fds, "%s", err.text);
    for (int i = 0; i < n_fds; i++) {
        cr_expect_eq(write(fds[i], "0", 1), 1);
        (void)close(fds[i]);
    }
}

Test(cgroup, v1, .fini = end)
{
    struct cgroups c;
    begin("9:pids:/\n4:memory:/a/b\n1:cpu,cpuacct:/\n0::/\n",
          "30 1 0:1 / #/mem rw - cgroup cgroup rw,memory\n"
          "31 1 0:2 / #/cpu rw shared:1 - cgroup cgroup rw,cpu,cpuacct\n"
          "32 1 0:3 / #/pids rw - cgroup cgroup rw,pids\n"
          "33 1 0:4 / #/unified rw - cgroup2 cgroup2 rw\n");
    put("mem/a/b/n/vm-3/memory.limit_in_bytes", "");
    put("mem/a/b/n/vm-3/tasks", "");
    put("mem/a/b/n/vm-3/cgroup.procs", "");
    put("cpu/n/vm-3/cpu.cfs_quota_us", "");
    put("cpu/n/vm-3/tasks", "");
    put("cpu/n/cpu.shares", "");
    put("pids/n/vm-3/pids.max", "");
    put("pids/n/vm-3/tasks", "");
    cgroups_open(&c, proc, "n");
    cr_expect(!c.v2 && c.has[CGROUP_MEMORY] && c.has[CGROUP_CPU] && c.has[CGROUP_PIDS]);
    cr_expect_str_eq(c.why, "");
    char shares[24];
    (void)snprintf(shares, sizeof shares, "%ld", 1024 * sysconf(_SC_NPROCESSORS_ONLN));
    cr_expect_str_eq(get("cpu/n/cpu.shares"), shares);
    limits_and_joins(&c, 3);
    cr_expect_str_eq(get("mem/a/b/n/vm-3/memory.limit_in_bytes"), "603979776"); /* 576 MiB */
    cr_expect_str_eq(get("cpu/n/vm-3/cpu.cfs_quota_us"), "300000");
    cr_expect_str_eq(get("pids/n/vm-3/pids.max"), "96");
    cr_expect_str_eq(get("mem/a/b/n/vm-3/tasks"), "0");
    cr_expect(cgroups_empty(&c, 3));
    put("mem/a/b/n/vm-3/cgroup.procs", "17\n");
    cr_expect(!cgroups_empty(&c, 3));
}

/* Only what is below the mounted part can be reached: the own cgroup is given from there. */
Test(cgroup, v1_in_a_container, .fini = end)
{
    struct cgroups c;
    begin("4:memory:/docker/abc\n", "30 1 0:1 /docker/abc #/mem rw - cgroup cgroup rw,memory\n");
    put("mem/tasks", "");
    cgroups_open(&c, proc, "n");
    cr_expect(c.has[CGROUP_MEMORY] && !c.has[CGROUP_CPU] && !c.has[CGROUP_PIDS]);
    cr_expect_str_eq(c.why, "cpu, pids");
    char path[128];
    (void)snprintf(path, sizeof path, "%s/mem/n", top);
    cr_expect_str_eq(c.path[CGROUP_MEMORY], path);
}

static void v2_tree(const char *own_controllers, const char *root_controllers)
{
    begin("0::/user/me\n", "33 1 0:4 / #/cg rw - cgroup2 cgroup2 rw\n");
    put("cg/cgroup.subtree_control", "");
    put("cg/user/me/cgroup.subtree_control", "");
    put("cg/user/me/n/cgroup.controllers", own_controllers);
    put("cg/user/me/n/cgroup.subtree_control", "");
    put("cg/n/cgroup.controllers", root_controllers);
    put("cg/n/cgroup.subtree_control", "");
}

Test(cgroup, v2_below_our_own, .fini = end)
{
    struct cgroups c;
    v2_tree("cpuset cpu io memory pids\n", "cpu memory pids\n");
    put("cg/user/me/n/vm-3/memory.max", "");
    put("cg/user/me/n/vm-3/cpu.max", "");
    put("cg/user/me/n/vm-3/pids.max", "");
    put("cg/user/me/n/vm-3/cgroup.procs", "");
    cgroups_open(&c, proc, "n");
    cr_expect(c.v2 && c.has[CGROUP_MEMORY] && c.has[CGROUP_CPU] && c.has[CGROUP_PIDS]);
    limits_and_joins(&c, 1);
    cr_expect_str_eq(get("cg/user/me/n/vm-3/memory.max"), "603979776");
    cr_expect_str_eq(get("cg/user/me/n/vm-3/cpu.max"), "300000 100000");
    cr_expect_str_eq(get("cg/user/me/n/vm-3/pids.max"), "96");
    cr_expect_str_eq(get("cg/user/me/n/vm-3/cgroup.procs"), "0");
    cr_expect(!cgroups_empty(&c, 3));
}

/* A cgroup with processes in it cannot give controllers to its folders: the root's can. */
Test(cgroup, v2_below_the_root, .fini = end)
{
    struct cgroups c;
    v2_tree("", "cpu pids memory");
    cgroups_open(&c, proc, "n");
    cr_expect(c.v2 && c.has[CGROUP_MEMORY] && c.has[CGROUP_CPU] && c.has[CGROUP_PIDS]);
    char path[128];
    (void)snprintf(path, sizeof path, "%s/cg/n", top);
    cr_expect_str_eq(c.path[0], path);
}

Test(cgroup, none, .fini = end)
{
    struct cgroups c;
    int fds[JAIL_CGROUPS_MAX];
    begin("", "");
    cgroups_open(&c, proc, "n");
    cr_expect_str_eq(c.why, "memory, cpu, pids");
    cr_expect_eq(cgroups_make(&c, 0, &err), 0);
    cr_expect_eq(cgroups_limit(&c, 0, 256, 1, &err), 0);
    cr_expect_eq(cgroups_join_fds(&c, 0, fds, &err), 0);
    cr_expect(cgroups_empty(&c, 0));
    cgroups_remove(&c, 0);
}
