/* Kept states on a worker while the object store says nothing: who needs nothing of it goes on. */
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include "tests/integration/worker_kit.h"
#include "tests/support/silent_s3.h"
#include "worker/kept.h"

FIXTURE_MAIN

static struct config config;
static struct kept *kept;

static void open_pool(void)
{
    fixture_open(&f);
    (void)snprintf(home, sizeof home, "/tmp/brood-worker-XXXXXX");
    cr_assert_not_null(mkdtemp(home));
    start_pool(POOL_REFUSES); /* it has none of the states */
}

TestSuite(kept, .init = open_pool, .fini = tear_down, .timeout = 60);

/* The state of that many times the letter, as a row. */
static struct snapshot_row row_of(char letter)
{
    struct snapshot_row row = { .n_layers = 2 };
    memset(row.digest, letter, SHA256_HEX);
    memset(row.layers[0], letter, SHA256_HEX);
    memset(row.layers[1], 'f', SHA256_HEX);
    return row;
}

static int lease(const struct snapshot_row *row, int abort_fd, struct err *why)
{
    struct pool_client client;
    struct lease lease;
    int rc = pool_client_init(&client, pool_path, why);
    rc = rc < 0 ? rc : kept_lease(kept, &client, row, false, abort_fd, WAIT_MS, &lease, why);
    pool_client_done(&client);
    return rc;
}

static void *lease_cold(void *arg)
{
    struct err why = { 0 };
    struct snapshot_row cold = row_of('c');
    *(int *)arg = lease(&cold, -1, &why);
    return NULL;
}

Test(kept, a_state_that_does_not_come_holds_nobody_else)
{
    int fd, rc = 0, abort_fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    char path[200];
    pthread_t thread;
    struct snapshot_row warm = row_of('a'), cold = row_of('c'), found;
    struct object_store *objects = silent_s3(home, 600, &fd);
    (void)snprintf(config.home, sizeof config.home, "%s", home);
    (void)snprintf(config.postgres_url, sizeof config.postgres_url, "%s", f.pg_url);
    config.worker_kept_cache_mib_max = 1;
    kept = kept_new(&config, objects);
    (void)snprintf(path, sizeof path, "%s/kept", home);
    cr_assert_eq(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof path, "%s/kept/%s", home, warm.digest);
    cr_assert_eq(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof path, "%s/kept/%s/manifest.json", home, warm.digest);
    FILE *manifest = fopen(path, "we");
    cr_assert(manifest && fclose(manifest) == 0);

    cr_assert_eq(pthread_create(&thread, NULL, lease_cold, &rc), 0);
    bool came = false;
    for (int64_t end = mono_ms() + WAIT_MS; !came && mono_ms() < end; sleep_ms(20)) {
        came = silent_s3_asked(fd);
    }
    cr_assert(came, "it is being fetched");
    cr_expect_eq(kept_resolve(kept, "default", "snapshot:none", &found, &err), -ERR_NOT_FOUND);
    cr_expect_eq(lease(&warm, -1, &err), -ERR_NOT_FOUND, "the pool was asked again: %s", err.text);
    cr_expect_eq(lease(&cold, abort_fd, &err), -ERR_STALE, "given up: %s", err.text);

    object_store_give_up(objects);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_expect_eq(rc, -ERR_STALE);
    kept_free(kept);
    object_store_free(objects);
    (void)close(fd);
    (void)close(abort_fd);
}
