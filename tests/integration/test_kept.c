/* Kept states on a worker while the object store says nothing: who needs nothing of it goes on. */
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include "common/store/cancel.h"
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

static void await_asked(int fd)
{
    bool came = false;
    for (int64_t end = mono_ms() + WAIT_MS; !came && mono_ms() < end; sleep_ms(20)) {
        came = silent_s3_asked(fd);
    }
    cr_assert(came, "it is being fetched");
}

struct given_up {
    int abort_fd, rc;
};

static void *lease_until(void *arg)
{
    struct given_up *g = arg;
    struct err why = { 0 };
    struct snapshot_row cold = row_of('c');
    g->rc = lease(&cold, g->abort_fd, &why);
    return NULL;
}

/* Whoever fetches it is given up, and the store is not. */
Test(kept, the_one_that_fetches_is_given_up)
{
    int fd;
    pthread_t thread;
    struct given_up g = { .abort_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
    uint64_t one = 1;
    struct object_store *objects = silent_s3(home, 600, &fd);
    (void)snprintf(config.home, sizeof config.home, "%s", home);
    (void)snprintf(config.postgres_url, sizeof config.postgres_url, "%s", f.pg_url);
    config.worker_kept_cache_mib_max = 1;
    kept = kept_new(&config, objects);
    cr_assert_eq(pthread_create(&thread, NULL, lease_until, &g), 0);
    await_asked(fd);
    cr_assert_eq(write(g.abort_fd, &one, sizeof one), (ssize_t)sizeof one);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_expect_eq(g.rc, -ERR_STALE);
    kept_free(kept);
    object_store_free(objects);
    (void)close(fd);
    (void)close(g.abort_fd);
}

/* ---- the worker itself, and a job that starts from a state ---- */

static struct object_store *silent;

/* Claimed, and its state is on its way. */
static struct id fetching(pid_t *ret_worker, int *ret_fd)
{
    struct sockaddr_in at;
    socklen_t len = sizeof at;
    char endpoint[64];
    silent = silent_s3(home, 600, ret_fd);
    cr_assert_eq(getsockname(*ret_fd, (struct sockaddr *)&at, &len), 0);
    (void)snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", ntohs(at.sin_port));
    set("BROOD_OBJECT_STORE", "s3");
    set("BROOD_S3_ENDPOINT", endpoint);
    set("BROOD_S3_BUCKET", "bucket");
    set("BROOD_S3_ACCESS_KEY", "key");
    set("BROOD_S3_SECRET_KEY", "secret");
    set("BROOD_S3_STALL_TIMEOUT_S", "600");
    set("BROOD_WORKER_DRAIN_MS", "100");
    PQclear(PQexec(
        f.pg.conn,
        "INSERT INTO snapshots (id, tenant, name, digest, layers, template, template_digest,"
        " engine, engine_version, cpu_model, kernel_digest, vcpus, memory_mib, ram_bytes,"
        " layer_bytes, ttl_s, pinned) VALUES (gen_random_uuid(), 'default', 'one', repeat('c', 64),"
        " ARRAY[repeat('c', 64), repeat('f', 64)], 'python', 'd', 'e', 'v', 'c', 'k', 1, 256,"
        " 268435456, 4096, 0, true)"));
    *ret_worker = start_worker("w1");
    struct id id = run_job("{\"template\":\"snapshot:one\",\"command\":[\"echo\",\"1\"]}");
    await_asked(*ret_fd);
    return id;
}

Test(kept, a_job_whose_state_does_not_come_is_cancelled)
{
    struct cancelled gone;
    pid_t pid;
    int fd;
    struct id id = fetching(&pid, &fd);
    cr_assert_eq(store_cancel(&f.pg, NULL, id.text, 1, &gone, &err), 1, "%s", err.text);
    cr_assert_eq(cancel_tell(&f.pg, &f.queue, &gone.id, 1, &err), 0, "%s", err.text);
    await(&id, "SELECT count(*) FROM jobs WHERE verdict = 'cancelled' AND id = $", 1);
    expect_queue_empty();
    cr_expect_eq(end_worker(pid), 0);
    object_store_free(silent);
    (void)close(fd);
}

Test(kept, a_job_whose_state_does_not_come_is_given_back)
{
    pid_t pid;
    int fd;
    struct id id = fetching(&pid, &fd);
    cr_expect_eq(end_worker(pid), 0);
    cr_expect_eq(about(&id, "SELECT count(*) FROM jobs WHERE state = 'retrying' AND not_before <= "
                            "clock_timestamp() AND id = $"),
                 1);
    cr_expect_eq(
        about(&id, "SELECT count(*) FROM attempts WHERE outcome = 'given_back' AND job_id = $"), 1);
    expect_queue_empty();
    object_store_free(silent);
    (void)close(fd);
}
