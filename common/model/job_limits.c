/* Limits: one table, two columns of defaults (main run and setup), and what depends on another
 * limit.
 *
 * wall_ms has no constant default: it follows cpu_ms, so that a raised CPU limit is not cut by a
 * wall limit nobody set. Both may be given in any relation; the one that is reached first ends the
 * run and names the verdict. */
#include "common/model/job_part.h"

#include <assert.h>

#include "common/model/tree.h"

#define WALL_FACTOR 2
#define WALL_EXTRA_MS 5000

struct limit_row {
    const char *name;
    size_t offset;
    int64_t def, setup_def, min, max;
};

static const struct limit_row rows[LIMIT_COUNT] = {
#define JOB_LIMIT(field, json, def, setup_def, min, max, help)                                     \
    [LIMIT_##field] = { json, offsetof(struct job_limits, field), def, setup_def, min, max },
#include "common/model/limits.def"
#undef JOB_LIMIT
};
static_assert(LIMIT_COUNT <= 32, "explicit_limits is a 32-bit mask");

static int64_t *limit_at(struct job_limits *l, const struct limit_row *r)
{
    return (int64_t *)(void *)((char *)l + r->offset);
}

static bool given(const struct job_command *c, enum job_limit_bit bit)
{
    return c->explicit_limits & (1u << bit);
}

static int64_t at_most(int64_t value, int64_t max)
{
    return value < max ? value : max;
}

/* What follows from the limits that were given. */
static void settle_times(struct job_command *c)
{
    if (!given(c, LIMIT_wall_ms)) {
        c->limits.wall_ms =
            at_most(WALL_FACTOR * c->limits.cpu_ms + WALL_EXTRA_MS, rows[LIMIT_wall_ms].max);
    } else if (!given(c, LIMIT_cpu_ms)) {
        c->limits.cpu_ms = at_most(c->limits.cpu_ms, c->limits.wall_ms);
    }
    assert(c->limits.wall_ms >= rows[LIMIT_wall_ms].min &&
           c->limits.cpu_ms >= rows[LIMIT_cpu_ms].min);
}

int job_read_limits(const json_t *v, const char *path, bool setup, struct job_command *c,
                    struct err *err)
{
    const char *known[LIMIT_COUNT + 1] = { NULL };
    for (int i = 0; i < LIMIT_COUNT; i++) {
        known[i] = rows[i].name;
        *limit_at(&c->limits, &rows[i]) = setup ? rows[i].setup_def : rows[i].def;
    }
    c->explicit_limits = 0;
    int rc = v ? jr_object(v, path, known, err) : 0;
    if (rc < 0) {
        return rc;
    }
    for (int i = 0; v && i < LIMIT_COUNT; i++) {
        const json_t *value = json_object_get(v, rows[i].name);
        if (!value) {
            continue;
        }
        char sub[JR_PATH_MAX];
        (void)snprintf(sub, sizeof sub, "%s.%s", path, rows[i].name);
        if ((rc = jr_int(value, sub, rows[i].min, rows[i].max, limit_at(&c->limits, &rows[i]),
                         err)) < 0) {
            return rc;
        }
        c->explicit_limits |= 1u << i;
    }
    settle_times(c);
    return 0;
}

void job_inherit_limits(struct job_command *c, const struct job_command *base)
{
    for (int i = 0; i < LIMIT_COUNT; i++) {
        if (given(c, (enum job_limit_bit)i)) {
            continue;
        }
        bool from_base = given(base, (enum job_limit_bit)i);
        *limit_at(&c->limits, &rows[i]) =
            from_base ? *limit_at((struct job_limits *)(uintptr_t)&base->limits, &rows[i])
                      : rows[i].def;
    }
    c->explicit_limits |= base->explicit_limits;
    settle_times(c);
}

static int check_memory(const struct job_command *c, const char *at, const struct template_info *t,
                        struct err *err)
{
    int64_t max = t->memory_mib - TEMPLATE_MEMORY_RESERVE_MIB;
    if (!given(c, LIMIT_memory_mib) || c->limits.memory_mib <= max) {
        return 0;
    }
    return err_set(err, ERR_INVALID,
                   "%s.memory_mib: %lld, but template %s has at most %lld MiB for a job", at,
                   (long long)c->limits.memory_mib, t->name, (long long)max);
}

/* The leaf's own limits, or those of the job that it inherits: the field named is the one to mend.
 */
static int check_node(const struct job_spec *spec, const struct tree_node *n,
                      const struct template_info *t, struct err *err)
{
    char at[JR_PATH_MAX], sub[JR_PATH_MAX];
    tree_field(spec->tree, n->index, at);
    for (int i = 0; i < n->n_setup; i++) {
        char step[32] = "setup.limits";
        if (n->n_setup > 1) {
            (void)snprintf(step, sizeof step, "setup[%d].limits", i);
        }
        job_field(sub, at, step);
        int rc = check_memory(&n->setup[i], sub, t, err);
        if (rc < 0) {
            return rc;
        }
    }
    if (!n->leaf) {
        return 0;
    }
    bool jobs_own = spec->command.limits.memory_mib == n->command.limits.memory_mib;
    job_field(sub, jobs_own ? "" : at, "limits");
    return check_memory(&n->command, sub, t, err);
}

int job_check_template(const struct job_spec *spec, const struct template_info *t, struct err *err)
{
    if (t->memory_mib < TEMPLATE_MEMORY_RESERVE_MIB + rows[LIMIT_memory_mib].min) {
        return err_set(err, ERR_INVALID,
                       "template %s: %d MiB of memory are too few to run a job; at least %lld",
                       t->name, t->memory_mib,
                       (long long)(TEMPLATE_MEMORY_RESERVE_MIB + rows[LIMIT_memory_mib].min));
    }
    int rc = check_memory(&spec->on_fork, "on_fork.limits", t, err);
    for (int i = 0; rc == 0 && i < spec->tree->n; i++) {
        rc = check_node(spec, &spec->tree->nodes[i], t, err);
    }
    return rc;
}

void job_clamp_to_template(struct job_spec *spec, const struct template_info *t)
{
    int64_t max = t->memory_mib - TEMPLATE_MEMORY_RESERVE_MIB;
    if (max < rows[LIMIT_memory_mib].min) {
        max = rows[LIMIT_memory_mib].min;
    }
    struct job_command *own[] = { &spec->setup, &spec->command, &spec->on_fork };
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        own[i]->limits.memory_mib = at_most(own[i]->limits.memory_mib, max);
    }
    for (int i = 0; i < spec->tree->n; i++) {
        struct tree_node *n = &spec->tree->nodes[i];
        n->command.limits.memory_mib = at_most(n->command.limits.memory_mib, max);
        for (int k = 0; k < n->n_setup; k++) {
            n->setup[k].limits.memory_mib = at_most(n->setup[k].limits.memory_mib, max);
        }
    }
}
