/* job_parse: whatever is accepted keeps the model's promises, and its canonical form is a fixed
 * point. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/model/job.h"
#include "common/model/result.h"
#include "common/model/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tree(const struct tree *t)
{
    int leaves = 0;
    assert(t->n <= JOB_TREE_NODES_MAX && t->depth <= JOB_TREE_DEPTH_MAX && t->nodes[0].end == t->n);
    for (int i = 0; i < t->n; i++) {
        const struct tree_node *n = &t->nodes[i];
        assert(n->index == i && n->end > i && n->end <= t->n && n->parent < i);
        assert(n->leaf == (n->end == i + 1) && n->n_children <= JOB_TREE_CHILDREN_MAX);
        assert(n->leaf ? n->command.argc > 0 || n->keep : n->command.argc == 0);
        assert(n->command.argc == 0 || n->command.argv[n->command.argc] == NULL);
        assert(n->n_env <= JOB_ENV_MAX && n->expect && n->stdin_data);
        leaves += n->leaf;
    }
    assert(leaves == t->n_leaves);
}

static void check(const struct job_spec *s)
{
    assert(s->template_name[0] && s->tree && s->tree->n >= 1);
    assert(s->command.argc > 0 || s->n_branches > 0 || s->keep.name);
    assert(s->command.argc == 0 || s->command.argv[s->command.argc] == NULL);
    check_tree(s->tree);
    for (int i = 0; i < s->n_files; i++) {
        assert(job_path_ok(s->files[i].path) && s->files[i].mode <= 0777);
        assert(s->files[i].content.len <= JOB_FILE_BYTES_MAX);
    }
#define JOB_LIMIT(field, json, def, setup_def, min, max, help)                                     \
    assert(s->command.limits.field >= (min) && s->command.limits.field <= (max));                  \
    assert(s->setup.argc == 0 ||                                                                   \
           (s->setup.limits.field >= (min) && s->setup.limits.field <= (max)));
#include "common/model/limits.def"
#undef JOB_LIMIT
    assert(s->expect.exit_code >= 0 && s->expect.exit_code <= 255);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = { 0 };
    cleanup_job_spec struct job_spec *spec = NULL;
    int rc = job_parse((const char *)data, size, &spec, &err);
    if (rc < 0) {
        assert(!spec && err.code == -rc && err.text[0]);
        for (const char *p = err.text; *p; p++) {
            assert((unsigned char)*p >= 0x20 && (unsigned char)*p < 0x7f);
        }
    } else {
        check(spec);
        cleanup_job_spec struct job_spec *twin = NULL;
        rc = job_parse(spec->canonical, spec->canonical_len, &twin, &err);
        assert(rc == 0);
        uint8_t a[32], b[32];
        job_spec_hash(spec, a);
        job_spec_hash(twin, b);
        assert(memcmp(a, b, sizeof a) == 0);
        struct template_info t = { .name = "t", .memory_mib = 256, .vcpus = 1 };
        if (job_check_template(twin, &t, &err) == 0) {
            job_clamp_to_template(twin, &t);
            assert(twin->command.limits.memory_mib <= 160);
        }
    }
    struct job_result r;
    if (job_result_parse_detail((const char *)data, size, &r, &err) == 0) {
        cleanup_free char *detail = job_result_detail(&r);
        struct job_result twin;
        rc = job_result_parse_detail(detail, strlen(detail), &twin, &err);
        assert(rc == 0);
        cleanup_free char *detail2 = job_result_detail(&twin);
        assert(strcmp(detail, detail2) == 0);
        job_result_done(&twin);
        job_result_done(&r);
    }
    return 0;
}
