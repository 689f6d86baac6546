/* HOME/templates/NAME/current -> DIGEST/{rootfs.erofs,manifest.json}; HOME/kernel/current ->
 * DIGEST/{vmlinuz,initrd, manifest.json}. The digest is the folder's name: the link is the only
 * thing that ever changes. */
#include "vmpool/template.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <jansson.h>

#include "common/base/buf.h"
#include "common/base/cleanup.h"

#define MANIFEST_BYTES_MAX 65536u

DEFINE_CLEANUP(cleanup_json, json_t, json_decref)

static bool word_ok(const char *s, size_t n, size_t max)
{
    if (n == 0 || n >= max || s[0] == '.' || s[0] == '-') {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '_' || c == '-')) {
            return false;
        }
    }
    return true;
}

int template_spec_parse(const char *spec, char ret_name[TEMPLATE_NAME_MAX],
                        char ret_digest[TEMPLATE_DIGEST_MAX], struct err *err)
{
    const char *at = strchr(spec, '@');
    size_t n = at ? (size_t)(at - spec) : strlen(spec);
    if (!word_ok(spec, n, TEMPLATE_NAME_MAX) ||
        (at && !word_ok(at + 1, strlen(at + 1), TEMPLATE_DIGEST_MAX))) {
        return err_set(err, ERR_INVALID,
                       "template: must be NAME or NAME@DIGEST of letters, digits, '.', '_', '-'");
    }
    memcpy(ret_name, spec, n);
    ret_name[n] = 0;
    (void)snprintf(ret_digest, TEMPLATE_DIGEST_MAX, "%s", at ? at + 1 : "");
    return 0;
}

static int read_current(const char *link, const char *what, char ret_digest[TEMPLATE_DIGEST_MAX],
                        struct err *err)
{
    char target[TEMPLATE_PATH_MAX];
    ssize_t n = readlink(link, target, sizeof target - 1);
    if (n < 0) {
        return errno == ENOENT || errno == ENOTDIR
                   ? err_set(err, ERR_NOT_FOUND, "%s: not built (%s is missing)", what, link)
                   : err_sys(err, "%s", link);
    }
    target[n] = 0;
    while (n > 0 && target[n - 1] == '/') {
        target[--n] = 0;
    }
    const char *base = strrchr(target, '/');
    base = base ? base + 1 : target;
    if (!word_ok(base, strlen(base), TEMPLATE_DIGEST_MAX)) {
        return err_set(err, ERR_INVALID, "%s: points to \"%.80s\", not to a digest", link, target);
    }
    memcpy(ret_digest, base, strlen(base) + 1);
    return 0;
}

int template_current(const char *home, const char *name, char ret_digest[TEMPLATE_DIGEST_MAX],
                     struct err *err)
{
    char link[TEMPLATE_PATH_MAX], what[TEMPLATE_NAME_MAX + 16];
    (void)snprintf(link, sizeof link, "%s/templates/%s/current", home, name);
    (void)snprintf(what, sizeof what, "template %s", name);
    return read_current(link, what, ret_digest, err);
}

static int read_json(const char *path, json_t **ret, struct err *err)
{
    cleanup_buf struct buf b = { 0 };
    buf_init(&b, MANIFEST_BYTES_MAX);
    int rc = buf_read_file(&b, path, err);
    if (rc < 0) {
        return rc;
    }
    json_error_t je;
    json_t *root = json_loadb(b.data ? b.data : "", b.len, JSON_REJECT_DUPLICATES, &je);
    if (!json_is_object(root)) {
        json_decref(root);
        return err_set(err, ERR_INVALID, "%s: %s", path, root ? "not an object" : je.text);
    }
    *ret = root;
    return 0;
}

static int get_uint(const json_t *root, const char *path, const char *key, uint32_t min,
                    uint32_t max, uint32_t *ret, struct err *err)
{
    const json_t *v = json_object_get(root, key);
    if (!v && *ret) {
        return 0; /* the default stands */
    }
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max) {
        return err_set(err, ERR_INVALID, "%s: %s: must be a whole number from %u to %u", path, key,
                       min, max);
    }
    *ret = (uint32_t)json_integer_value(v);
    return 0;
}

/* exercise.key into out, strings each ended by NUL. */
static int get_exercise(const json_t *root, const char *path, const char *key,
                        char out[TEMPLATE_EXERCISE_MAX], uint32_t *ret_len, struct err *err)
{
    const json_t *argv = json_object_get(json_object_get(root, "exercise"), key);
    uint32_t len = 0;
    size_t i;
    json_t *arg;
    if (!argv) {
        return 0;
    }
    json_array_foreach(argv, i, arg)
    {
        const char *s = json_string_value(arg);
        size_t n = s ? json_string_length(arg) + 1 : 0;
        if (!s || strlen(s) + 1 != n || len + n > TEMPLATE_EXERCISE_MAX) {
            return err_set(err, ERR_INVALID,
                           "%s: exercise.%s: strings without NUL, at most %d bytes in all", path,
                           key, TEMPLATE_EXERCISE_MAX);
        }
        memcpy(out + len, s, n);
        len += (uint32_t)n;
    }
    *ret_len = len;
    return 0;
}

static int load_kernel(const char *home, struct template_info *t, struct err *err)
{
    char path[TEMPLATE_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/kernel/current", home);
    int rc = read_current(path, "the guest's kernel", t->kernel_digest, err);
    if (rc < 0) {
        return rc;
    }
    (void)snprintf(t->kernel, sizeof t->kernel, "%s/kernel/%s/vmlinuz", home, t->kernel_digest);
    (void)snprintf(t->initrd, sizeof t->initrd, "%s/kernel/%s/initrd", home, t->kernel_digest);
    if (access(t->kernel, R_OK) < 0 || access(t->initrd, R_OK) < 0) {
        return err_sys(err, "%s/kernel/%s: vmlinuz or initrd", home, t->kernel_digest);
    }
    (void)snprintf(path, sizeof path, "%s/kernel/%s/manifest.json", home, t->kernel_digest);
    CLEANUP(cleanup_json) json_t *root = NULL;
    if ((rc = read_json(path, &root, err)) < 0) {
        return rc;
    }
    const char *cmdline = json_string_value(json_object_get(root, "cmdline"));
    if (cmdline && strlen(cmdline) >= sizeof t->cmdline) {
        return err_set(err, ERR_INVALID, "%s: cmdline: at most %zu bytes", path,
                       sizeof t->cmdline - 1);
    }
    (void)snprintf(t->cmdline, sizeof t->cmdline, "%s", cmdline ? cmdline : "");
    return 0;
}

int template_load(const char *home, const char *name, const char *digest,
                  struct template_info *ret_info, struct err *err)
{
    struct template_info t = { .vcpus = 1 };
    char path[TEMPLATE_PATH_MAX];
    CLEANUP(cleanup_json) json_t *root = NULL;
    (void)snprintf(t.name, sizeof t.name, "%s", name);
    (void)snprintf(t.digest, sizeof t.digest, "%s", digest);
    (void)snprintf(path, sizeof path, "%s/templates/%s/%s/manifest.json", home, name, digest);
    int rc = read_json(path, &root, err);
    if (rc < 0) {
        return rc;
    }
    if ((rc = get_uint(root, path, "memory_mib", TEMPLATE_MEMORY_MIB_MIN, TEMPLATE_MEMORY_MIB_MAX,
                       &t.memory_mib, err)) < 0 ||
        (rc = get_uint(root, path, "vcpus", 1, TEMPLATE_VCPUS_MAX, &t.vcpus, err)) < 0 ||
        (rc = get_exercise(root, path, "argv", t.exercise, &t.exercise_len, err)) < 0 ||
        (rc = get_exercise(root, path, "light", t.light, &t.light_len, err)) < 0) {
        return rc;
    }
    if (!json_is_false(json_object_get(root, "rootfs"))) {
        (void)snprintf(t.rootfs, sizeof t.rootfs, "%s/templates/%s/%s/rootfs.erofs", home, name,
                       digest);
        if (access(t.rootfs, R_OK) < 0) {
            return err_sys(err, "%s", t.rootfs);
        }
    }
    if ((rc = load_kernel(home, &t, err)) < 0) {
        return rc;
    }
    *ret_info = t;
    return 0;
}
