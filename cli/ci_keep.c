#include "cli/ci_keep.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <sodium.h>

#include "cli/ci_job.h"
#include "common/base/cleanup.h"

#define NAME_PREFIX "ci-"
#define NAME_HEX 40
#define LINK_BYTES_MAX 4096

static_assert(sizeof NAME_PREFIX + NAME_HEX <= JOB_SNAPSHOT_NAME_MAX + 1, "a snapshot's name");

bool ci_keep_wanted(const struct brood_json *plan)
{
    return plan->key_files.n > 0 && plan->setup.n > 0 &&
           strncmp(plan->template_name, SNAPSHOT_TEMPLATE_PREFIX,
                   strlen(SNAPSHOT_TEMPLATE_PREFIX)) != 0;
}

void ci_keep_done(struct ci_keep *k)
{
    free(k->files.files); /* the paths are the checkout's */
    *k = (struct ci_keep){ 0 };
}

static int pick(const struct brood_json *plan, const struct checkout *c, struct checkout *ret,
                struct err *err)
{
    struct checkout some = { .files = calloc(c->n + 1, sizeof *some.files),
                             .used_git = c->used_git };
    if (!some.files) {
        abort();
    }
    for (size_t i = 0; i < c->n; i++) {
        if (ci_globs_match(&plan->key_files, c->files[i].path, strlen(c->files[i].path))) {
            some.files[some.n++] = c->files[i];
            some.size_bytes += c->files[i].size_bytes;
        }
    }
    if (some.n == 0) {
        free(some.files);
        return err_set(err, ERR_INVALID, "key_files: no file of the checkout matches \"%s\"",
                       plan->key_files.items[0]);
    }
    *ret = some;
    return 0;
}

/* Strings with their lengths, so that no two lists give the same bytes. */
static void add(crypto_hash_sha256_state *sha, const char *data, size_t n)
{
    uint64_t len = n;
    (void)crypto_hash_sha256_update(sha, (const uint8_t *)&len, sizeof len);
    (void)crypto_hash_sha256_update(sha, (const uint8_t *)data, n);
}

static void add_json(crypto_hash_sha256_state *sha, const json_t *v)
{
    cleanup_free char *text = v ? json_dumps(v, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    add(sha, text ? text : "", text ? strlen(text) : 0);
}

static int add_file(crypto_hash_sha256_state *sha, int dir_fd, const struct checkout_file *f,
                    struct err *err)
{
    char content[LINK_BYTES_MAX], mode[16];
    (void)snprintf(mode, sizeof mode, "%o", (unsigned)f->mode);
    add(sha, f->path, strlen(f->path));
    add(sha, mode, strlen(mode));
    if (S_ISLNK(f->mode)) {
        ssize_t n = readlinkat(dir_fd, f->path, content, sizeof content);
        if (n < 0) {
            return err_sys(err, "%s", f->path);
        }
        add(sha, content, (size_t)n);
        return 0;
    }
    char hex[OBJECT_HEX + 1];
    int rc = ci_file_digest(dir_fd, f->path, hex, err);
    if (rc == 0) {
        add(sha, hex, strlen(hex));
    }
    return rc;
}

int ci_keep_name(const struct brood_json *plan, const struct template_info *t,
                 const struct checkout *c, const char *dir, struct ci_keep *ret_k, struct err *err)
{
    struct ci_keep k = { 0 };
    crypto_hash_sha256_state sha;
    uint8_t sum[crypto_hash_sha256_BYTES];
    char hex[2 * sizeof sum + 1];
    cleanup_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) {
        return err_sys(err, "%s", dir);
    }
    int rc = pick(plan, c, &k.files, err);
    if (rc < 0) {
        return rc;
    }
    (void)crypto_hash_sha256_init(&sha);
    add(&sha, t->name, strlen(t->name));
    add(&sha, t->digest, strlen(t->digest));
    for (int i = 0; i < plan->setup.n; i++) {
        add(&sha, plan->setup.items[i], strlen(plan->setup.items[i]));
    }
    add_json(&sha, plan->setup_limits);
    add_json(&sha, plan->env);
    for (size_t i = 0; rc == 0 && i < k.files.n; i++) {
        rc = add_file(&sha, dir_fd, &k.files.files[i], err);
    }
    if (rc < 0) {
        ci_keep_done(&k);
        return rc;
    }
    (void)crypto_hash_sha256_final(&sha, sum);
    (void)sodium_bin2hex(hex, sizeof hex, sum, sizeof sum);
    (void)snprintf(k.name, sizeof k.name, NAME_PREFIX "%.*s", NAME_HEX, hex);
    *ret_k = k;
    return 0;
}

int ci_keep_job(const struct brood_json *plan, const struct ci_keep *k, const char *object,
                struct job_spec **ret_spec, struct err *err)
{
    json_t *job = json_object(), *template = json_string(plan->template_name);
    int rc = template ? 0 : err_set(err, ERR_INVALID, "template: must be UTF-8");
    (void)json_object_set_new(job, "template", template);
    (void)json_object_set_new(job, "name", json_string("ci set-up"));
    (void)json_object_set_new(job, "archive",
                              json_pack("{s:s, s:s}", "format", "tar.zst", "object", object));
    (void)json_object_set_new(job, "keep",
                              json_pack("{s:s, s:i}", "name", k->name, "ttl_s", CI_KEEP_TTL_S));
    if (plan->env) {
        (void)json_object_set(job, "env", plan->env);
    }
    rc = rc < 0 ? rc : ci_put_setup(plan, job, err);
    if (rc == 0) {
        rc = ci_job_parse(job, ret_spec, err);
    }
    json_decref(job);
    return rc;
}

void ci_keep_use(const struct ci_keep *k, struct brood_json *plan)
{
    char template[sizeof SNAPSHOT_TEMPLATE_PREFIX + sizeof k->name];
    (void)snprintf(template, sizeof template, SNAPSHOT_TEMPLATE_PREFIX "%s", k->name);
    free(plan->template_name);
    plan->template_name = strdup(template);
    if (!plan->template_name) {
        abort();
    }
    for (int i = 0; i < plan->setup.n; i++) {
        free(plan->setup.items[i]);
    }
    plan->setup.n = 0;
    if (plan->setup.items) {
        plan->setup.items[0] = NULL;
    }
}
