/* The job's memory, its hash, and the rules for names that host and guest share. */
#include "common/model/job.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sodium.h>

static void free_command(struct job_command *c)
{
    for (int i = 0; i < c->argc; i++) {
        free(c->argv[i]);
    }
    free(c->argv);
}

static void free_pairs(struct job_pair *pairs, int n)
{
    for (int i = 0; i < n; i++) {
        free(pairs[i].key);
        free(pairs[i].value);
    }
    free(pairs);
}

void job_spec_free(struct job_spec *spec)
{
    if (!spec) {
        return;
    }
    free(spec->template_name);
    free(spec->name);
    free(spec->idempotency_key);
    for (int i = 0; i < spec->n_files; i++) {
        free(spec->files[i].path);
        free(spec->files[i].content.data);
    }
    free(spec->files);
    free_command(&spec->setup);
    free_command(&spec->command);
    free(spec->stdin_data.data);
    free_pairs(spec->env, spec->n_env);
    free_pairs(spec->labels, spec->n_labels);
    free(spec->expect.text.data);
    free(spec->canonical);
    free(spec);
}

bool job_path_ok(const char *path)
{
    size_t n = strnlen(path, JOB_PATH_MAX + 1);
    if (n == 0 || n > JOB_PATH_MAX) {
        return false;
    }
    const char *part = path;
    for (size_t i = 0; i <= n; i++) {
        unsigned char c = (unsigned char)path[i];
        if (c && (c < 0x20 || c == 0x7f)) {
            return false;
        }
        if (c && c != '/') {
            continue;
        }
        size_t len = (size_t)(path + i - part);
        bool dots = (len == 1 && part[0] == '.') || (len == 2 && part[0] == '.' && part[1] == '.');
        if (len == 0 || dots || len > JOB_PATH_PART_MAX) {
            return false;
        }
        part = path + i + 1;
    }
    return true;
}

bool job_tenant_ok(const char *tenant)
{
    size_t n = strnlen(tenant, JOB_TENANT_MAX + 1);
    if (n == 0 || n > JOB_TENANT_MAX) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        char c = tenant[i];
        bool alnum = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!alnum && (i == 0 || (c != '_' && c != '-'))) {
            return false;
        }
    }
    return true;
}

void job_spec_hash(const struct job_spec *spec, uint8_t out[32])
{
    assert(spec->canonical);
    (void)crypto_generichash(out, 32, (const uint8_t *)spec->canonical, spec->canonical_len, NULL,
                             0);
}
