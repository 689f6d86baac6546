/* The job's memory, its hash, and the rules for names that host and guest share. */
#include "common/model/job_part.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sodium.h>

#include "common/model/tree.h"

static void free_command(struct job_command *c)
{
    for (int i = 0; i < c->argc; i++) {
        free(c->argv[i]);
    }
    free(c->argv);
}

static void free_commands(struct job_command *c, int n)
{
    for (int i = 0; i < n; i++) {
        free_command(&c[i]);
    }
    free(c);
}

static void free_pairs(struct job_pair *pairs, int n)
{
    for (int i = 0; i < n; i++) {
        free(pairs[i].key);
        free(pairs[i].value);
    }
    free(pairs);
}

static void free_files(struct job_file *files, int n)
{
    for (int i = 0; i < n; i++) {
        free(files[i].path);
        free(files[i].content.data);
    }
    free(files);
}

static void free_texts(char **texts, int n)
{
    for (int i = 0; i < n; i++) {
        free(texts[i]);
    }
    free(texts);
}

static void free_expect(struct job_expect *e)
{
    struct job_checker *c = e->checker;
    free(e->text.data);
    if (c) {
        free(c->template_name);
        free_files(c->files, c->n_files);
        free_commands(c->steps, c->n_steps);
        free_command(&c->command);
        free(c);
    }
}

/* Recursion is as deep as JOB_TREE_DEPTH_MAX. */
void job_free_branches(struct job_branch *branches, int n)
{
    for (int i = 0; i < n; i++) {
        struct job_branch *b = &branches[i];
        free(b->name);
        free_files(b->files, b->n_files);
        free_pairs(b->env, b->n_env);
        free_commands(b->steps, b->n_steps);
        free_command(&b->command);
        free_command(&b->args);
        free(b->stdin_data.data);
        free_expect(&b->expect);
        free_texts(b->artifacts, b->n_artifacts);
        free(b->keep.name);
        job_free_branches(b->branches, b->n_branches);
    }
    free(branches);
}

void job_spec_free(struct job_spec *spec)
{
    if (!spec) {
        return;
    }
    tree_free(spec->tree);
    free(spec->template_name);
    free(spec->name);
    free(spec->idempotency_key);
    free_files(spec->files, spec->n_files);
    free(spec->archive.content.data);
    free_commands(spec->steps, spec->n_steps);
    free_command(&spec->command);
    free_command(&spec->on_fork);
    job_free_secrets(spec);
    free(spec->stdin_data.data);
    free_pairs(spec->env, spec->n_env);
    free_pairs(spec->labels, spec->n_labels);
    free_expect(&spec->expect);
    job_free_branches(spec->branches, spec->n_branches);
    free(spec->keep.name);
    free_texts(spec->artifacts, spec->n_artifacts);
    free(spec->canonical);
    free(spec);
}

bool job_template_ok(const char *name)
{
    size_t n = strnlen(name, JOB_TEMPLATE_MAX + 1);
    return n > 0 && n <= JOB_TEMPLATE_MAX && name[0] != '.' && name[0] != '-' &&
           job_word_chars(name, ".-");
}

bool snapshot_name_ok(const char *name)
{
    size_t n = strnlen(name, JOB_SNAPSHOT_NAME_MAX + 1);
    return n > 0 && n <= JOB_SNAPSHOT_NAME_MAX && name[0] != '.' && name[0] != '-' &&
           job_word_chars(name, ".-");
}

const char *job_snapshot_name(const struct job_spec *spec)
{
    size_t n = strlen(SNAPSHOT_TEMPLATE_PREFIX);
    return strncmp(spec->template_name, SNAPSHOT_TEMPLATE_PREFIX, n) == 0 ? spec->template_name + n
                                                                          : NULL;
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
