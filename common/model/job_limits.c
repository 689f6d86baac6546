/* Limits: one table, two columns of defaults (main run and setup), and what depends on another
 * limit.
 *
 * wall_ms has no constant default: it follows cpu_ms, so that a raised CPU limit is not cut by a
 * wall limit nobody set. Both may be given in any relation; the one that is reached first ends the
 * run and names the verdict. */
#include "common/model/job_part.h"

#include <assert.h>

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
    if (!given(c, LIMIT_wall_ms)) {
        c->limits.wall_ms =
            at_most(WALL_FACTOR * c->limits.cpu_ms + WALL_EXTRA_MS, rows[LIMIT_wall_ms].max);
    } else if (!given(c, LIMIT_cpu_ms)) {
        c->limits.cpu_ms = at_most(c->limits.cpu_ms, c->limits.wall_ms);
    }
    assert(c->limits.wall_ms >= rows[LIMIT_wall_ms].min &&
           c->limits.cpu_ms >= rows[LIMIT_cpu_ms].min);
    return 0;
}

static int check_memory(const struct job_command *c, const char *path,
                        const struct template_info *t, struct err *err)
{
    int64_t max = t->memory_mib - TEMPLATE_MEMORY_RESERVE_MIB;
    if (c->argc == 0 || !given(c, LIMIT_memory_mib) || c->limits.memory_mib <= max) {
        return 0;
    }
    return err_set(err, ERR_INVALID,
                   "%s.memory_mib: %lld, but template %s has at most %lld MiB for a job", path,
                   (long long)c->limits.memory_mib, t->name, (long long)max);
}

int job_check_template(const struct job_spec *spec, const struct template_info *t, struct err *err)
{
    if (t->memory_mib < TEMPLATE_MEMORY_RESERVE_MIB + rows[LIMIT_memory_mib].min) {
        return err_set(err, ERR_INVALID,
                       "template %s: %d MiB of memory are too few to run a job; at least %lld",
                       t->name, t->memory_mib,
                       (long long)(TEMPLATE_MEMORY_RESERVE_MIB + rows[LIMIT_memory_mib].min));
    }
    int rc = check_memory(&spec->setup, "setup.limits", t, err);
    return rc < 0 ? rc : check_memory(&spec->command, "limits", t, err);
}

void job_clamp_to_template(struct job_spec *spec, const struct template_info *t)
{
    int64_t max = t->memory_mib - TEMPLATE_MEMORY_RESERVE_MIB;
    if (max < rows[LIMIT_memory_mib].min) {
        max = rows[LIMIT_memory_mib].min;
    }
    spec->setup.limits.memory_mib = at_most(spec->setup.limits.memory_mib, max);
    spec->command.limits.memory_mib = at_most(spec->command.limits.memory_mib, max);
}
