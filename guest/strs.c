#include "guest/strs.h"

#include <assert.h>
#include <string.h>

int strs_split(struct strs *s, char *data, size_t len, size_t max, const char *what,
               struct err *err)
{
    assert(max <= STRS_ENV_MAX);
    s->n = 0;
    if (len > 0 && data[len - 1] != '\0') {
        return err_set(err, ERR_INVALID, "%s: the last string has no NUL", what);
    }
    for (size_t at = 0; at < len; at += strlen(data + at) + 1) {
        if (s->n == max) {
            return err_set(err, ERR_INVALID, "%s: more than %zu strings", what, max);
        }
        s->v[s->n++] = data + at;
    }
    s->v[s->n] = NULL;
    return 0;
}

const char *strs_env(const struct strs *env, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < env->n; i++) {
        if (strncmp(env->v[i], name, n) == 0 && env->v[i][n] == '=') {
            return env->v[i] + n + 1;
        }
    }
    return NULL;
}

void strs_env_defaults(struct strs *env, char *const *defaults, size_t n)
{
    assert(n <= STRS_DEFAULTS_MAX && env->n <= STRS_ENV_MAX);
    for (size_t i = 0; i < n; i++) {
        size_t name = strcspn(defaults[i], "=");
        bool there = false;
        for (size_t k = 0; k < env->n && !there; k++) {
            there = strncmp(env->v[k], defaults[i], name) == 0 && env->v[k][name] == '=';
        }
        if (!there) {
            env->v[env->n++] = defaults[i];
        }
    }
    env->v[env->n] = NULL;
}

/* /usr/bin/python3 is what the name means only when PATH finds nothing before it that a job could
 * have put there. */
static bool path_is_plain(const char *path)
{
    while (path && *path) {
        size_t n = strcspn(path, ":");
        if ((n == 8 && memcmp(path, "/usr/bin", 8) == 0) ||
            (n == 4 && memcmp(path, "/bin", 4) == 0)) {
            return true;
        }
        if (n < 5 || memcmp(path, "/usr/", 5) != 0) {
            return false;
        }
        path += n + (path[n] == ':');
    }
    return false;
}

bool strs_fits_warm(const struct strs *argv, const struct strs *env)
{
    if (argv->n < 2) {
        return false;
    }
    const char *prog = argv->v[0];
    if (strcmp(prog, "python3") == 0 || strcmp(prog, "python") == 0) {
        if (!path_is_plain(strs_env(env, "PATH"))) {
            return false;
        }
    } else if (strcmp(prog, "/usr/bin/python3") != 0) {
        return false;
    }
    for (size_t i = 0; i < env->n; i++) {
        const char *e = env->v[i];
        if (strncmp(e, "PYTHON", 6) == 0 && strcmp(e, "PYTHONHASHSEED=0") != 0) {
            return false;
        }
        if (strncmp(e, "LC_", 3) == 0 || strncmp(e, "LANG=", 5) == 0) {
            const char *value = strchr(e, '=');
            if (!value || strcmp(value, "=C.UTF-8") != 0) {
                return false;
            }
        }
        if (strncmp(e, "LD_", 3) == 0 || strncmp(e, "GLIBC_TUNABLES", 14) == 0 ||
            strncmp(e, "MALLOC_", 7) == 0) {
            return false;
        }
    }
    const char *what = argv->v[1];
    if (what[0] != '-') {
        return what[0] != '\0';
    }
    return (strcmp(what, "-c") == 0 || strcmp(what, "-m") == 0) && argv->n >= 3;
}
