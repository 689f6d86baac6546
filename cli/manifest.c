#include "cli/manifest.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "common/store/jobs.h"

#define MANIFEST_BYTES_MAX (1u << 20)

static int whole(const json_t *root, const char *key, int min, int max, int *ret_value,
                 struct err *err)
{
    const json_t *v = json_object_get(root, key);
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max) {
        return err_set(err, ERR_INVALID, "%s: must be a whole number from %d to %d", key, min, max);
    }
    *ret_value = (int)json_integer_value(v);
    return 0;
}

static int parse(const json_t *root, const char *name, struct template_info *t, struct err *err)
{
    const char *digest = json_string_value(json_object_get(root, "digest"));
    int rc;
    if (!digest || !*digest || strlen(digest) >= sizeof t->digest) {
        return err_set(err, ERR_INVALID, "digest: must be a string of 1 to %zu bytes",
                       sizeof t->digest - 1);
    }
    if (strlen(name) >= sizeof t->name) {
        return err_set(err, ERR_INVALID, "name longer than %zu bytes", sizeof t->name - 1);
    }
    if ((rc = whole(root, "memory_mib", 1, 1 << 22, &t->memory_mib, err)) < 0 ||
        (rc = whole(root, "vcpus", 1, 1024, &t->vcpus, err)) < 0) {
        return rc;
    }
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    (void)snprintf(t->digest, sizeof t->digest, "%s", digest);
    return 0;
}

int manifest_read(const struct config *c, const char *name, struct template_info *ret_t,
                  struct err *err)
{
    char path[CONFIG_STR_MAX * 2];
    (void)snprintf(path, sizeof path, "%s/templates/%.255s/current/manifest.json", c->home, name);
    cleanup_buf struct buf text = { 0 };
    buf_init(&text, MANIFEST_BYTES_MAX);
    int rc = buf_read_file(&text, path, err);
    if (rc < 0) {
        return rc;
    }
    json_error_t bad;
    json_t *root = json_loadb(text.data, text.len, 0, &bad);
    if (!root) {
        return err_set(err, ERR_INVALID, "%s: not JSON: %s", path, bad.text);
    }
    struct template_info t = { 0 };
    rc = parse(root, name, &t, err);
    json_decref(root);
    if (rc < 0) {
        return err_prefix(err, "%s", path);
    }
    *ret_t = t;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct template_info *)a)->name, ((const struct template_info *)b)->name);
}

int manifest_list(const struct config *c, struct template_info *ret_rows, int max)
{
    char path[CONFIG_STR_MAX + 16];
    (void)snprintf(path, sizeof path, "%s/templates", c->home);
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e; d && n < max && (e = readdir(d));) {
        struct err err;
        if (e->d_name[0] == '.') {
            continue;
        }
        int rc = manifest_read(c, e->d_name, &ret_rows[n], &err);
        if (rc == 0) {
            n++;
        } else if (rc != -ERR_NOT_FOUND) {
            (void)fprintf(stderr, "brood: template left out: %s\n", err.text);
        }
    }
    if (d) {
        (void)closedir(d);
    }
    qsort(ret_rows, (size_t)n, sizeof *ret_rows, by_name);
    return n;
}

int manifest_register_all(const struct config *c, struct pg *pg, struct err *err)
{
    static struct template_info rows[MANIFESTS_MAX];
    int n = manifest_list(c, rows, MANIFESTS_MAX);
    for (int i = 0; i < n; i++) {
        int rc = store_template_put(pg, &rows[i], err);
        if (rc < 0) {
            return err_prefix(err, "template %s", rows[i].name);
        }
    }
    return n;
}
