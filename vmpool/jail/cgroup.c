#include "vmpool/jail/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"

#define CPU_PERIOD_US 100000u
#define CPU_SHARES 1024 /* v1, of one process; the kernel cuts at 262144 */
#define CPU_WEIGHT 100  /* v2 */
#define CPU_WEIGHT_MAX 10000
#define REMOVE_POLL_MS 5
#define V1_MEMORY_MAX "9223372036854771712"

static const char *const names[CGROUP_CONTROLLERS] = { "memory", "cpu", "pids" };

static int write_text(int dir, const char *file, const char *text)
{
    cleanup_close int fd = openat(dir, file, O_WRONLY | O_CLOEXEC);
    size_t n = strlen(text);
    return fd >= 0 && write(fd, text, n) == (ssize_t)n ? 0 : -1;
}

/* Is word one of the words of list, which are separated by c? */
static bool listed(const char *list, const char *word, char c)
{
    size_t n = strlen(word);
    for (const char *p = list; p; p = strchr(p, c) ? strchr(p, c) + 1 : NULL) {
        if (strncmp(p, word, n) == 0 && (p[n] == c || p[n] == 0 || p[n] == '\n')) {
            return true;
        }
    }
    return false;
}

/* Our own cgroup in the hierarchy of a controller ("": v2's), from /proc/self/cgroup. */
static bool own_path(int proc, const char *controller, char *out, size_t room)
{
    char line[1024];
    int fd = openat(proc, "self/cgroup", O_RDONLY | O_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "re");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path) {
            continue;
        }
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        if (*controller ? listed(list + 1, controller, ',') : list[1] == 0) {
            (void)snprintf(out, room, "%s", path);
            found = true;
        }
    }
    if (f) {
        (void)fclose(f);
    }
    return found;
}

/* Where a hierarchy is mounted (the last one that says so), and which part of it. */
static bool find_mount(int proc, const char *type, const char *controller, char *ret_root,
                       char *ret_at, size_t room)
{
    char line[2048];
    int fd = openat(proc, "self/mountinfo", O_RDONLY | O_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "re");
    bool found = false;
    while (f && fgets(line, sizeof line, f)) {
        char root[512], at[512], fs[32], options[512];
        char *rest = strstr(line, " - ");
        if (rest && sscanf(line, "%*s %*s %*s %511s %511s", root, at) == 2 &&
            sscanf(rest, " - %31s %*s %511s", fs, options) == 2 && strcmp(fs, type) == 0 &&
            (!controller || listed(options, controller, ','))) {
            (void)snprintf(ret_root, room, "%s", root);
            (void)snprintf(ret_at, room, "%s", at);
            found = true;
        }
    }
    if (f) {
        (void)fclose(f);
    }
    return found;
}

static void slot_name(unsigned slot, const char *file, char out[64]);

/* Remove what is in dir; true: nothing is left. */
static bool remove_slots(int dir)
{
    bool left = false;
    for (unsigned slot = 0; slot < JAIL_SLOTS_MAX; slot++) {
        char name[64];
        slot_name(slot, "", name);
        if (unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT) {
            left = true;
        }
    }
    return !left;
}

/* Folders of jailers that were killed together with their keepers: nobody holds their lock. */
static void sweep(const char *parent, const char *own)
{
    DIR *d = opendir(parent);
    struct dirent *e;
    while (d && (e = readdir(d))) {
        unsigned uid, pid;
        char end;
        if (sscanf(e->d_name, "brood-%8x-%u%c", &uid, &pid, &end) != 2 ||
            strcmp(e->d_name, own) == 0) {
            continue;
        }
        cleanup_close int dir = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir >= 0 && flock(dir, LOCK_EX | LOCK_NB) == 0 && remove_slots(dir)) {
            (void)unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
        }
    }
    if (d) {
        (void)closedir(d);
    }
}

/* mkdir, open and lock at/below/name. */
static int make_folder(const char *at, const char *below, const char *name, char *ret_path,
                       size_t room)
{
    char path[512];
    if (snprintf(path, sizeof path, "%s%s%s/%s", at, *below && *below != '/' ? "/" : "",
                 strcmp(below, "/") == 0 ? "" : below, name) >= (int)sizeof path ||
        (mkdir(path, 0755) < 0 && errno != EEXIST)) {
        return -1;
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)flock(fd, LOCK_EX | LOCK_NB);
        (void)snprintf(ret_path, room, "%s", path);
        *strrchr(path, '/') = 0;
        sweep(path, name);
    }
    return fd;
}

/* The part of the own cgroup that lies below what is mounted. */
static const char *below_root(const char *own, const char *root)
{
    size_t n = strlen(root);
    if (strcmp(root, "/") == 0) {
        return own;
    }
    return strncmp(own, root, n) == 0 ? own + n : "";
}

static void open_v1(struct cgroups *c, int proc, const char *name)
{
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        char root[512], at[512], own[512];
        if (find_mount(proc, "cgroup", names[i], root, at, sizeof at) &&
            own_path(proc, names[i], own, sizeof own)) {
            c->dir[i] = make_folder(at, below_root(own, root), name, c->path[i], sizeof c->path[i]);
            c->has[i] = c->dir[i] >= 0;
        }
    }
}

/* A folder below our own cgroup when controllers can be given to it (nobody else is in it), else
 * below the hierarchy's root, which the rule against inner processes leaves out. */
static void open_v2(struct cgroups *c, int proc, const char *name)
{
    char root[512], at[512], own[512], have[512] = "";
    if (!find_mount(proc, "cgroup2", NULL, root, at, sizeof at) ||
        !own_path(proc, "", own, sizeof own)) {
        return;
    }
    const char *places[] = { below_root(own, root), "" };
    for (int i = 0; i < 2 && !c->has[CGROUP_MEMORY]; i++) {
        char parent[1100];
        (void)snprintf(parent, sizeof parent, "%s%s", at, places[i]);
        cleanup_close int up = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        for (int k = 0; k < CGROUP_CONTROLLERS && up >= 0; k++) {
            char text[32];
            (void)snprintf(text, sizeof text, "+%s", names[k]);
            (void)write_text(up, "cgroup.subtree_control", text);
        }
        int dir = make_folder(at, places[i], name, c->path[0], sizeof c->path[0]);
        cleanup_close int list = dir < 0 ? -1 : openat(dir, "cgroup.controllers", O_RDONLY);
        ssize_t n = list < 0 ? 0 : read(list, have, sizeof have - 1);
        have[n > 0 ? n : 0] = 0;
        have[strcspn(have, "\n")] = 0;
        for (int k = 0; k < CGROUP_CONTROLLERS && dir >= 0; k++) {
            char text[32];
            (void)snprintf(text, sizeof text, "+%s", names[k]);
            c->has[k] =
                listed(have, names[k], ' ') && write_text(dir, "cgroup.subtree_control", text) == 0;
        }
        if (dir >= 0 && !c->has[CGROUP_MEMORY]) {
            (void)close(dir);
            (void)rmdir(c->path[0]);
            continue;
        }
        c->dir[0] = dir;
        c->v2 = dir >= 0;
    }
}

/* A group weighs as much as one process by default, and all machines of a host would share that: on
 * a busy host they would stand still beside everything that is in no group. */
static void weigh(const struct cgroups *c)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    char text[24];
    if (!c->has[CGROUP_CPU] || processors < 1) {
        return;
    }
    long weight = processors * (c->v2 ? CPU_WEIGHT : CPU_SHARES);
    weight = c->v2 && weight > CPU_WEIGHT_MAX ? CPU_WEIGHT_MAX : weight;
    (void)snprintf(text, sizeof text, "%ld", weight);
    (void)write_text(c->dir[c->v2 ? 0 : CGROUP_CPU], c->v2 ? "cpu.weight" : "cpu.shares", text);
}

void cgroups_open(struct cgroups *c, int proc, const char *name)
{
    *c = (struct cgroups){ .dir = { -1, -1, -1 } };
    (void)snprintf(c->name, sizeof c->name, "%s", name);
    open_v1(c, proc, name);
    if (!c->has[CGROUP_MEMORY] && !c->has[CGROUP_CPU] && !c->has[CGROUP_PIDS]) {
        open_v2(c, proc, name);
    }
    weigh(c);
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        if (!c->has[i]) {
            size_t used = strlen(c->why);
            (void)snprintf(c->why + used, sizeof c->why - used, "%s%s", used ? ", " : "", names[i]);
        }
    }
}

/* v2 has one folder for all */
static bool has_folder(const struct cgroups *c, int i)
{
    return c->v2 ? i == 0 : c->has[i];
}

static void slot_name(unsigned slot, const char *file, char out[64])
{
    (void)snprintf(out, 64, "vm-%u%s%s", slot, *file ? "/" : "", file);
}

int cgroups_make(const struct cgroups *c, unsigned slot, struct err *err)
{
    char name[64], text[32];
    slot_name(slot, "", name);
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        if (has_folder(c, i) && mkdirat(c->dir[i], name, 0755) < 0 && errno != EEXIST) {
            return err_sys(err, "cgroup %s/%s", c->path[i], name);
        }
    }
    (void)snprintf(text, sizeof text, "%u", CGROUP_PIDS_MAX);
    slot_name(slot, "pids.max", name);
    if (c->has[CGROUP_PIDS] && write_text(c->dir[c->v2 ? 0 : CGROUP_PIDS], name, text) < 0) {
        return err_sys(err, "%s", name);
    }
    return 0;
}

int cgroups_limit(const struct cgroups *c, unsigned slot, unsigned memory_mib, unsigned vcpus,
                  struct err *err)
{
    char name[64], text[64];
    if (c->has[CGROUP_MEMORY]) {
        slot_name(slot, c->v2 ? "memory.max" : "memory.limit_in_bytes", name);
        (void)snprintf(text, sizeof text, "%llu",
                       (unsigned long long)(memory_mib + CGROUP_OVERHEAD_MIB) << 20);
        if (write_text(c->dir[CGROUP_MEMORY], name, text) < 0) {
            return err_sys(err, "%s", name);
        }
    }
    if (c->has[CGROUP_CPU] && c->v2) {
        slot_name(slot, "cpu.max", name);
        (void)snprintf(text, sizeof text, "%u %u", (vcpus + 1) * CPU_PERIOD_US, CPU_PERIOD_US);
        if (write_text(c->dir[0], name, text) < 0) {
            return err_sys(err, "%s", name);
        }
    } else if (c->has[CGROUP_CPU]) {
        slot_name(slot, "cpu.cfs_quota_us", name);
        (void)snprintf(text, sizeof text, "%u", (vcpus + 1) * CPU_PERIOD_US);
        /* a kernel without bandwidth control has shares only */
        if (write_text(c->dir[CGROUP_CPU], name, text) < 0 && errno != ENOENT) {
            return err_sys(err, "%s", name);
        }
    }
    return 0;
}

bool cgroups_empty(const struct cgroups *c, unsigned slot)
{
    char name[64], byte;
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        if (has_folder(c, i)) {
            slot_name(slot, "cgroup.procs", name);
            cleanup_close int fd = openat(c->dir[i], name, O_RDONLY | O_CLOEXEC);
            if (fd >= 0 && read(fd, &byte, 1) != 0) {
                return false;
            }
        }
    }
    return true;
}

int cgroups_join_fds(const struct cgroups *c, unsigned slot, int fds[JAIL_CGROUPS_MAX],
                     struct err *err)
{
    int n = 0;
    char name[64];
    for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
        if (!has_folder(c, i)) {
            continue;
        }
        slot_name(slot, c->v2 ? "cgroup.procs" : "tasks", name);
        fds[n] = openat(c->dir[i], name, O_WRONLY | O_CLOEXEC);
        if (fds[n] < 0) {
            int rc = err_sys(err, "%s", name);
            while (n > 0) {
                (void)close(fds[--n]);
            }
            return rc;
        }
        n++;
    }
    return n;
}

void cgroups_remove(const struct cgroups *c, int64_t wait_ms)
{
    for (int64_t end = mono_ms() + wait_ms;; sleep_ms(REMOVE_POLL_MS)) {
        bool left = false;
        for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
            if (has_folder(c, i) &&
                (!remove_slots(c->dir[i]) || (rmdir(c->path[i]) < 0 && errno != ENOENT))) {
                left = true;
            }
        }
        if (!left || mono_ms() >= end) {
            return;
        }
    }
}
