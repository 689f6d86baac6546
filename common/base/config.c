#include "common/base/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <ini.h>
#include <sodium.h>

#include "common/base/cleanup.h"

#define UIDS_FIRST 0x70000000u
#define UIDS_OF_HOME 8192u
#define UIDS_HOMES 32768u
#define GROUPS_MAX 64 /* a process with more is none that brood up has started */

extern char **environ;

enum kind { KIND_STR, KIND_INT };

struct row {
    const char *key, *def_str, *help;
    enum kind kind;
    bool secret;
    size_t offset;
    int64_t def_int, min, max;
};

static const struct row rows[] = {
#define CONF_STR(field, k, def, h)                                                                 \
    { .key = k,                                                                                    \
      .kind = KIND_STR,                                                                            \
      .offset = offsetof(struct config, field),                                                    \
      .def_str = def,                                                                              \
      .help = h },
#define CONF_INT(field, k, def, lo, hi, h)                                                         \
    { .key = k,                                                                                    \
      .kind = KIND_INT,                                                                            \
      .offset = offsetof(struct config, field),                                                    \
      .def_int = def,                                                                              \
      .min = lo,                                                                                   \
      .max = hi,                                                                                   \
      .help = h },
#define CONF_SECRET(field, k, def, h)                                                              \
    { .key = k,                                                                                    \
      .kind = KIND_STR,                                                                            \
      .secret = true,                                                                              \
      .offset = offsetof(struct config, field),                                                    \
      .def_str = def,                                                                              \
      .help = h },
#include "common/base/config.def"
#undef CONF_STR
#undef CONF_INT
};
#define N_ROWS (sizeof rows / sizeof rows[0])

static char *str_at(struct config *c, const struct row *r)
{
    return (char *)c + r->offset;
}

static int64_t *int_at(struct config *c, const struct row *r)
{
    return (int64_t *)(void *)((char *)c + r->offset);
}

int config_set(struct config *c, const char *key, const char *value, const char *where,
               struct err *err)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        const struct row *r = &rows[i];
        if (strcmp(r->key, key) != 0) {
            continue;
        }
        if (r->kind == KIND_STR) {
            if (strlen(value) >= CONFIG_STR_MAX) {
                return err_set(err, ERR_TOO_LARGE, "%s: %s: at most %d bytes", where, key,
                               CONFIG_STR_MAX - 1);
            }
            memcpy(str_at(c, r), value, strlen(value) + 1);
            return 0;
        }
        char *end;
        errno = 0;
        long long v = strtoll(value, &end, 10);
        if (end == value || *end || errno || v < r->min || v > r->max) {
            return err_set(err, ERR_INVALID,
                           "%s: %s = %s: must be a whole number from %lld to %lld", where, key,
                           value, (long long)r->min, (long long)r->max);
        }
        *int_at(c, r) = v;
        return 0;
    }
    return err_set(err, ERR_INVALID, "%s: unknown key %s (brood doctor --config lists them)", where,
                   key);
}

struct ini_ctx {
    struct config *config;
    const char *file;
    struct err *err;
    int rc;
};

static int on_ini(void *user, const char *section, const char *name, const char *value)
{
    struct ini_ctx *ctx = user;
    char key[256];
    (void)snprintf(key, sizeof key, "%s.%s", section, name);
    ctx->rc = config_set(ctx->config, key, value, ctx->file, ctx->err);
    return ctx->rc == 0;
}

static int load_file(struct config *c, const char *file, bool must, struct err *err)
{
    if (access(file, R_OK) != 0) {
        if (errno == ENOENT && !must) {
            return 0;
        }
        return err_sys(err, "configuration file %s", file);
    }
    struct ini_ctx ctx = { .config = c, .file = file, .err = err };
    int line = ini_parse(file, on_ini, &ctx);
    if (ctx.rc < 0) {
        return ctx.rc;
    }
    if (line != 0) {
        return err_set(err, ERR_INVALID, "%s:%d: not an INI line ([section], key = value)", file,
                       line);
    }
    return 0;
}

static int load_env(struct config *c, struct err *err)
{
    static const char *const not_settings[] = { "BROOD_HOME",       "BROOD_CONFIG",
                                                "BROOD_BUILD",      "BROOD_TEMPLATES",
                                                "BROOD_LOGS",       "BROOD_RUN_DIR",
                                                "BROOD_SECRETS_FD", NULL };
    for (char **e = environ; *e; e++) {
        const char *eq = strchr(*e, '=');
        if (strncmp(*e, "BROOD_", 6) != 0 || !eq || strncmp(*e, "BROOD_TEST_", 11) == 0) {
            continue;
        }
        char name[128];
        (void)snprintf(name, sizeof name, "%.*s", (int)(eq - *e), *e);
        bool skip = false;
        for (int i = 0; not_settings[i]; i++) {
            skip = skip || strcmp(name, not_settings[i]) == 0;
        }
        if (skip) {
            continue;
        }
        char key[128];
        (void)snprintf(key, sizeof key, "%s", name + 6);
        for (char *p = key; *p; p++) {
            *p = (char)tolower((unsigned char)*p);
        }
        char *first = strchr(key, '_');
        if (first) {
            *first = '.';
        }
        int rc = config_set(c, key, eq + 1, name, err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int resolve_home(struct config *c, const char *home, struct err *err)
{
    char guess[PATH_MAX];
    if (!home) {
        home = getenv("BROOD_HOME");
    }
    if (!home || !*home) {
        const char *user = getenv("HOME");
        if (geteuid() == 0 || !user) {
            home = "/var/lib/brood";
        } else {
            (void)snprintf(guess, sizeof guess, "%s/.brood", user);
            home = guess;
        }
    }
    char path[PATH_MAX];
    if (home[0] == '/') {
        (void)snprintf(path, sizeof path, "%s", home);
    } else {
        if (!getcwd(path, sizeof path / 2)) {
            return err_sys(err, "getcwd");
        }
        size_t used = strlen(path);
        (void)snprintf(path + used, sizeof path - used, "/%s",
                       home); /* cut = refused below: longer than c->home */
    }
    cleanup_free char *real = realpath(path, NULL);
    const char *use = real ? real : path;
    if (strlen(use) >= sizeof c->home) {
        return err_set(err, ERR_TOO_LARGE, "home: path longer than %zu bytes", sizeof c->home - 1);
    }
    memcpy(c->home, use, strlen(use) + 1);
    uint8_t h[16];
    (void)crypto_generichash(h, sizeof h, (const uint8_t *)use, strlen(use), NULL, 0);
    bool run_ok = geteuid() == 0 && access("/run", W_OK) == 0;
    const char *given = getenv("BROOD_RUN_DIR");
    if (given && given[0] == '/' && strlen(given) < sizeof c->run_dir) {
        (void)snprintf(c->run_dir, sizeof c->run_dir, "%s",
                       given); /* brood up's, for its services */
    } else if (run_ok) {
        (void)snprintf(c->run_dir, sizeof c->run_dir, "/run/brood/%02x%02x%02x%02x", h[0], h[1],
                       h[2], h[3]);
    } else {
        (void)snprintf(c->run_dir, sizeof c->run_dir, "/tmp/brood-%u/%02x%02x%02x%02x",
                       (unsigned)geteuid(), h[0], h[1], h[2], h[3]);
    }
    return 0;
}

int config_load(struct config *ret_config, const char *home, const char *file, struct err *err)
{
    struct config *c = calloc(1, sizeof *c);
    if (!c) {
        abort();
    }
    cleanup_free struct config *owned = c;
    for (size_t i = 0; i < N_ROWS; i++) {
        if (rows[i].kind == KIND_STR) {
            memcpy(str_at(c, &rows[i]), rows[i].def_str, strlen(rows[i].def_str) + 1);
        } else {
            *int_at(c, &rows[i]) = rows[i].def_int;
        }
    }
    int rc = resolve_home(c, home, err);
    if (rc < 0) {
        return rc;
    }
    char ini[CONFIG_STR_MAX + 16];
    (void)snprintf(ini, sizeof ini, "%s/brood.ini", c->home);
    if ((rc = load_file(c, ini, false, err)) < 0) {
        return rc;
    }
    if (!file) {
        file = getenv("BROOD_CONFIG");
    }
    if (file && (rc = load_file(c, file, true, err)) < 0) {
        return rc;
    }
    if ((rc = load_env(c, err)) < 0) {
        return rc;
    }
    if (!c->redis_url[0]) {
        (void)snprintf(c->redis_url, sizeof c->redis_url, "unix://%.400s/redis.sock", c->run_dir);
    }
    if (!c->postgres_url[0]) {
        (void)snprintf(c->postgres_url, sizeof c->postgres_url,
                       "host=%.400s/pg port=5432 user=brood dbname=brood", c->run_dir);
    }
    if (!c->object_dir[0]) {
        (void)snprintf(c->object_dir, sizeof c->object_dir, "%.490s/objects", c->home);
    }
    if (!c->vmpool_socket[0]) {
        (void)snprintf(c->vmpool_socket, sizeof c->vmpool_socket, "%.400s/vmpool.sock", c->run_dir);
    }
    if (c->worker_slots == 0) {
        long n = sysconf(_SC_NPROCESSORS_ONLN);
        c->worker_slots = n > 0 ? n : 1;
    }
    if (c->pool_memory_mib_max == 0) {
        c->pool_memory_mib_max = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / 2 >> 20;
    }
    *ret_config = *c;
    return 0;
}

void config_print(const struct config *c, FILE *out)
{
    char section[64] = "";
    (void)fprintf(out, "# home = %s\n# run folder = %s\n", c->home, c->run_dir);
    for (size_t i = 0; i < N_ROWS; i++) {
        const struct row *r = &rows[i];
        const char *dot = strchr(r->key, '.');
        size_t n = (size_t)(dot - r->key);
        if (strncmp(section, r->key, n) != 0 || section[n]) {
            (void)snprintf(section, sizeof section, "%.*s", (int)n, r->key);
            (void)fprintf(out, "\n[%s]\n", section);
        }
        (void)fprintf(out, "# %s\n", r->help);
        if (r->secret) { /* a comment, so that the printed file can be used as one */
            (void)fprintf(out, "# %s: %s\n", dot + 1,
                          *str_at((struct config *)(uintptr_t)c, r) ? "set, not shown" : "not set");
        } else if (r->kind == KIND_STR) {
            (void)fprintf(out, "%s = %s\n", dot + 1, str_at((struct config *)(uintptr_t)c, r));
        } else {
            (void)fprintf(out, "%s = %lld\n", dot + 1,
                          (long long)*int_at((struct config *)(uintptr_t)c, r));
        }
    }
}

static int mkdir_p(const char *path, struct err *err)
{
    char part[PATH_MAX];
    size_t n = strlen(path);
    if (n >= sizeof part) {
        return err_set(err, ERR_TOO_LARGE, "path too long");
    }
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != 0) {
            continue;
        }
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0711) < 0 && errno != EEXIST) {
            return err_sys(err, "mkdir %s", part);
        }
    }
    return 0;
}

uint32_t config_uids(const struct config *c)
{
    const char *hash = strrchr(c->run_dir, '/');
    unsigned long h = strtoul(hash ? hash + 1 : c->run_dir, NULL, 16);
    return UIDS_FIRST + (uint32_t)(h % UIDS_HOMES) * UIDS_OF_HOME;
}

/* The highest of our further groups that is of a home's block (cli/users.c: it is the states'); the
 * first of all otherwise. */
static gid_t states_group(void)
{
    gid_t groups[GROUPS_MAX], found = getegid();
    int n = getgroups(GROUPS_MAX, groups);
    for (int i = 0; i < n; i++) {
        if (groups[i] >= UIDS_FIRST && groups[i] > found) {
            found = groups[i];
        }
    }
    return found;
}

int config_make_kept(const char *home, struct err *err)
{
    char path[CONFIG_STR_MAX + 16];
    (void)snprintf(path, sizeof path, "%s/kept", home);
    if (mkdir(path, 0770) < 0) {
        return errno == EEXIST ? 0 : err_sys(err, "mkdir %s", path);
    }
    return chown(path, (uid_t)-1, states_group()) < 0 || chmod(path, 02770) < 0
               ? err_sys(err, "%s", path)
               : 0;
}

int config_make_home(const struct config *c, struct err *err)
{
    return mkdir_p(c->home, err);
}

int config_make_dirs(const struct config *c, struct err *err)
{
    int rc = mkdir_p(c->home, err);
    if (rc < 0 || (rc = mkdir_p(c->run_dir, err)) < 0) {
        return rc;
    }
    /* An empty run folder that nobody has touched for a while is swept away by another home's
     * `brood up`; one that is about to be used must look young, also when it was there before. */
    (void)utimensat(AT_FDCWD, c->run_dir, NULL, 0);
    return 0;
}
