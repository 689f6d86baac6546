#include "cli/jobargs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/model/job.h"
#include "common/model/result.h"

static const char *const limit_names[] = {
#define JOB_LIMIT(field, json, def, setup_def, min, max, help) json,
#include "common/model/limits.def"
#undef JOB_LIMIT
};
#define N_LIMITS (sizeof limit_names / sizeof limit_names[0])

int jobargs_limit(json_t *limits, const char *text, struct err *err)
{
    const char *eq = strchr(text, '=');
    char names[256] = "";
    for (size_t i = 0; i < N_LIMITS; i++) {
        size_t n = strlen(limit_names[i]), used = strlen(names);
        (void)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", limit_names[i]);
        if (!eq || (size_t)(eq - text) != n || strncmp(text, limit_names[i], n) != 0) {
            continue;
        }
        char *end;
        errno = 0;
        long long v = strtoll(eq + 1, &end, 10);
        if (end == eq + 1 || *end || errno) {
            return err_set(err, ERR_USAGE, "--limit %s: the value must be a whole number", text);
        }
        (void)json_object_set_new(limits, limit_names[i], json_integer(v));
        return 0;
    }
    return err_set(err, ERR_USAGE, "--limit %s: must be NAME=NUMBER, NAME one of %s", text, names);
}

int jobargs_env(json_t *env, const char *text, struct err *err)
{
    const char *eq = strchr(text, '=');
    if (!eq || eq == text) {
        return err_set(err, ERR_USAGE, "--env %s: must be NAME=VALUE", text);
    }
    json_t *value = json_string(eq + 1);
    if (!value) {
        return err_set(err, ERR_USAGE, "--env %.*s: the value must be UTF-8", (int)(eq - text),
                       text);
    }
    char *name = strndup(text, (size_t)(eq - text));
    int rc = json_object_set_new(env, name, value);
    free(name);
    return rc == 0 ? 0 : err_set(err, ERR_USAGE, "--env: the name must be UTF-8");
}

int jobargs_split(const char *text, char *from, char *path, size_t room, struct err *err)
{
    const char *colon = strrchr(text, ':');
    if (colon && access(text, F_OK) == 0) {
        colon = NULL;
    }
    size_t n = colon ? (size_t)(colon - text) : strlen(text);
    const char *name = colon ? colon + 1 : text;
    if (!colon && strrchr(text, '/')) {
        name = strrchr(text, '/') + 1;
    }
    if (n == 0 || !*name || n >= room || strlen(name) >= room) {
        return err_set(err, ERR_USAGE, "--file %s: must be FILE or FILE:PATH-IN-THE-SANDBOX", text);
    }
    memcpy(from, text, n);
    from[n] = 0;
    memcpy(path, name, strlen(name) + 1);
    return 0;
}

int jobargs_file(json_t *files, const char *text, struct err *err)
{
    char from[PATH_MAX], path[PATH_MAX];
    int rc = jobargs_split(text, from, path, sizeof from, err);
    if (rc < 0) {
        return rc;
    }
    cleanup_buf struct buf content = { 0 };
    buf_init(&content, JOB_FILE_BYTES_MAX);
    if ((rc = buf_read_file(&content, from, err)) < 0) {
        return err_prefix(err, "--file");
    }
    struct stat st;
    json_t *file = json_object();
    if (json_object_set_new(file, "path", json_string(path)) != 0) {
        json_decref(file);
        return err_set(err, ERR_USAGE, "--file: the path must be UTF-8");
    }
    (void)json_put_bytes(file, "text", content.data ? content.data : "", content.len);
    json_t *base64 = json_object_get(file, "text_base64"); /* the job's key is plain "base64" */
    if (base64) {
        (void)json_object_set(file, "base64", base64);
        (void)json_object_del(file, "text_base64");
    }
    if (stat(from, &st) == 0 && (st.st_mode & S_IXUSR)) {
        (void)json_object_set_new(file, "mode", json_string("0755"));
    }
    (void)json_array_append_new(files, file);
    return 0;
}
