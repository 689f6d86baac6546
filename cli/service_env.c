#include "cli/service_env.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#define TO(id) (1u << (id))
#define ALL (TO(SVC_COUNT) - 1)
/* Who opens Postgres, Redis and the objects. */
#define STORES (TO(SVC_SCHEDULER) | TO(SVC_WORKER))
#define OURS (STORES | TO(SVC_VMPOOL)) /* who reads brood's settings */

/* A name, or its beginning before a '*'. */
static const struct env_row {
    const char *name;
    unsigned to;
} table[] = {
    { "PATH", ALL },
    { "HOME", ALL },
    { "LANG", ALL },
    { "LC_*", ALL },
    { "TZ", ALL },
    { "TMPDIR", ALL },
    { "LD_*", ALL }, /* the loader's: where libraries are, what goes before them */
    { "ASAN_OPTIONS", ALL },
    { "LSAN_OPTIONS", ALL },
    { "UBSAN_OPTIONS", ALL },
    { "TSAN_OPTIONS", ALL },
    { "BROOD_HOME", OURS },
    { "BROOD_RUN_DIR", OURS },
    { "BROOD_CONFIG", OURS },
    { "BROOD_LOG_*", OURS },
    { "BROOD_TEST_*", OURS }, /* tests' own; no setting */
    { "BROOD_VMPOOL_*", OURS },
    { "BROOD_JAIL_*", TO(SVC_VMPOOL) },
    { "BROOD_POOL_*", TO(SVC_VMPOOL) },
    { "BROOD_REDIS_*", STORES },
    { "BROOD_POSTGRES_*", STORES },
    { "BROOD_OBJECT_*", STORES },
    { "BROOD_S3_*", STORES },
    { "BROOD_SECRETS_*", STORES },
    { "BROOD_SCHEDULER_*", STORES }, /* the worker counts attempts by the same settings */
    { "BROOD_WORKER_*", TO(SVC_WORKER) },
    { "BROOD_RATE_*", STORES },
    { "BROOD_TENANT_*", STORES },
    { "AWS_*", STORES },
    { "PG*", STORES },         /* libpq's; the private Postgres shall not take PGDATA for its own */
    { "RES_OPTIONS", STORES }, /* the resolver's */
    { "LOCALDOMAIN", STORES },
    { "SSL_CERT_*", STORES },
    { "http_proxy", STORES }, /* libcurl's */
    { "https_proxy", STORES },
    { "HTTPS_PROXY", STORES },
    { "all_proxy", STORES },
    { "ALL_PROXY", STORES },
    { "no_proxy", STORES },
    { "NO_PROXY", STORES },
};

static bool is_named(const char *variable, const char *name)
{
    size_t n = strcspn(name, "*");
    return strncmp(variable, name, n) == 0 && (name[n] == '*' || variable[n] == '=');
}

static bool is_for(enum service_id id, const char *variable)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (is_named(variable, table[i].name)) {
            return table[i].to & TO(id);
        }
    }
    return false;
}

int service_env(enum service_id id, char *const *from, char *ret_env[SERVICE_ENV_MAX],
                struct err *err)
{
    char *kept[SERVICE_ENV_MAX];
    size_t n = 0;
    assert(id >= 0 && id < SVC_COUNT);
    for (; *from; from++) {
        if (!is_for(id, *from)) {
            continue;
        }
        if (n == SERVICE_ENV_MAX - 1) {
            return err_set(err, ERR_TOO_LARGE, "%s: more than %d environment variables",
                           service_name(id), SERVICE_ENV_MAX - 1);
        }
        kept[n++] = *from;
    }
    kept[n++] = NULL;
    memcpy(ret_env, kept, n * sizeof kept[0]);
    return 0;
}
