/* From the job as it was given to nodes with everything inherited filled in.
 *
 * What a node gets from above travels down the recursion in struct scope; only what really differs
 * is allocated (an argv with appended arguments, an env with variables of its own), so that 4096
 * leaves of one command cost 4096 nodes and nothing else. */
#include "common/model/tree.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/job_part.h"

static_assert(TREE_FIELD_MAX == JR_PATH_MAX, "a node's field is the beginning of an error's path");

/* What the nodes below inherit. */
struct scope {
    struct job_command command; /* argv and limits */
    struct job_pair *env;
    int n_env;
    const struct bytes *stdin_data;
    const struct job_expect *expect;
    bool has_expect;
    char *const *artifacts;
    int n_artifacts;
};

void tree_free(struct tree *t)
{
    if (!t) {
        return;
    }
    for (int i = 0; i < t->n; i++) {
        struct tree_node *n = &t->nodes[i];
        free(n->path);
        free(n->name);
        free(n->name_path);
        if (n->owns_argv) {
            free(n->command.argv);
        }
        if (n->owns_env) {
            free(n->env);
        }
    }
    free(t->nodes);
    free(t);
}
DEFINE_CLEANUP(tree_free_fn, struct tree, tree_free)

static char *joined(const char *a, const char *between, const char *b)
{
    size_t na = strlen(a), nm = strlen(between), nb = strlen(b);
    char *p = job_new_array(na + nm + nb + 1, 1);
    memcpy(p, a, na);
    memcpy(p + na, between, nm);
    memcpy(p + na + nm, b, nb);
    return p;
}

void tree_field(const struct tree *t, int i, char *out)
{
    int chain[JOB_TREE_DEPTH_MAX];
    int n = 0;
    for (; t->nodes[i].parent >= 0; i = t->nodes[i].parent) {
        assert(n < JOB_TREE_DEPTH_MAX);
        chain[n++] = i;
    }
    size_t used = 0;
    out[0] = 0;
    for (bool first = true; n > 0; first = false) {
        const struct tree_node *node = &t->nodes[chain[--n]];
        used += (size_t)snprintf(out + used, TREE_FIELD_MAX - used, "%s%s[%d]", first ? "" : ".",
                                 node->test ? "tests" : "branches", node->ordinal);
        assert(used < TREE_FIELD_MAX);
    }
}

const char *tree_usage_branch(const struct tree_node *n)
{
    return n->index == 0 ? "" : n->path;
}

/* ---- inheriting ---- */

static int append_args(struct tree_node *n, const struct job_command *args, const char *at,
                       struct err *err)
{
    struct job_command *c = &n->command;
    int total = c->argc + args->argc;
    size_t bytes = 0;
    char **argv = job_new_array((size_t)total + 1, sizeof *argv);
    for (int i = 0; i < total; i++) {
        argv[i] = i < c->argc ? c->argv[i] : args->argv[i - c->argc];
        bytes += strlen(argv[i]) + 1;
    }
    c->argv = argv;
    c->argc = total;
    n->owns_argv = true;
    if (total > JOB_ARGS_MAX) {
        return err_set(err, ERR_TOO_LARGE,
                       "%s.args: more than %d arguments together with the command", at,
                       JOB_ARGS_MAX);
    }
    if (bytes > JOB_ARGV_BYTES_MAX) {
        return err_set(err, ERR_TOO_LARGE,
                       "%s.args: more than %d bytes of arguments together with the command", at,
                       JOB_ARGV_BYTES_MAX);
    }
    return 0;
}

static int set_command(struct tree_node *n, const struct job_branch *b, const struct scope *s,
                       const char *at, struct err *err)
{
    n->command = b->command;
    job_inherit_limits(&n->command, &s->command);
    if (b->command.argc > 0) {
        return 0;
    }
    n->command.argv = s->command.argv;
    n->command.argc = s->command.argc;
    if (b->args.argc == 0) {
        return 0;
    }
    if (n->command.argc == 0) {
        return err_set(err, ERR_INVALID, "%s.args: there is no command that they belong to", at);
    }
    return append_args(n, &b->args, at, err);
}

static size_t pair_bytes(const struct job_pair *p)
{
    return strlen(p->key) + strlen(p->value) + 2; /* K=V and its NUL */
}

static int set_env(struct tree_node *n, const struct job_branch *b, const struct scope *s,
                   const char *at, struct err *err)
{
    n->env = s->env;
    n->n_env = s->n_env;
    if (b->n_env == 0) {
        return 0;
    }
    struct job_pair *env = job_new_array((size_t)(s->n_env + b->n_env), sizeof *env);
    size_t bytes = 0;
    int k = 0;
    for (int i = 0; i < s->n_env; i++) {
        bool hidden = false;
        for (int j = 0; j < b->n_env && !hidden; j++) {
            hidden = strcmp(s->env[i].key, b->env[j].key) == 0;
        }
        if (!hidden) {
            env[k++] = s->env[i];
        }
    }
    for (int j = 0; j < b->n_env; j++) {
        env[k++] = b->env[j];
    }
    for (int i = 0; i < k; i++) {
        bytes += pair_bytes(&env[i]);
    }
    n->env = env;
    n->n_env = k;
    n->owns_env = true;
    if (k > JOB_ENV_MAX || bytes > JOB_ENV_BYTES_MAX) {
        return err_set(err, ERR_TOO_LARGE,
                       "%s.env: with what it inherits, more than %d variables or %d bytes", at,
                       JOB_ENV_MAX, JOB_ENV_BYTES_MAX);
    }
    return 0;
}

/* ---- nodes ---- */

static struct tree_node *new_node(struct tree *t, const struct tree_node *parent, int ordinal,
                                  const char *name, int n_children)
{
    assert(t->n < JOB_TREE_NODES_MAX);
    char number[16];
    (void)snprintf(number, sizeof number, "%d", ordinal);
    struct tree_node *n = &t->nodes[t->n];
    *n = (struct tree_node){ .index = t->n,
                             .parent = parent ? parent->index : -1,
                             .depth = parent ? parent->depth + 1 : 0,
                             .ordinal = ordinal,
                             .n_children = n_children,
                             .leaf = n_children == 0 };
    t->n++;
    t->n_leaves += n->leaf;
    t->depth = n->depth > t->depth ? n->depth : t->depth;
    n->name = parent ? joined(name ? name : number, "", "") : joined("", "", "");
    n->path = parent ? joined(parent->path, "/", number) : joined("root", "", "");
    n->name_path =
        joined(parent ? parent->name_path : "", parent && parent->index > 0 ? "/" : "", n->name);
    return n;
}

static int add_branches(struct tree *t, int parent, const struct job_branch *branches, int n,
                        const struct scope *s, struct err *err);

static int add_branch(struct tree *t, int parent, const struct job_branch *b, int ordinal,
                      const struct scope *above, struct err *err)
{
    struct tree_node *n = new_node(t, &t->nodes[parent], ordinal, b->name, b->n_branches);
    char at[JR_PATH_MAX];
    n->test = b->is_test;
    tree_field(t, n->index, at);
    n->files = b->files;
    n->n_files = b->n_files;
    n->setup = b->steps;
    n->n_setup = b->n_steps;
    n->keep = b->keep.name ? &b->keep : NULL;
    n->has_weight = b->weight >= 0;
    n->weight = n->has_weight ? b->weight : 1;
    int rc = set_command(n, b, above, at, err);
    if (rc < 0 || (rc = set_env(n, b, above, at, err)) < 0) {
        return rc;
    }
    n->stdin_data = b->has_stdin ? &b->stdin_data : above->stdin_data;
    n->has_expect = b->has_expect || above->has_expect;
    n->expect = b->has_expect ? &b->expect : above->expect;
    n->artifacts = b->has_artifacts ? b->artifacts : above->artifacts;
    n->n_artifacts = b->has_artifacts ? b->n_artifacts : above->n_artifacts;
    if (n->leaf && n->command.argc == 0 && !n->keep) {
        return err_set(err, ERR_INVALID, "%s.command: missing, and there is none to inherit", at);
    }
    int index = n->index;
    if (!n->leaf) {
        struct scope below = { .command = n->command,
                               .env = n->env,
                               .n_env = n->n_env,
                               .stdin_data = n->stdin_data,
                               .expect = n->expect,
                               .has_expect = n->has_expect,
                               .artifacts = n->artifacts,
                               .n_artifacts = n->n_artifacts };
        if ((rc = add_branches(t, index, b->branches, b->n_branches, &below, err)) < 0) {
            return rc;
        }
        /* an inner node runs no command and hands out no files: they were for its leaves */
        n->n_artifacts = 0;
        n->command.argc = 0;
    }
    n->end = t->n;
    return 0;
}

/* Recursion is as deep as JOB_TREE_DEPTH_MAX. */
static int add_branches(struct tree *t, int parent, const struct job_branch *branches, int n,
                        const struct scope *s, struct err *err)
{
    for (int i = 0; i < n; i++) {
        int rc = add_branch(t, parent, &branches[i], i, s, err);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int count_nodes(const struct job_branch *branches, int n)
{
    int total = n;
    for (int i = 0; i < n; i++) {
        total += count_nodes(branches[i].branches, branches[i].n_branches);
    }
    return total;
}

static int by_text(const void *a, const void *b)
{
    return strcmp((*(const struct tree_node *const *)a)->keep->name,
                  (*(const struct tree_node *const *)b)->keep->name);
}

static int check_keeps(const struct tree *t, struct err *err)
{
    int n = 0;
    cleanup_free const struct tree_node **kept = job_new_array((size_t)t->n, sizeof *kept);
    for (int i = 0; i < t->n; i++) {
        if (t->nodes[i].keep) {
            kept[n++] = &t->nodes[i];
        }
    }
    qsort(kept, (size_t)n, sizeof(*kept), by_text);
    for (int i = 1; i < n; i++) {
        if (strcmp(kept[i - 1]->keep->name, kept[i]->keep->name) == 0) {
            char at[JR_PATH_MAX], sub[JR_PATH_MAX];
            const struct tree_node *late =
                kept[i]->index > kept[i - 1]->index ? kept[i] : kept[i - 1];
            tree_field(t, late->index, at);
            job_field(sub, at, "keep.name");
            return err_set(err, ERR_INVALID, "%s: \"%s\" is kept twice", sub, late->keep->name);
        }
    }
    return 0;
}

int tree_build(const struct job_spec *spec, struct tree **ret_tree, struct err *err)
{
    CLEANUP(tree_free_fn) struct tree *t = job_new_array(1, sizeof *t);
    int n = 1 + count_nodes(spec->branches, spec->n_branches);
    assert(n <= JOB_TREE_NODES_MAX);
    t->nodes = job_new_array((size_t)n, sizeof *t->nodes);
    struct tree_node *root = new_node(t, NULL, 0, NULL, spec->n_branches);
    root->archive = spec->archive.present ? &spec->archive : NULL;
    root->files = spec->files;
    root->n_files = spec->n_files;
    root->setup = spec->steps;
    root->n_setup = spec->n_steps;
    root->env = spec->env;
    root->n_env = spec->n_env;
    root->stdin_data = &spec->stdin_data;
    root->expect = &spec->expect;
    root->has_expect = spec->has_expect;
    root->keep = spec->keep.name ? &spec->keep : NULL;
    root->weight = 1;
    root->command = spec->command;
    root->artifacts = spec->artifacts;
    root->n_artifacts = spec->n_artifacts;
    struct scope below = { .command = spec->command,
                           .env = spec->env,
                           .n_env = spec->n_env,
                           .stdin_data = &spec->stdin_data,
                           .expect = &spec->expect,
                           .has_expect = spec->has_expect,
                           .artifacts = spec->artifacts,
                           .n_artifacts = spec->n_artifacts };
    int rc = add_branches(t, 0, spec->branches, spec->n_branches, &below, err);
    if (rc < 0) {
        return rc;
    }
    assert(t->n == n);
    if (!root->leaf) {
        root->command.argc = 0;
        root->n_artifacts = 0;
    }
    root->end = t->n;
    if ((rc = check_keeps(t, err)) < 0) {
        return rc;
    }
    *ret_tree = TAKE_PTR(t);
    return 0;
}
