#include "common/archive/tree.h"

#include <assert.h>
#include <pthread.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/path.h"

static pthread_once_t secret_once = PTHREAD_ONCE_INIT;
static unsigned char secret[crypto_shorthash_KEYBYTES];

static void make_secret(void)
{
    randombytes_buf(secret, sizeof secret);
}

static unsigned name_hash(const void *key, size_t len)
{
    unsigned char out[crypto_shorthash_BYTES];
    unsigned hash;
    (void)crypto_shorthash(out, key, len, secret);
    memcpy(&hash, out, sizeof hash);
    return hash;
}

#define HASH_FUNCTION(keyptr, keylen, hashv) ((hashv) = name_hash(keyptr, keylen))
#include <uthash.h>

#define ROOT 0u
#define KEY_HEAD sizeof(uint32_t)

struct tree_node {
    UT_hash_handle hh;
    uint32_t id;
    enum unpack_type type;
    unsigned char key[]; /* the folder's id, then the name */
};

void tree_init(struct tree *t, uint32_t entries_max, size_t path_bytes_max)
{
    assert(entries_max <= UNPACK_ENTRIES_MAX && path_bytes_max <= UNPACK_PATH_BYTES_MAX);
    (void)pthread_once(&secret_once, make_secret);
    *t = (struct tree){ .max = entries_max, .path_bytes_max = path_bytes_max };
}

void tree_done(struct tree *t)
{
    struct tree_node *node, *next;
    HASH_ITER(hh, t->nodes, node, next)
    {
        HASH_DEL(t->nodes, node);
        free(node);
    }
    *t = (struct tree){ 0 };
}

int tree_clean(const struct tree *t, const char *raw, char *out, struct err *err)
{
    size_t n = 0;
    if (raw[0] == '/') {
        return err_set(err, ERR_INVALID, "the path is absolute");
    }
    for (const char *p = raw; *p;) {
        size_t len = strcspn(p, "/");
        if (len == 2 && p[0] == '.' && p[1] == '.') {
            return err_set(err, ERR_INVALID, "the path holds \"..\"");
        }
        if (len > PATH_NAME_BYTES_MAX) {
            return err_set(err, ERR_TOO_LARGE, "a part of the path is over %u bytes",
                           PATH_NAME_BYTES_MAX);
        }
        if (len > 0 && !(len == 1 && p[0] == '.')) {
            if (n + (n > 0) + len > t->path_bytes_max) {
                return err_set(err, ERR_TOO_LARGE, "the path is over %zu bytes", t->path_bytes_max);
            }
            if (n > 0) {
                out[n++] = '/';
            }
            memcpy(out + n, p, len);
            n += len;
        }
        p += len + (p[len] == '/');
    }
    out[n] = '\0';
    return (int)n;
}

static struct tree_node *find(const struct tree *t, uint32_t parent, const char *name, size_t len)
{
    unsigned char key[KEY_HEAD + PATH_NAME_BYTES_MAX];
    struct tree_node *node;
    assert(len <= PATH_NAME_BYTES_MAX);
    memcpy(key, &parent, KEY_HEAD);
    memcpy(key + KEY_HEAD, name, len);
    HASH_FIND(hh, t->nodes, key, KEY_HEAD + len, node);
    return node;
}

static int make(struct tree *t, uint32_t parent, const char *name, size_t len,
                enum unpack_type type, struct tree_node **ret_node, struct err *err)
{
    if (t->n >= t->max) {
        return err_set(err, ERR_TOO_LARGE, "more than %u files and folders", t->max);
    }
    struct tree_node *node = calloc(1, sizeof *node + KEY_HEAD + len);
    if (!node) {
        abort();
    }
    node->id = ++t->n;
    node->type = type;
    memcpy(node->key, &parent, KEY_HEAD);
    memcpy(node->key + KEY_HEAD, name, len);
    HASH_ADD_KEYPTR(hh, t->nodes, node->key, KEY_HEAD + len, node);
    *ret_node = node;
    return 0;
}

static const char *in_the_way(enum unpack_type type)
{
    return type == UNPACK_LINK ? "the path leads through a link of the archive"
                               : "the path leads through a file of the archive";
}

static int place(struct tree *t, const struct unpack_entry *e, struct err *err)
{
    uint32_t parent = ROOT;
    for (size_t at = 0; at < e->path_len;) {
        const char *name = e->path + at;
        const char *slash = memchr(name, '/', e->path_len - at);
        size_t len = slash ? (size_t)(slash - name) : e->path_len - at;
        struct tree_node *node = find(t, parent, name, len);
        if (!slash && node && (node->type != UNPACK_DIR || e->type != UNPACK_DIR)) {
            return err_set(err, ERR_INVALID, "the path is there already");
        }
        if (slash && node && node->type != UNPACK_DIR) {
            return err_set(err, ERR_INVALID, "%s", in_the_way(node->type));
        }
        if (!node) {
            int rc = make(t, parent, name, len, slash ? UNPACK_DIR : e->type, &node, err);
            if (rc < 0) {
                return rc;
            }
        }
        parent = node->id;
        at += len + 1;
    }
    return 0;
}

static int check_link(const struct unpack_entry *e, struct err *err)
{
    int up = 0, depth = 0;
    if (e->target_len == 0) {
        return err_set(err, ERR_INVALID, "a link without a target");
    }
    if (e->target[0] == '/') {
        return err_set(err, ERR_INVALID, "a link to an absolute path");
    }
    for (size_t i = 0; i < e->path_len; i++) {
        depth += e->path[i] == '/';
    }
    bool named = false;
    for (const char *p = e->target; *p;) {
        size_t len = strcspn(p, "/");
        if (len == 2 && p[0] == '.' && p[1] == '.') {
            if (named) {
                return err_set(err, ERR_INVALID, "a link with \"..\" behind a name");
            }
            if (++up > depth) {
                return err_set(err, ERR_INVALID, "a link that leaves the work folder");
            }
        } else if (len > 0 && !(len == 1 && p[0] == '.')) {
            named = true;
        }
        p += len + (p[len] == '/');
    }
    return 0;
}

static int check_hardlink(const struct tree *t, const struct unpack_entry *e, struct err *err)
{
    uint32_t parent = ROOT;
    for (size_t at = 0; at < e->target_len;) {
        const char *name = e->target + at;
        const char *slash = memchr(name, '/', e->target_len - at);
        size_t len = slash ? (size_t)(slash - name) : e->target_len - at;
        const struct tree_node *node = find(t, parent, name, len);
        if (node && slash && node->type == UNPACK_DIR) {
            parent = node->id;
            at += len + 1;
            continue;
        }
        if (node && !slash && (node->type == UNPACK_FILE || node->type == UNPACK_HARDLINK)) {
            return 0;
        }
        break;
    }
    return err_set(err, ERR_INVALID, "a hard link to what is no file that came before");
}

int tree_add(struct tree *t, const struct unpack_entry *e, struct err *err)
{
    assert(path_clean(e->path, e->path_len));
    int rc = 0;
    if (e->type == UNPACK_LINK) {
        rc = check_link(e, err);
    } else if (e->type == UNPACK_HARDLINK) {
        rc = check_hardlink(t, e, err);
    }
    return rc < 0 ? rc : place(t, e, err);
}
