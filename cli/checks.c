#include "cli/checks.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>
#include <jansson.h>

#include "cli/cli.h"
#include "cli/manifest.h"
#include "cli/pgserver.h"
#include "cli/proc.h"
#include "common/base/cleanup.h"

#define VERSION_TIMEOUT_MS 15000 /* QEMU links a hundred libraries; a busy host is not unfit */
#define PROBE_TIMEOUT_MS 30000   /* about a second when the host is idle */
#define PROBE_BYTES_MAX 16384
#define PROTECTIONS_MAX 16u
#define DISK_MIB_MIN 1024
#define MEMORY_MIB_MIN 1024
#define SOCKET_NAME_LONGEST "/vmpool.sock"

struct list {
    struct check *rows;
    int n;
};

/* A row that is ok; unfit() turns the last one into a bad one. */
static struct check *add(struct list *l, const char *name, enum check_need need, const char *fmt,
                         ...) __attribute__((format(printf, 4, 5)));
static void unfit(struct check *row, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static struct check *add(struct list *l, const char *name, enum check_need need, const char *fmt,
                         ...)
{
    assert(l->n < CHECKS_MAX);
    struct check *row = &l->rows[l->n++];
    va_list ap;
    *row = (struct check){ .need = need, .ok = true };
    (void)snprintf(row->name, sizeof row->name, "%s", name);
    va_start(ap, fmt);
    (void)vsnprintf(row->result, sizeof row->result, fmt, ap);
    va_end(ap);
    return row;
}

static void unfit(struct check *row, const char *fmt, ...)
{
    va_list ap;
    row->ok = false;
    va_start(ap, fmt);
    (void)vsnprintf(row->fix, sizeof row->fix, fmt, ap);
    va_end(ap);
}

static void first_line(char *text)
{
    text[strcspn(text, "\n")] = 0;
}

static void program(struct list *l, const char *name, const char *exe, const char *version_arg,
                    enum check_need need, const char *package)
{
    char text[256] = "";
    char *argv[] = { (char *)(uintptr_t)exe, (char *)(uintptr_t)version_arg, NULL };
    struct err err;
    int rc = proc_capture(argv, VERSION_TIMEOUT_MS, text, sizeof text, &err);
    if (rc == 127 && !text[0]) {
        unfit(add(l, name, need, "%s is not there", exe), "apt-get install %s", package);
        return;
    }
    first_line(text);
    struct check *row = add(l, name, need, "%s", text[0] ? text : "there");
    if (rc < 0) {
        (void)snprintf(row->result, sizeof row->result, "%.200s", err.text);
        unfit(row, "run `%s %s` by hand", exe, version_arg);
    }
}

static void check_user(struct list *l)
{
    if (geteuid() == 0) {
        (void)add(l, "user", NEED_UP, "root");
    } else {
        unfit(add(l, "user", NEED_UP, "uid %u, not root", (unsigned)geteuid()),
              "run brood as root (microVMs, cgroups and template building need it)");
    }
}

static void check_siblings(struct list *l)
{
    static const char *const names[] = { "brood-vmpool", "brood-scheduler", "brood-worker" };
    char missing[128] = "";
    for (int i = 0; i < 3; i++) {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof path, "%s/%s", cli_self_dir(), names[i]);
        if (access(path, X_OK) != 0) {
            size_t used = strlen(missing);
            (void)snprintf(missing + used, sizeof missing - used, "%s%s", used ? ", " : "",
                           names[i]);
        }
    }
    if (missing[0]) {
        unfit(add(l, "programs", NEED_UP, "not in %.120s: %s", cli_self_dir(), missing),
              "build them (cmake --build) or install brood again");
    } else {
        (void)add(l, "programs", NEED_UP, "in %.200s", cli_self_dir());
    }
}

/* What protects the host from its machines, as vmpool has tried it. */
static void check_protections(struct list *l, const json_t *rows)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        const char *why = json_string_value(json_object_get(row, "why"));
        bool required = json_is_true(json_object_get(row, "required"));
        char title[32];
        if (!name || !why || i >= PROTECTIONS_MAX) {
            return;
        }
        (void)snprintf(title, sizeof title, "jail: %s", name);
        struct check *check = add(l, title, required ? NEED_UP : NEED_NONE, "%.200s", why);
        if (!json_is_true(json_object_get(row, "holds"))) {
            unfit(check, required ? "docs/security.md says what it needs; brood up --insecure does "
                                    "without"
                                  : "not required: docs/security.md says what holds instead");
        }
    }
}

static void check_engine(struct list *l, const struct config *c)
{
    char exe[PATH_MAX], text[PROBE_BYTES_MAX] = "";
    (void)snprintf(exe, sizeof exe, "%s/brood-vmpool", cli_self_dir());
    char *argv[] = {
        exe, (char *)"--home", (char *)(uintptr_t)c->home, (char *)"probe", (char *)"--json", NULL
    };
    struct err err;
    int rc = proc_capture(argv, PROBE_TIMEOUT_MS, text, sizeof text, &err);
    json_t *root = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
    const char *engine = json_string_value(json_object_get(root, "engine"));
    const char *reason = json_string_value(json_object_get(root, "reason"));
    if (rc == 0 && engine) {
        (void)add(l, "engine", NEED_UP, "%s%s%s", engine, reason ? ": " : "", reason ? reason : "");
    } else {
        first_line(text);
        unfit(add(l, "engine", NEED_UP, "%.200s",
                  rc < 0    ? err.text
                  : reason  ? reason
                  : text[0] ? text
                            : "no engine works here"),
              "run `%.150s probe` by hand", exe);
    }
    check_protections(l, json_object_get(root, "protections"));
    json_decref(root);
}

static void check_kvm(struct list *l)
{
    cleanup_close int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        (void)add(l, "/dev/kvm", NEED_NONE, "opens (the engine row says whether it is used)");
    } else {
        (void)add(l, "/dev/kvm", NEED_NONE, "%s: guests are emulated (TCG), slower but as safe",
                  errno == ENOENT ? "not there" : strerror(errno));
    }
}

static void check_redis(struct list *l, const struct config *c)
{
    if (config_redis_embedded(c)) {
        program(l, "redis", "redis-server", "--version", NEED_UP, "redis-server");
        return;
    }
    struct err err;
    cleanup_queue struct queue q = { 0 };
    if (queue_open(&q, c->redis_url, &err) < 0 || queue_ping(&q, &err) < 0) {
        unfit(add(l, "redis", NEED_UP, "%.250s", err.text),
              "start it, or correct redis.url, or empty it for a private one");
    } else {
        (void)add(l, "redis", NEED_UP, "answers at %.200s", c->redis_url);
    }
}

static void check_postgres(struct list *l, const struct config *c)
{
    struct err err;
    if (config_postgres_embedded(c)) {
        static struct pgserver s;
        if (pgserver_find(&s, c, &err) < 0) {
            unfit(add(l, "postgres", NEED_UP, "%.250s", err.text),
                  "apt-get install postgresql, or set postgres.url");
        } else {
            (void)add(l, "postgres", NEED_UP, "%.80s, as user %.40s, data in %.100s", s.bin_dir,
                      s.user[0] ? s.user : "of its own", s.data_dir);
        }
        return;
    }
    cleanup_pg struct pg pg = { 0 };
    if (pg_open(&pg, c->postgres_url, &err) < 0) {
        unfit(add(l, "postgres", NEED_UP, "%.250s", err.text),
              "start it, or correct postgres.url, or empty it for a private one");
    } else {
        (void)add(l, "postgres", NEED_UP, "answers at the address of postgres.url");
    }
}

/* The folder itself, or the nearest parent that exists. */
static void existing(const char *path, char out[PATH_MAX])
{
    (void)snprintf(out, PATH_MAX, "%s", path);
    while (access(out, F_OK) != 0 && strcmp(out, "/") != 0) {
        char copy[PATH_MAX];
        (void)snprintf(copy, sizeof copy, "%s", out);
        (void)snprintf(out, PATH_MAX, "%s", dirname(copy));
    }
}

static void check_disk(struct list *l, const struct config *c)
{
    char at[PATH_MAX];
    struct statvfs v;
    existing(c->home, at);
    if (statvfs(at, &v) < 0) {
        unfit(add(l, "disk", NEED_UP, "%.100s: %s", at, strerror(errno)),
              "choose another home (--home)");
        return;
    }
    long long mib = (long long)((uint64_t)v.f_bavail * v.f_frsize >> 20);
    struct check *row = add(l, "disk", NEED_UP, "%lld MiB free at %.180s", mib, at);
    if (access(at, W_OK) != 0) {
        unfit(row, "%.150s is not writable: choose another home (--home)", at);
    } else if (mib < DISK_MIB_MIN) {
        unfit(row, "at least %d MiB are needed there (templates, snapshots, Postgres)",
              DISK_MIB_MIN);
    }
}

static void check_memory(struct list *l)
{
    char text[4096] = "";
    cleanup_close int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    const char *p = strstr(text, "MemAvailable:");
    long long mib = p ? strtoll(p + 13, NULL, 10) / 1024 : 0;
    struct check *row = add(l, "memory", NEED_UP, "%lld MiB available", mib);
    if (mib < MEMORY_MIB_MIN) {
        unfit(row, "at least %d MiB are needed; end something", MEMORY_MIB_MIN);
    }
}

static void check_memfd(struct list *l)
{
    cleanup_close int fd = memfd_create("brood-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && ftruncate(fd, 4096) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0) {
        (void)add(l, "memfd", NEED_UP, "can be sealed");
    } else {
        unfit(add(l, "memfd", NEED_UP, "%s", strerror(errno)),
              "a kernel with sealable memfds is needed (3.17 or newer)");
    }
}

static void check_run_dir(struct list *l, const struct config *c)
{
    char at[PATH_MAX];
    existing(c->run_dir, at);
    struct check *row = add(l, "run folder", NEED_UP, "%.250s", c->run_dir);
    if (strlen(c->run_dir) + sizeof SOCKET_NAME_LONGEST >
        sizeof((struct sockaddr_un *)0)->sun_path) {
        unfit(row, "too long for a socket's path");
    } else if (access(at, W_OK) != 0) {
        unfit(row, "%.150s is not writable", at);
    }
}

static bool check_templates(struct list *l, const struct config *c)
{
    static struct template_info rows[MANIFESTS_MAX];
    int n = manifest_list(c, rows, MANIFESTS_MAX);
    char names[200] = "";
    for (int i = 0; i < n; i++) {
        size_t used = strlen(names);
        (void)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", rows[i].name);
    }
    struct check *row = add(l, "templates", NEED_NONE, "%s", n ? names : "none built yet");
    if (n == 0) {
        unfit(row, "brood template build python");
    }
    return n > 0;
}

int checks_run(const struct config *c, bool probe, struct check ret_rows[CHECKS_MAX],
               bool *ret_have_template)
{
    struct list l = { .rows = ret_rows };
    check_user(&l);
    check_siblings(&l);
    program(&l, "qemu", "qemu-system-x86_64", "--version", NEED_UP, "qemu-system-x86");
    if (probe) {
        check_engine(&l, c);
        check_kvm(&l);
    }
    check_redis(&l, c);
    check_postgres(&l, c);
    check_disk(&l, c);
    check_memory(&l);
    check_memfd(&l);
    check_run_dir(&l, c);
    program(&l, "mmdebstrap", "mmdebstrap", "--version", NEED_BUILD, "mmdebstrap");
    program(&l, "mkfs.erofs", "mkfs.erofs", "--version", NEED_BUILD, "erofs-utils");
    program(&l, "cpio", "cpio", "--version", NEED_BUILD, "cpio");
    *ret_have_template = check_templates(&l, c);
    return l.n;
}

bool check_blocks(const struct check *row, bool for_up, bool have_template)
{
    return !row->ok &&
           (row->need == NEED_UP || (row->need == NEED_BUILD && !for_up && !have_template));
}
