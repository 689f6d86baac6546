/* The table of limits: each at its edges, the defaults that depend on another limit, and the
 * template's RAM. */
#include "tests/unit/common/job_case.h"

static void edges(const char *prefix, const char *suffix, const char *path, const char *name,
                  long long min, long long max)
{
    const long long good[] = { min, max }, bad[] = { min - 1, max + 1, -min };
    char json[256], want[160];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(json, sizeof json, HEAD "%s{\"%s\":%lld}%s}", prefix, name, good[i], suffix);
        job_spec_free(parse(json));
    }
    (void)snprintf(want, sizeof want, "%s.%s: must be a whole number from %lld to %lld", path, name,
                   min, max);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(json, sizeof json, HEAD "%s{\"%s\":%lld}%s}", prefix, name, bad[i], suffix);
        refused(json, ERR_INVALID, want);
    }
    const char *not_numbers[] = { "1000.0", "1e3", "\"1000\"", "true", "null", "[]" };
    for (size_t i = 0; i < sizeof not_numbers / sizeof not_numbers[0]; i++) {
        (void)snprintf(json, sizeof json, HEAD "%s{\"%s\":%s}%s}", prefix, name, not_numbers[i],
                       suffix);
        refused(json, ERR_INVALID, want);
    }
}

Test(limits, each_at_its_edges)
{
#define JOB_LIMIT(field, json, def, setup_def, min, max, help)                                     \
    edges(",\"limits\":", "", "limits", json, min, max);                                           \
    edges(",\"setup\":{\"command\":\"x\",\"limits\":", "}", "setup.limits", json, min, max);
#include "common/model/limits.def"
#undef JOB_LIMIT
    refused(HEAD ",\"limits\":[]}", ERR_INVALID, "limits: must be an object");
}

Test(limits, defaults)
{
    cleanup_job_spec struct job_spec *s = parse(HEAD ",\"setup\":\"x\"}");
#define JOB_LIMIT(field, json, def, setup_def, min, max, help)                                     \
    if (LIMIT_##field != LIMIT_wall_ms) {                                                          \
        cr_assert_eq(s->command.limits.field, def);                                                \
        cr_assert_eq(s->setup.limits.field, setup_def);                                            \
    }
#include "common/model/limits.def"
#undef JOB_LIMIT
    cr_assert_eq(s->command.limits.wall_ms, 25000);
    cr_assert_eq(s->setup.limits.wall_ms, 65000);
    cr_assert_eq(s->command.explicit_limits, 0);
}

static struct job_limits with(const char *limits)
{
    char json[256];
    (void)snprintf(json, sizeof json, HEAD ",\"limits\":%s}", limits);
    cleanup_job_spec struct job_spec *s = parse(json);
    return s->command.limits;
}

Test(limits, wall_follows_cpu)
{
    cr_assert_eq(with("{\"cpu_ms\":15000}").wall_ms, 35000);
    cr_assert_eq(with("{\"cpu_ms\":10}").wall_ms, 5020);
    cr_assert_eq(with("{\"cpu_ms\":3600000}").wall_ms, 7205000);
    /* only wall given: a smaller one lowers the default of cpu, a larger one leaves it */
    cr_assert_eq(with("{\"wall_ms\":2000}").cpu_ms, 2000);
    cr_assert_eq(with("{\"wall_ms\":2000}").wall_ms, 2000);
    cr_assert_eq(with("{\"wall_ms\":10}").cpu_ms, 10);
    cr_assert_eq(with("{\"wall_ms\":60000}").cpu_ms, 10000);
    /* both given: as they are, also wall below cpu */
    cr_assert_eq(with("{\"wall_ms\":1000,\"cpu_ms\":5000}").cpu_ms, 5000);
    cr_assert_eq(with("{\"wall_ms\":1000,\"cpu_ms\":5000}").wall_ms, 1000);
}

Test(limits, template_memory)
{
    struct template_info t = { .name = "python", .memory_mib = 256, .vcpus = 1 };
    struct err err;
    cleanup_job_spec struct job_spec *at =
        parse(HEAD ",\"setup\":\"x\",\"limits\":{\"memory_mib\":160}}");
    cr_assert_eq(job_check_template(at, &t, &err), 0);
    job_clamp_to_template(at, &t);
    cr_assert_eq(at->command.limits.memory_mib, 160);
    cr_assert_eq(at->setup.limits.memory_mib, 160); /* a default: lowered in silence */

    cleanup_job_spec struct job_spec *above = parse(HEAD ",\"limits\":{\"memory_mib\":161}}");
    cr_assert_eq(job_check_template(above, &t, &err), -ERR_INVALID);
    cr_assert_str_eq(err.text,
                     "limits.memory_mib: 161, but template python has at most 160 MiB for a job");

    cleanup_job_spec struct job_spec *setup =
        parse(HEAD ",\"setup\":{\"command\":\"x\",\"limits\":{\"memory_mib\":161}}}");
    cr_assert_eq(job_check_template(setup, &t, &err), -ERR_INVALID);
    cr_assert(strstr(err.text, "setup.limits.memory_mib: 161"));

    t.memory_mib = 1024;
    cleanup_job_spec struct job_spec *roomy = parse(HEAD "}");
    cr_assert_eq(job_check_template(roomy, &t, &err), 0);
    job_clamp_to_template(roomy, &t);
    cr_assert_eq(roomy->command.limits.memory_mib, 256);
    t.memory_mib = TEMPLATE_MEMORY_RESERVE_MIB + 8;
    cr_assert_eq(job_check_template(roomy, &t, &err), 0);
    t.memory_mib--;
    cr_assert_eq(job_check_template(roomy, &t, &err), -ERR_INVALID);
}
