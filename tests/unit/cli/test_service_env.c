#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "cli/service_env.h"

#define S(text) ((char *)(uintptr_t)(text))

static bool sees(enum service_id id, const char *variable)
{
    char *from[] = { S("PATH=/bin"), S(variable), NULL }, *env[SERVICE_ENV_MAX];
    struct err err;
    cr_assert_eq(service_env(id, from, env, &err), 0, "%s", err.text);
    cr_assert_str_eq(env[0], "PATH=/bin");
    cr_assert(!env[1] || (env[1] == from[1] && !env[2]));
    return env[1] != NULL;
}

Test(service_env, credentials_are_for_those_who_log_in)
{
    static const char *const secret[] = { "AWS_SECRET_ACCESS_KEY=a", "AWS_ACCESS_KEY_ID=b",
                                          "AWS_SESSION_TOKEN=c",     "BROOD_S3_SECRET_KEY=d",
                                          "BROOD_S3_ACCESS_KEY=e",   "BROOD_POSTGRES_URL=f",
                                          "BROOD_REDIS_URL=g",       "PGPASSWORD=h",
                                          "https_proxy=http://u:p@h" };
    for (size_t i = 0; i < sizeof secret / sizeof secret[0]; i++) {
        for (int id = 0; id < SVC_COUNT; id++) {
            bool stores = id == SVC_SCHEDULER || id == SVC_WORKER;
            cr_expect_eq(sees((enum service_id)id, secret[i]), stores, "%s: %s", secret[i],
                         service_name((enum service_id)id));
        }
    }
}

Test(service_env, settings_are_for_those_who_read_them)
{
    cr_expect(sees(SVC_VMPOOL, "BROOD_JAIL_MODE=try"));
    cr_expect(sees(SVC_VMPOOL, "BROOD_POOL_WARM_MIN=1"));
    cr_expect(sees(SVC_WORKER, "BROOD_WORKER_SLOTS=4"));
    cr_expect(!sees(SVC_SCHEDULER, "BROOD_WORKER_SLOTS=4"));
    cr_expect(sees(SVC_WORKER, "BROOD_SCHEDULER_INFRA_ATTEMPTS_MAX=2"));
    cr_expect(!sees(SVC_REDIS, "BROOD_HOME=/h"));
    for (int id = SVC_VMPOOL; id <= SVC_WORKER; id++) {
        cr_expect(sees((enum service_id)id, "BROOD_RUN_DIR=/r"));
        cr_expect(sees((enum service_id)id, "BROOD_VMPOOL_SOCKET=/r/s"));
    }
}

/* What nobody has thought of goes nowhere; a name is no beginning of another. */
Test(service_env, the_rest_is_for_nobody)
{
    static const char *const other[] = { "GITHUB_TOKEN=x",
                                         "SSH_AUTH_SOCK=/s",
                                         "PATHS=/a",
                                         "HOMES=",
                                         "BROOD_",
                                         "LANGX=1",
                                         "PATH",
                                         "",
                                         "=" };
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        for (int id = 0; id < SVC_COUNT; id++) {
            cr_expect(!sees((enum service_id)id, other[i]), "%s", other[i]);
        }
    }
    for (int id = 0; id < SVC_COUNT; id++) {
        cr_expect(sees((enum service_id)id, "LC_ALL=C"));
        cr_expect(sees((enum service_id)id, "TZ="));
    }
}

Test(service_env, more_than_fit_is_refused)
{
    static char text[SERVICE_ENV_MAX][16];
    char *from[SERVICE_ENV_MAX + 1], *env[SERVICE_ENV_MAX];
    struct err err;
    for (int i = 0; i < SERVICE_ENV_MAX; i++) {
        (void)snprintf(text[i], sizeof text[i], "LC_%d=C", i);
        from[i] = text[i];
    }
    from[SERVICE_ENV_MAX] = NULL;
    cr_expect_eq(service_env(SVC_REDIS, from, env, &err), -ERR_TOO_LARGE);
    from[SERVICE_ENV_MAX - 1] = NULL;
    cr_expect_eq(service_env(SVC_REDIS, from, env, &err), 0);
    cr_expect_null(env[SERVICE_ENV_MAX - 1]);
}
