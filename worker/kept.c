#include "worker/kept.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <jansson.h>

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define KEEP_WAIT_MS 120000
#define PATH_BYTES 1024
#define MANIFEST_BYTES_MAX 65536u
#define FETCH_RANGES 4
#define FETCH_LOOK_MS 50 /* whether another slot has fetched a state */
#define FETCH_RANGE_BYTES (4 << 20)
#define YOUNG_S 60       /* used so lately: not removed */
#define ABANDONED_S 3600 /* in no object store after so long: nobody will name it */
#define FOLDERS_MAX 4096

DEFINE_CLEANUP(cleanup_json, json_t, json_decref)

struct kept {
    const struct config *config;
    struct object_store *objects;
    /* None is held while an object is on its way, but for trims, which nobody waits for. */
    pthread_mutex_t pg_lock, fetch_lock, trim_lock;
    struct pg pg;
    struct fetch *fetches; /* under way, each state once */
};

struct fetch {
    const char *id;
    struct fetch *next;
};

struct kept *kept_new(const struct config *config, struct object_store *objects)
{
    struct kept *k = calloc(1, sizeof *k);
    if (!k) {
        abort();
    }
    k->config = config;
    k->objects = objects;
    (void)pthread_mutex_init(&k->pg_lock, NULL);
    (void)pthread_mutex_init(&k->fetch_lock, NULL);
    (void)pthread_mutex_init(&k->trim_lock, NULL);
    (void)snprintf(k->pg.url, sizeof k->pg.url, "%s", config->postgres_url);
    return k;
}

void kept_free(struct kept *k)
{
    if (k) {
        pg_close(&k->pg);
        assert(!k->fetches);
        (void)pthread_mutex_destroy(&k->pg_lock);
        (void)pthread_mutex_destroy(&k->fetch_lock);
        (void)pthread_mutex_destroy(&k->trim_lock);
        free(k);
    }
}

bool kept_is(const char *template_name)
{
    return strncmp(template_name, SNAPSHOT_TEMPLATE_PREFIX, strlen(SNAPSHOT_TEMPLATE_PREFIX)) == 0;
}

int kept_resolve(struct kept *k, const char *tenant, const char *template_name,
                 struct snapshot_row *ret_row, struct err *err)
{
    assert(kept_is(template_name));
    (void)pthread_mutex_lock(&k->pg_lock);
    int rc = store_snapshot_resolve(&k->pg, tenant,
                                    template_name + strlen(SNAPSHOT_TEMPLATE_PREFIX), ret_row, err);
    (void)pthread_mutex_unlock(&k->pg_lock);
    return rc;
}

/* ---- the folder ---- */

static void path_of(const struct kept *k, const char *id, const char *file, char out[PATH_BYTES])
{
    (void)snprintf(out, PATH_BYTES, "%s/kept/%s%s%s", k->config->home, id, file ? "/" : "",
                   file ? file : "");
}

static bool is_here(const struct kept *k, const char *id)
{
    char path[PATH_BYTES];
    path_of(k, id, "manifest.json", path);
    return access(path, R_OK) == 0;
}

/* The folder's time is that of the last use: its files may be another user's, and are not written
 * again. */
static void touch(const struct kept *k, const char *id)
{
    char path[PATH_BYTES];
    path_of(k, id, NULL, path);
    (void)utimensat(AT_FDCWD, path, NULL, 0);
}

static void remove_folder(const struct kept *k, const char *id)
{
    static const char *const names[] = { "manifest.json", "layer" };
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        path_of(k, id, names[i], path);
        (void)unlink(path);
    }
    path_of(k, id, NULL, path);
    (void)rmdir(path);
}

/* What the worker needs of a manifest that vmpool wrote. */
struct facts {
    char layer[OBJECT_HEX + 1], parent[OBJECT_HEX + 1];
    char template_name[JOB_TEMPLATE_MAX + 1], template_digest[72];
    char engine[32], version[64], cpu_model[64], kernel[72];
    int64_t memory_mib, vcpus, layer_bytes, pages;
};

static int take_text(const json_t *root, const char *key, char *out, size_t room, struct err *err)
{
    const char *s = json_string_value(json_object_get(root, key));
    if (!s || strlen(s) >= room) {
        return err_set(err, ERR_INVALID, "kept state: %s: a string of at most %zu bytes", key,
                       room - 1);
    }
    memcpy(out, s, strlen(s) + 1);
    return 0;
}

static int read_facts(const struct kept *k, const char *id, struct facts *f, struct err *err)
{
    char path[PATH_BYTES];
    cleanup_buf struct buf b = { 0 };
    json_error_t je;
    buf_init(&b, MANIFEST_BYTES_MAX);
    path_of(k, id, "manifest.json", path);
    int rc = buf_read_file(&b, path, err);
    if (rc < 0) {
        return rc;
    }
    CLEANUP(cleanup_json) json_t *root = json_loadb(b.data ? b.data : "", b.len, 0, &je);
    if ((rc = take_text(root, "layer_sha256", f->layer, sizeof f->layer, err)) < 0 ||
        (rc = take_text(root, "parent", f->parent, sizeof f->parent, err)) < 0 ||
        (rc = take_text(root, "template_name", f->template_name, sizeof f->template_name, err)) <
            0 ||
        (rc = take_text(root, "template_digest", f->template_digest, sizeof f->template_digest,
                        err)) < 0 ||
        (rc = take_text(root, "engine", f->engine, sizeof f->engine, err)) < 0 ||
        (rc = take_text(root, "vmm_version", f->version, sizeof f->version, err)) < 0 ||
        (rc = take_text(root, "cpu_model", f->cpu_model, sizeof f->cpu_model, err)) < 0 ||
        (rc = take_text(root, "kernel_digest", f->kernel, sizeof f->kernel, err)) < 0) {
        return rc;
    }
    f->memory_mib = json_integer_value(json_object_get(root, "memory_mib"));
    f->vcpus = json_integer_value(json_object_get(root, "vcpus"));
    f->layer_bytes = json_integer_value(json_object_get(root, "layer_bytes"));
    f->pages = json_integer_value(json_object_get(root, "pages"));
    return 0;
}

/* ---- the cache's bound ---- */

struct folder {
    char id[OBJECT_HEX + 1];
    int64_t used_s, bytes;
};

static int by_use(const void *a, const void *b)
{
    const struct folder *x = a, *y = b;
    return x->used_s < y->used_s ? -1 : x->used_s > y->used_s;
}

static int list_folders(const struct kept *k, struct folder *folders, int64_t *ret_bytes)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/kept", k->config->home);
    DIR *dir = opendir(path);
    const struct dirent *e;
    int n = 0;
    while (dir && n < FOLDERS_MAX && (e = readdir(dir))) {
        struct object_id id;
        struct stat layer, manifest, folder;
        struct err ignored;
        if (object_id_parse(&id, e->d_name, &ignored) < 0) {
            continue;
        }
        path_of(k, id.hex, "layer", path);
        bool there = stat(path, &layer) == 0;
        path_of(k, id.hex, "manifest.json", path);
        there = there && stat(path, &manifest) == 0;
        path_of(k, id.hex, NULL, path);
        if (there && stat(path, &folder) == 0) {
            memcpy(folders[n].id, id.hex, sizeof id.hex);
            folders[n].used_s = (int64_t)folder.st_mtim.tv_sec;
            folders[n].bytes = (int64_t)layer.st_size + (int64_t)manifest.st_size;
            *ret_bytes += folders[n++].bytes;
        }
    }
    if (dir) {
        (void)closedir(dir);
    }
    return n;
}

static bool is_stored(struct kept *k, const char *id)
{
    struct facts f;
    struct object_id manifest, layer;
    struct err err;
    return read_facts(k, id, &f, &err) == 0 && object_id_parse(&manifest, id, &err) == 0 &&
           object_id_parse(&layer, f.layer, &err) == 0 &&
           object_exists(k->objects, &manifest, &err) == 1 &&
           object_exists(k->objects, &layer, &err) == 1;
}

static bool used_since(const struct kept *k, const struct folder *f)
{
    char path[PATH_BYTES];
    struct stat st;
    path_of(k, f->id, NULL, path);
    return stat(path, &st) == 0 && (int64_t)st.st_mtim.tv_sec > f->used_s;
}

/* Another thread's trim is as good. */
static void trim(struct kept *k)
{
    if (pthread_mutex_trylock(&k->trim_lock) != 0) {
        return;
    }
    cleanup_free struct folder *folders = calloc(FOLDERS_MAX, sizeof *folders);
    int64_t bytes = 0, max = k->config->worker_kept_cache_mib_max << 20;
    if (!folders) {
        abort();
    }
    int n = list_folders(k, folders, &bytes);
    qsort(folders, (size_t)n, sizeof *folders, by_use);
    for (int i = 0; i < n && bytes > max; i++) {
        int64_t idle_s = wall_ms() / 1000 - folders[i].used_s;
        if (idle_s >= YOUNG_S && (idle_s >= ABANDONED_S || is_stored(k, folders[i].id)) &&
            !used_since(k, &folders[i])) {
            remove_folder(k, folders[i].id);
            bytes -= folders[i].bytes;
            log_info("kept state leaves this disk", "id", folders[i].id);
        }
    }
    (void)pthread_mutex_unlock(&k->trim_lock);
}

/* ---- fetching ---- */

/* vmpool reads and writes the folder as a user of its own, which HOME/snapshots belongs to. We may
 * not give files away unless we are root; then the group does: HOME/kept has one that both are of,
 * and a new folder in it gets that (cli/users.h). */
static void give_to_vmpool(const struct kept *k, const char *path)
{
    char snapshots[PATH_BYTES];
    struct stat st;
    (void)snprintf(snapshots, sizeof snapshots, "%s/snapshots", k->config->home);
    if (stat(snapshots, &st) == 0 && chown(path, st.st_uid, st.st_gid) < 0) {
        log_debug("a kept state is not given to vmpool", "path", path);
    }
}

static int fetch_file(struct kept *k, const char *digest, const char *path, int stop_fd,
                      struct err *err)
{
    struct object_id id;
    cleanup_close int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (fd < 0) {
        return err_sys(err, "%s", path);
    }
    give_to_vmpool(k, path);
    int rc = object_id_parse(&id, digest, err);
    rc = rc < 0 ? rc
                : object_get_parallel(k->objects, &id, fd, FETCH_RANGES, FETCH_RANGE_BYTES, stop_fd,
                                      NULL, err);
    return rc == 0 && fsync(fd) < 0 ? err_sys(err, "%s", path) : rc;
}

static int fetch_state(struct kept *k, const char *id, const char *layer, int stop_fd,
                       struct err *err)
{
    char tmp[40], path[PATH_BYTES], to[PATH_BYTES];
    int rc = config_make_kept(k->config->home, err);
    if (rc < 0) {
        return rc;
    }
    (void)snprintf(path, sizeof path, "%s/kept", k->config->home);
    give_to_vmpool(k, path);
    (void)snprintf(tmp, sizeof tmp, "get.%d.%.16s", (int)getpid(), id); /* each once */
    remove_folder(k, tmp);
    path_of(k, tmp, NULL, path);
    if (mkdir(path, 0770) < 0 || chmod(path, 0770) < 0) {
        return err_sys(err, "mkdir %s", path);
    }
    give_to_vmpool(k, path);
    path_of(k, tmp, "layer", path);
    rc = fetch_file(k, layer, path, stop_fd, err);
    if (rc == 0) {
        path_of(k, tmp, "manifest.json", path);
        rc = fetch_file(k, id, path, stop_fd, err);
    }
    path_of(k, tmp, NULL, path);
    path_of(k, id, NULL, to);
    if (rc == 0 && rename(path, to) < 0 && errno != EEXIST && errno != ENOTEMPTY) {
        rc = err_sys(err, "rename %s", path);
    }
    remove_folder(k, tmp);
    return rc < 0 ? err_prefix(err, "kept state %.16s..", id) : 0;
}

/* true: f is the one that fetches its state now. */
static bool fetch_begin(struct kept *k, struct fetch *f)
{
    (void)pthread_mutex_lock(&k->fetch_lock);
    const struct fetch *other = k->fetches;
    while (other && strcmp(other->id, f->id) != 0) {
        other = other->next;
    }
    if (!other) {
        f->next = k->fetches;
        k->fetches = f;
    }
    (void)pthread_mutex_unlock(&k->fetch_lock);
    return !other;
}

static void fetch_end(struct kept *k, struct fetch *f)
{
    (void)pthread_mutex_lock(&k->fetch_lock);
    struct fetch **at = &k->fetches;
    while (*at != f) {
        at = &(*at)->next;
    }
    *at = f->next;
    (void)pthread_mutex_unlock(&k->fetch_lock);
}

/* Have one state here; another slot that fetches it is waited for; until abort_fd is readable.
 * Returns 1 when it was fetched now. */
static int have_state(struct kept *k, const char *id, const char *layer, int abort_fd,
                      struct err *err)
{
    struct fetch f = { .id = id };
    while (!is_here(k, id)) {
        if (fetch_begin(k, &f)) {
            int rc = is_here(k, id) ? 0 : fetch_state(k, id, layer, abort_fd, err);
            fetch_end(k, &f);
            return rc < 0 ? rc : 1;
        }
        struct pollfd p = { .fd = abort_fd, .events = POLLIN };
        if (poll(&p, 1, FETCH_LOOK_MS) > 0) {
            return err_set(err, ERR_STALE, "given up while a kept state was fetched");
        }
    }
    return 0;
}

/* Have every state of the row's chain on this disk: manifest and layer in turn. */
static int fetch(struct kept *k, const struct snapshot_row *row, int abort_fd, struct err *err)
{
    int rc = k->objects ? 0 : err_set(err, ERR_UNAVAILABLE, "kept states: no object store is open");
    int64_t start_us = mono_us();
    int fetched = 0;
    for (int i = 0; rc >= 0 && i + 1 < row->n_layers; i += 2) {
        rc = have_state(k, row->layers[i], row->layers[i + 1], abort_fd, err);
        fetched += rc > 0;
        touch(k, row->layers[i]);
    }
    if (fetched > 0) {
        char count[16], us[24];
        (void)snprintf(count, sizeof count, "%d", fetched);
        (void)snprintf(us, sizeof us, "%lld", (long long)(mono_us() - start_us));
        log_info("kept state fetched", "id", row->digest, "layers", count, "us", us);
        trim(k);
    }
    return rc < 0 ? rc : 0;
}

int kept_lease(struct kept *k, struct pool_client *pool, const struct snapshot_row *row,
               bool saturated, int abort_fd, int64_t timeout_ms, struct lease *ret_lease,
               struct err *err)
{
    char name[96];
    (void)snprintf(name, sizeof name, "kept:%s", row->digest);
    int rc = pool_lease(pool, name, saturated, abort_fd, timeout_ms, ret_lease, err);
    if (rc == -ERR_NOT_FOUND) {
        rc = fetch(k, row, abort_fd, err);
        rc = rc < 0 ? rc : pool_lease(pool, name, saturated, abort_fd, timeout_ms, ret_lease, err);
    }
    if (rc == 0) {
        touch(k, row->digest);
    }
    return rc;
}

/* ---- keeping ---- */

static int upload_file(struct kept *k, const char *id, const char *file, const char *digest,
                       struct err *err)
{
    char path[PATH_BYTES];
    struct object_id want;
    path_of(k, id, file, path);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return err_sys(err, "%s", path);
    }
    struct object_put put = { .fd = fd, .size_bytes = -1, .want = &want };
    int rc = object_id_parse(&want, digest, err);
    return rc < 0 ? rc : object_put(k->objects, &put, err);
}

static int upload(struct kept *k, const char *id, struct facts *ret_facts, struct err *err)
{
    int rc = read_facts(k, id, ret_facts, err);
    rc = rc < 0 ? rc : upload_file(k, id, "layer", ret_facts->layer, err);
    return rc < 0 ? rc : upload_file(k, id, "manifest.json", id, err);
}

static int add_layer(struct snapshot_row *row, const char *digest, struct err *err)
{
    if (row->n_layers == SNAPSHOT_LAYERS_MAX) {
        return err_set(err, ERR_TOO_LARGE, "a kept state of more than %d objects",
                       SNAPSHOT_LAYERS_MAX);
    }
    (void)snprintf(row->layers[row->n_layers++], sizeof row->layers[0], "%s", digest);
    return 0;
}

/* The objects below the state: those of what it was started from, or the template's. */
static int add_below(struct kept *k, const char *parent, const struct snapshot_row *from,
                     struct snapshot_row *row, struct err *err)
{
    struct facts base;
    int rc = 0;
    if (!parent[0]) {
        return 0; /* it is whole */
    }
    if (from && strcmp(from->digest, parent) == 0) {
        /* The new state needs them also when the old one's row goes before its own is there: what
         * is still on this disk is put again, which keeps it from a sweep. */
        for (int i = 0; rc == 0 && i < from->n_layers; i++) {
            rc = i % 2 == 0 && is_here(k, from->layers[i]) ? upload(k, from->layers[i], &base, err)
                                                           : 0;
            rc = rc < 0 ? rc : add_layer(row, from->layers[i], err);
        }
        return rc;
    }
    rc = upload(k, parent, &base, err);
    if (rc == 0 && base.parent[0]) {
        rc = err_set(err, ERR_INTERNAL, "kept state: its parent is not the template's");
    }
    rc = rc < 0 ? rc : add_layer(row, parent, err);
    return rc < 0 ? rc : add_layer(row, base.layer, err);
}

static void name_row(const struct kept_ask *ask, const char *id, const struct facts *f,
                     struct snapshot_row *row)
{
    char attempt[16], node[16];
    (void)snprintf(attempt, sizeof attempt, "%d", ask->attempt);
    (void)snprintf(node, sizeof node, "%d", ask->node);
    const char *parts[] = { "snapshot", ask->job_id, attempt, node };
    row->id = id_derive(parts, 4);
    row->node = ask->node;
    row->pinned = ask->keep->pin;
    row->ttl_s = ask->keep->pin ? 0 : ask->keep->ttl_s;
    row->vcpus = (int)f->vcpus;
    row->memory_mib = (int)f->memory_mib;
    row->ram_bytes = f->memory_mib << 20;
    row->layer_bytes = f->layer_bytes;
    const struct {
        char *to;
        size_t room;
        const char *text;
    } texts[] = {
        { row->tenant, sizeof row->tenant, ask->tenant },
        { row->name, sizeof row->name, ask->keep->name },
        { row->job_id, sizeof row->job_id, ask->job_id },
        { row->parent, sizeof row->parent, ask->from ? ask->from->id.text : "" },
        { row->digest, sizeof row->digest, id },
        { row->template_name, sizeof row->template_name, f->template_name },
        { row->template_digest, sizeof row->template_digest, f->template_digest },
        { row->engine, sizeof row->engine, f->engine },
        { row->engine_version, sizeof row->engine_version, f->version },
        { row->cpu_model, sizeof row->cpu_model, f->cpu_model },
        { row->kernel_digest, sizeof row->kernel_digest, f->kernel },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        (void)snprintf(texts[i].to, texts[i].room, "%s", texts[i].text);
    }
}

/* Write the state and copy it to the object store; what of the row follows from that. */
static int export_state(struct kept *k, struct pool_client *pool, const struct lease *frozen,
                        int abort_fd, const struct snapshot_row *from, struct facts *ret_facts,
                        struct snapshot_row *ret_row, struct err *err)
{
    struct pool_kept made;
    *ret_row = (struct snapshot_row){ 0 };
    int rc = k->objects ? pool_keep(pool, frozen, abort_fd, KEEP_WAIT_MS, &made, err)
                        : err_set(err, ERR_UNAVAILABLE, "no object store is open");
    if (rc < 0) {
        return rc;
    }
    int64_t start_us = mono_us();
    rc = upload(k, made.id, ret_facts, err);
    rc = rc < 0 ? rc : add_layer(ret_row, made.id, err);
    rc = rc < 0 ? rc : add_layer(ret_row, ret_facts->layer, err);
    rc = rc < 0 ? rc : add_below(k, made.parent, from, ret_row, err);
    if (rc < 0) {
        return rc;
    }
    (void)snprintf(ret_row->digest, sizeof ret_row->digest, "%.64s", made.id);
    char us[24], pages[24];
    (void)snprintf(us, sizeof us, "%lld", (long long)(mono_us() - start_us));
    (void)snprintf(pages, sizeof pages, "%lld", (long long)ret_facts->pages);
    log_info("state kept", "id", made.id, "pages", pages, "upload_us", us);
    trim(k);
    return 0;
}

int kept_store(struct kept *k, struct pool_client *pool, const struct lease *frozen, int abort_fd,
               const struct kept_ask *ask, struct snapshot_row *ret_row, struct err *err)
{
    struct facts f;
    int rc = export_state(k, pool, frozen, abort_fd, ask->from, &f, ret_row, err);
    if (rc == 0) {
        char id[OBJECT_HEX + 1];
        (void)snprintf(id, sizeof id, "%s", ret_row->digest);
        name_row(ask, id, &f, ret_row);
    }
    return rc;
}

int kept_lend(struct kept *k, struct pool_client *pool, const struct lease *frozen, int abort_fd,
              const struct snapshot_row *from, struct snapshot_row *ret_row, struct err *err)
{
    struct facts f;
    return export_state(k, pool, frozen, abort_fd, from, &f, ret_row, err);
}

void kept_lend_end(struct kept *k, const struct snapshot_row *row)
{
    struct object_id id;
    struct err err = { 0 };
    assert(row->n_layers >= 2);
    for (int i = 0; i < 2; i++) { /* its manifest and its layer; what is below belongs to others */
        if (object_id_parse(&id, row->layers[i], &err) < 0 ||
            object_delete(k->objects, &id, &err) < 0) {
            log_debug("a lent state stays in the object store", "id", row->layers[i], "error",
                      err.text);
        }
    }
    remove_folder(k, row->digest);
}
