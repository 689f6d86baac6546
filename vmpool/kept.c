#include "vmpool/kept.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <sodium.h>

#include "common/base/buf.h"
#include "common/base/cleanup.h"
#include "common/base/config.h"
#include "vmpool/ram.h"

#define MANIFEST_BYTES_MAX 65536u

DEFINE_CLEANUP(cleanup_json, json_t, json_decref)

bool kept_id_ok(const char *text)
{
    return strlen(text) == KEPT_ID_TEXT - 1 && strspn(text, "0123456789abcdef") == KEPT_ID_TEXT - 1;
}

static void id_of(const char *text, size_t len, char ret_id[KEPT_ID_TEXT])
{
    uint8_t sum[crypto_hash_sha256_BYTES];
    (void)crypto_hash_sha256(sum, (const uint8_t *)text, len);
    (void)sodium_bin2hex(ret_id, KEPT_ID_TEXT, sum, sizeof sum);
}

/* ---- manifest ---- */

/* KEPT_NUMBER(field): one list for writing and reading. */
#define KEPT_NUMBERS                                                                               \
    KEPT_NUMBER(layer_bytes)                                                                       \
    KEPT_NUMBER(pages)                                                                             \
    KEPT_NUMBER(zero_pages)                                                                        \
    KEPT_NUMBER(chain_bytes)                                                                       \
    KEPT_NUMBER(depth)

static char *print(const struct kept_manifest *m)
{
    CLEANUP(cleanup_json) json_t *root = manifest_to_json(&m->machine);
    (void)json_object_set_new(root, "parent", json_string(m->parent));
    (void)json_object_set_new(root, "layer_sha256", json_string(m->layer_sha256));
#define KEPT_NUMBER(field)                                                                         \
    (void)json_object_set_new(root, #field, json_integer((json_int_t)m->field));
    KEPT_NUMBERS
#undef KEPT_NUMBER
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    if (!text) {
        abort();
    }
    return text;
}

static int parse(const json_t *root, struct kept_manifest *ret, struct err *err)
{
    struct kept_manifest m = { 0 };
    const char *parent = json_string_value(json_object_get(root, "parent"));
    const char *layer = json_string_value(json_object_get(root, "layer_sha256"));
    int rc = manifest_from_json(root, &m.machine, err);
    if (rc < 0) {
        return rc;
    }
    if (!parent || (parent[0] && !kept_id_ok(parent)) || !layer || !kept_id_ok(layer)) {
        return err_set(err, ERR_INVALID, "kept state: parent or layer_sha256 is no digest");
    }
    memcpy(m.parent, parent, strlen(parent) + 1);
    memcpy(m.layer_sha256, layer, sizeof m.layer_sha256);
#define KEPT_NUMBER(field)                                                                         \
    const json_t *field = json_object_get(root, #field);                                           \
    if (!json_is_integer(field) || json_integer_value(field) < 0 ||                                \
        json_integer_value(field) > INT32_MAX * (json_int_t)LAYER_PAGE_BYTES) {                    \
        return err_set(err, ERR_INVALID, "kept state: " #field ": must be a whole number");        \
    }                                                                                              \
    m.field = (__typeof__(m.field))json_integer_value(field);
    KEPT_NUMBERS
#undef KEPT_NUMBER
    if (m.depth < 1 || m.depth > KEPT_CHAIN_MAX || (m.depth == 1) != !m.parent[0]) {
        return err_set(err, ERR_INVALID,
                       "kept state: depth: must be from 1 to %d, and 1 without "
                       "a parent",
                       KEPT_CHAIN_MAX);
    }
    *ret = m;
    return 0;
}

int kept_read_manifest(const char *home, const char *id, struct kept_manifest *ret, struct err *err)
{
    char path[TEMPLATE_PATH_MAX], sum[KEPT_ID_TEXT];
    assert(kept_id_ok(id));
    cleanup_buf struct buf b = { 0 };
    buf_init(&b, MANIFEST_BYTES_MAX);
    (void)snprintf(path, sizeof path, "%s/kept/%s/manifest.json", home, id);
    int rc = buf_read_file(&b, path, err);
    if (rc < 0) {
        return rc;
    }
    id_of(b.data ? b.data : "", b.len, sum);
    if (strcmp(sum, id) != 0) {
        return err_set(err, ERR_CORRUPT, "%s: its sum is %.16s..", path, sum);
    }
    json_error_t je;
    CLEANUP(cleanup_json) json_t *root = json_loadb(b.data, b.len, JSON_REJECT_DUPLICATES, &je);
    if (!json_is_object(root)) {
        return err_set(err, ERR_INVALID, "%s: no object", path);
    }
    rc = parse(root, ret, err);
    return rc < 0 ? err_prefix(err, "%s", path) : 0;
}

/* ---- writing ---- */

static void remove_folder(const char *dir)
{
    static const char *const names[] = { "layer", "manifest.json" };
    char path[TEMPLATE_PATH_MAX + 16];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(dir);
}

/* A name of our own in HOME/kept, where nothing is. */
static void own_name(const char *home, char *out, size_t room)
{
    static atomic_uint serial;
    (void)snprintf(out, room, "%s/kept/tmp.%d.%u", home, (int)getpid(),
                   atomic_fetch_add(&serial, 1));
    remove_folder(out);
}

/* What a crash of the host has cut short, say. Returns what whoever asks is told: it is to be
 * fetched, or made, again. */
static int put_away(const char *home, const char *id, struct err *err)
{
    char dir[TEMPLATE_PATH_MAX], to[TEMPLATE_PATH_MAX];
    (void)snprintf(dir, sizeof dir, "%s/kept/%s", home, id);
    own_name(home, to, sizeof to);
    if (rename(dir, to) == 0) {
        remove_folder(to);
    }
    return err_set(err, ERR_NOT_FOUND, "kept state %s is not whole on this disk", id);
}

int kept_find(const char *home, const char *id, struct kept_manifest *ret, struct err *err)
{
    int rc = kept_read_manifest(home, id, ret, err);
    return rc == -ERR_CORRUPT ? put_away(home, id, err) : rc;
}

bool kept_whole(const char *home, const char *id)
{
    char path[TEMPLATE_PATH_MAX];
    struct kept_manifest m;
    struct stat st;
    struct err err;
    (void)snprintf(path, sizeof path, "%s/kept/%s/layer", home, id);
    return kept_read_manifest(home, id, &m, &err) == 0 && stat(path, &st) == 0 &&
           (uint64_t)st.st_size == m.layer_bytes;
}

static int open_new(const char *dir, const char *name, int *ret_fd, struct err *err)
{
    char path[TEMPLATE_PATH_MAX + 16];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    *ret_fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    return *ret_fd < 0 ? err_sys(err, "%s", path) : 0;
}

static int add_chain(const char *home, struct kept_manifest *m, struct err *err)
{
    struct kept_manifest parent;
    m->depth = 1;
    m->chain_bytes = m->layer_bytes;
    if (!m->parent[0]) {
        return 0;
    }
    int rc = kept_read_manifest(home, m->parent, &parent, err);
    if (rc < 0) {
        return rc;
    }
    m->depth += parent.depth;
    m->chain_bytes += parent.chain_bytes;
    return m->depth <= KEPT_CHAIN_MAX
               ? 0
               : err_set(err, ERR_TOO_LARGE, "a chain of more than %d layers", KEPT_CHAIN_MAX);
}

static int fill(const char *home, const char *dir, const struct layer_source *from,
                struct kept_manifest *m, char ret_id[KEPT_ID_TEXT], struct err *err)
{
    struct layer_facts facts;
    cleanup_close int layer = -1;
    cleanup_close int text_fd = -1;
    int rc = open_new(dir, "layer", &layer, err);
    rc = rc < 0 ? rc : layer_write(layer, from, &facts, err);
    rc = rc < 0 ? rc : open_new(dir, "manifest.json", &text_fd, err);
    if (rc < 0) {
        return rc;
    }
    memcpy(m->layer_sha256, facts.sha256, sizeof m->layer_sha256);
    m->layer_bytes = facts.file_bytes;
    m->pages = facts.pages;
    m->zero_pages = facts.zero_pages;
    if ((rc = add_chain(home, m, err)) < 0) {
        return rc;
    }
    cleanup_free char *text = print(m);
    ssize_t len = (ssize_t)strlen(text);
    id_of(text, (size_t)len, ret_id);
    if (write(text_fd, text, (size_t)len) != len || fsync(layer) < 0 || fsync(text_fd) < 0) {
        return err_sys(err, "%s", dir);
    }
    return 0;
}

int kept_write(const char *home, const struct layer_source *from, struct kept_manifest *m,
               char ret_id[KEPT_ID_TEXT], struct err *err)
{
    char dir[TEMPLATE_PATH_MAX], to[TEMPLATE_PATH_MAX];
    assert(from->flat == !m->parent[0]);
    int rc = config_make_kept(home, err);
    if (rc < 0) {
        return rc;
    }
    own_name(home, dir, sizeof dir);
    /* The worker, another user of the folder's group, removes what was not used for longest. */
    if (mkdir(dir, 0770) < 0 || chmod(dir, 0770) < 0) {
        return err_sys(err, "mkdir %s", dir);
    }
    rc = fill(home, dir, from, m, ret_id, err);
    if (rc == 0) {
        (void)snprintf(to, sizeof to, "%s/kept/%s", home, ret_id);
        if (rename(dir, to) == 0) {
            return 0;
        }
        bool there = errno == EEXIST || errno == ENOTEMPTY;
        if (there && !kept_whole(home, ret_id)) {
            (void)put_away(home, ret_id, err);
            if (rename(dir, to) == 0) {
                return 0;
            }
            there = errno == EEXIST || errno == ENOTEMPTY;
        }
        rc = there ? 0 : err_sys(err, "rename %s", dir);
    }
    remove_folder(dir); /* it failed, or is there already */
    return rc;
}

/* ---- reading ---- */

static int apply(const char *home, const char *id, const struct kept_manifest *m, int ram_fd,
                 int state_fd, struct err *err)
{
    char path[TEMPLATE_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/kept/%s/layer", home, id);
    cleanup_close int layer = open(path, O_RDONLY | O_CLOEXEC);
    if (layer < 0) {
        return errno == ENOENT
                   ? err_set(err, ERR_NOT_FOUND, "kept state %s is not on this disk", id)
                   : err_sys(err, "%s", path);
    }
    int rc = layer_read(layer, m->layer_sha256, (uint64_t)m->machine.memory_mib << 20, ram_fd,
                        state_fd, err);
    return rc < 0 ? err_prefix(err, "%s", path) : 0;
}

/* All that the layers store, should no page be in two of them. */
static uint64_t ram_needed(const struct kept_manifest *chain, int n)
{
    uint64_t ram_bytes = (uint64_t)chain[0].machine.memory_mib << 20, bytes = 0;
    for (int i = 0; i < n; i++) {
        bytes += chain[i].pages * LAYER_PAGE_BYTES;
    }
    return bytes < ram_bytes ? bytes : ram_bytes;
}

int kept_load(const char *home, const char *id, const struct kept_manifest *m, uint64_t room_bytes,
              int *ret_ram_fd, int *ret_state_fd, uint64_t *ret_used, struct err *err)
{
    char ids[KEPT_CHAIN_MAX][KEPT_ID_TEXT];
    cleanup_free struct kept_manifest *chain = calloc(KEPT_CHAIN_MAX, sizeof *chain);
    cleanup_close int ram = -1;
    cleanup_close int state = -1;
    int n = 1, rc;
    if (!chain) {
        abort();
    }
    chain[0] = *m;
    memcpy(ids[0], id, KEPT_ID_TEXT);
    for (; chain[n - 1].parent[0]; n++) {
        if (n == KEPT_CHAIN_MAX) {
            return err_set(err, ERR_INVALID, "kept state %s: more than %d layers", id,
                           KEPT_CHAIN_MAX);
        }
        memcpy(ids[n], chain[n - 1].parent, KEPT_ID_TEXT);
        if ((rc = kept_find(home, ids[n], &chain[n], err)) < 0) {
            return rc == -ERR_NOT_FOUND
                       ? err_set(err, ERR_NOT_FOUND, "kept state %s is not on this disk", ids[n])
                       : rc;
        }
        if (chain[n].machine.memory_mib != m->machine.memory_mib) {
            return err_set(err, ERR_INVALID, "kept state %s: another size of RAM than its child",
                           ids[n]);
        }
    }
    uint64_t bytes = (uint64_t)m->machine.memory_mib << 20, needed = ram_needed(chain, n);
    if (needed > room_bytes) {
        *ret_used = needed;
        return err_set(err, ERR_NO_CAPACITY, "kept state %s: %llu MiB, and there is no room", id,
                       (unsigned long long)needed >> 20);
    }
    if ((rc = ram_memfd("brood-kept", bytes, &ram, err)) < 0 ||
        (rc = ram_memfd("brood-state", 0, &state, err)) < 0) {
        return rc;
    }
    int missing = 0;
    while (n-- > 0) {
        struct err other, *why = missing < 0 ? &other : err;
        rc = apply(home, ids[n], &chain[n], ram, n == 0 ? state : -1, why);
        if (rc == -ERR_CORRUPT || rc == -ERR_NOT_FOUND) { /* and what else is, is found at once */
            missing = put_away(home, ids[n], why);
        } else if (rc < 0) {
            return missing < 0 ? missing : rc;
        }
    }
    if (missing < 0) {
        return missing;
    }
    struct stat st;
    if (fstat(ram, &st) < 0) {
        return err_sys(err, "fstat");
    }
    if ((rc = ram_seal_whole(ram, err)) < 0 || (rc = ram_seal_whole(state, err)) < 0) {
        return rc;
    }
    *ret_used = (uint64_t)st.st_blocks * 512;
    *ret_ram_fd = TAKE_FD(ram);
    *ret_state_fd = TAKE_FD(state);
    return 0;
}
