/* Artifacts that an object store did not take: they wait on the worker's disk and are stored later.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/store/object.h"
#include "common/store/pg_internal.h"
#include "tests/support/fixture.h"
#include "tests/support/silent_s3.h"
#include "worker/node_artifacts.h"
#include "worker/pending.h"

FIXTURE_MAIN

#define WAIT_MS 30000
#define OK(call) cr_assert_geq((call), 0, "%s: %s", #call, err.text)
#define HELLO_SHA "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" /* "hello" */
#define WORLD_SHA "486ea46224d1bb4fb680f34f7c9ad96a8f24ec88be73ea8e5a6c65260e9cb8a7" /* "world" */

static struct fixture f;
static _Thread_local struct err err;
static struct config config;
static struct object_store *store;
static struct pending *p;
static char home[48];

/* In the home. */
static void shell(const char *command)
{
    char line[256];
    (void)snprintf(line, sizeof line, "cd %s && %s", home, command);
    cr_assert_eq(system(line), 0, "%s", line);
}

static void set_up(void)
{
    struct object_options o = { .driver = OBJECT_DIR };
    fixture_open(&f);
    (void)snprintf(home, sizeof home, "/tmp/brood-pending-XXXXXX");
    cr_assert_not_null(mkdtemp(home));
    (void)snprintf(config.home, sizeof config.home, "%s", home);
    (void)snprintf(config.postgres_url, sizeof config.postgres_url, "%s", f.pg_url);
    config.worker_spool_mib = 1;
    (void)snprintf(o.dir, sizeof o.dir, "%s/objects", home);
    OK(object_store_open(&store, &o, &err));
    shell("mv objects away && printf x > objects"); /* the store is away */
    OK(pending_start(&config, store, &p, &err));
}

static void tear_down(void)
{
    pending_stop(p);
    object_store_free(store);
    fixture_close(&f);
    shell("cd / && rm -rf -- \"$OLDPWD\"");
}

TestSuite(pending, .init = set_up, .fini = tear_down, .timeout = 120);

static int content(const char *text)
{
    int fd = open(home, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    cr_assert_eq(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static void keep(const char *job_id)
{
    int fd = content("hello");
    OK(pending_keep(p, job_id, HELLO_SHA, fd, 5, &err));
    OK(pending_keep(p, job_id, HELLO_SHA, fd, 5, &err)); /* a branch with the same content */
    (void)close(fd);
}

/* A job under way, and its end with the artifact. */
static void begin(struct dispatch_row *row)
{
    struct submit_item item = { .spec = fixture_job("true", NULL) };
    OK(store_submit(&f.pg, "default", NULL, NULL, 0, &item, 1, true, &err));
    cr_assert_eq(fixture_dispatch(&f.pg, 1, row, &err), 1, "%s", err.text);
}

static void end_with(const struct dispatch_row *row, const char *sha256)
{
    struct job_result r;
    struct manifest m = { 0 };
    job_result_init(&r);
    r.verdict = VERDICT_ACCEPTED;
    struct artifact *a = NULL;
    OK(manifest_add(&m, "out/a", 5, NULL, 0, &a, &err));
    a->type = ARTIFACT_FILE;
    a->size = 5;
    a->reason = ARTIFACT_PENDING;
    memcpy(a->sha256, sha256, sizeof a->sha256);
    struct commit_item item = { .job_id = row->job_id,
                                .tenant = row->tenant,
                                .template_name = "python",
                                .worker = "w",
                                .attempt = row->attempt,
                                .result = &r,
                                .artifacts = &m };
    OK(store_commit(&f.pg, &item, 1, &err));
    cr_assert(item.ret_won);
    manifest_done(&m);
    job_result_done(&r);
}

static void end(const struct dispatch_row *row)
{
    end_with(row, HELLO_SHA);
}

static void await(const char *sql, long want)
{
    long got = -1;
    for (int64_t until = mono_ms() + WAIT_MS; mono_ms() < until; sleep_ms(20)) {
        if ((got = fixture_number(&f, sql)) == want) {
            return;
        }
    }
    cr_assert_fail("%s: %ld", sql, got);
}

static bool waits(const char *job_id)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/spool/objects/%s.%s", home, job_id, HELLO_SHA);
    return access(path, F_OK) == 0;
}

static void await_gone(const char *job_id)
{
    for (int64_t until = mono_ms() + WAIT_MS; waits(job_id) && mono_ms() < until; sleep_ms(20)) {
    }
    cr_assert(!waits(job_id));
}

#define PENDING "SELECT count(*) FROM artifacts WHERE reason = 'pending' AND NOT stored"
#define STORED                                                                                     \
    "SELECT count(*) FROM artifacts WHERE reason = '' AND stored AND stored_at IS NOT NULL"

Test(pending, artifacts_wait_for_the_store)
{
    struct dispatch_row row;
    struct object_id id;
    int64_t size = 0;
    begin(&row);
    keep(row.job_id);
    end(&row);
    cr_assert_eq(fixture_number(&f, PENDING), 1);
    sleep_ms(1500); /* it is offered, and refused */
    cr_assert(waits(row.job_id));
    cr_assert_eq(fixture_number(&f, PENDING), 1);
    shell("rm objects && mv away objects");
    await(STORED, 1);
    await_gone(row.job_id);
    OK(object_id_parse(&id, HELLO_SHA, &err));
    OK(object_size(store, &id, &size, &err));
    cr_assert_eq(size, 5);
    dispatch_rows_done(&row, 1);
}

/* The store is back before the result is in Postgres: the file stays until the rows say so. */
Test(pending, the_store_is_back_before_the_result_commits)
{
    struct dispatch_row row;
    begin(&row);
    keep(row.job_id);
    shell("rm objects && mv away objects");
    sleep_ms(2500);
    cr_assert(waits(row.job_id));
    end(&row);
    await(STORED, 1);
    await_gone(row.job_id);
    dispatch_rows_done(&row, 1);
}

/* The worker is killed meanwhile, and the attempt that had the file was not the one that counts. */
Test(pending, the_next_worker_goes_on)
{
    struct dispatch_row row;
    begin(&row);
    keep(row.job_id);
    pending_stop(p);
    p = NULL;
    end(&row);
    shell("rm objects && mv away objects");
    PQclear(PQexec(f.pg.conn, "DELETE FROM artifacts"));
    OK(pending_start(&config, store, &p, &err));
    await_gone(row.job_id);
    dispatch_rows_done(&row, 1);
}

Test(pending, it_is_bounded)
{
    struct id id = id_new();
    int fd = open(home, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    cr_assert_eq(ftruncate(fd, 2 << 20), 0);
    cr_assert_eq(pending_keep(p, id.text, HELLO_SHA, fd, (1 << 20) + 1, &err), -ERR_NO_CAPACITY);
    OK(pending_keep(p, id.text, HELLO_SHA, fd, 1 << 20, &err));
    (void)close(fd);
    struct id other = id_new();
    fd = content("hello");
    cr_assert_eq(pending_keep(p, other.text, HELLO_SHA, fd, 5, &err), -ERR_NO_CAPACITY);
    (void)close(fd);
}

/* ---- files that do not go ---- */

/* A job that has ended with the artifact of that digest, and the text as its waiting file. */
static void ended_with(struct dispatch_row *row, const char *sha256, const char *text)
{
    begin(row);
    int fd = content(text);
    OK(pending_keep(p, row->job_id, sha256, fd, strlen(text), &err));
    (void)close(fd);
    end_with(row, sha256);
}

/* Whatever order the folder gives them in: several are bad, the first one and the last one too. */
#define BAD 6
#define GOOD 3

/* The good ones are stored, and they alone. */
static void keep_all(struct dispatch_row rows[BAD + GOOD], const char *bad)
{
    pending_stop(p);
    OK(pending_start(&config, store, &p, &err));
    for (int i = 0; i < BAD + GOOD; i++) {
        bool good = i % 3 == 1;
        ended_with(&rows[i], good ? WORLD_SHA : HELLO_SHA, good ? "world" : bad);
    }
    await(STORED, GOOD);
    cr_assert_eq(fixture_number(&f, PENDING), BAD);
}

Test(pending, files_that_are_not_what_they_were_hold_no_other)
{
    struct dispatch_row rows[BAD + GOOD];
    shell("rm objects && mv away objects");
    keep_all(rows, "hullo");
    for (int i = 0; i < BAD + GOOD; i++) {
        cr_assert(i % 3 == 1 || waits(rows[i].job_id));
        dispatch_rows_done(&rows[i], 1);
    }
}

/* What the store does not take, for a reason that is the store's. */
Test(pending, files_that_the_store_refuses_hold_no_other)
{
    struct dispatch_row rows[BAD + GOOD];
    shell("rm objects && mv away objects && printf x > objects/2c");
    keep_all(rows, "hello");
    shell("rm objects/2c");
    await(STORED, BAD + GOOD);
    for (int i = 0; i < BAD + GOOD; i++) {
        await_gone(rows[i].job_id);
        dispatch_rows_done(&rows[i], 1);
    }
}

/* Many files wait, and the store ends each connection. */
Test(pending, a_store_that_is_away_is_not_asked_for_each_of_them)
{
    int fd;
    struct object_store *s = silent_s3(home, 600, &fd);
    struct dispatch_row rows[20];
    for (int i = 0; i < 20; i++) {
        ended_with(&rows[i], HELLO_SHA, "hello");
        dispatch_rows_done(&rows[i], 1);
    }
    pending_stop(p);
    OK(pending_start(&config, s, &p, &err));
    int64_t first_ms = 0, last_ms = 0;
    int asked = 0;
    for (int64_t until = mono_ms() + WAIT_MS; asked < 7 && mono_ms() < until;) {
        int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (c < 0) {
            sleep_ms(5);
            continue;
        }
        (void)close(c);
        last_ms = mono_ms();
        first_ms = asked++ == 0 ? last_ms : first_ms;
    }
    cr_assert_eq(asked, 7);
    /* one look asked a few times; the next ones once each, 2 and 4 s later at the earliest */
    cr_assert_geq(last_ms - first_ms, 5000);
    object_store_give_up(s);
    pending_stop(p);
    p = NULL;
    object_store_free(s);
    (void)close(fd);
}

/* ---- a store that is there and says nothing ---- */

/* What the artifact of a job that has ended is listed as. */
static enum artifact_reason store_one(struct object_store *puts, const char *job_id)
{
    struct artifact_set set;
    struct artifact *a = NULL;
    struct manifest m;
    artifacts_init(&set);
    set.spool_fd = content("hello");
    OK(manifest_add(&set.manifest, "out/a", 5, NULL, 0, &a, &err));
    a->type = ARTIFACT_FILE;
    a->size = 5;
    memcpy(a->sha256, HELLO_SHA, sizeof a->sha256);
    cr_expect_lt(node_artifacts_store(&set, puts, p, job_id, &m, &err), 0);
    cr_assert_eq(m.n, 1);
    enum artifact_reason reason = m.files[0].reason;
    manifest_done(&m);
    return reason;
}

/* It is asked once; the artifacts of the jobs behind wait at once, until one of them was stored. */
Test(pending, a_silent_store_is_waited_for_once)
{
    int fd;
    struct object_store *puts = silent_s3(home, 1, &fd);
    struct dispatch_row row;
    begin(&row);
    for (int i = 0; i < 4; i++) {
        struct id other = id_new();
        cr_assert_eq(store_one(puts, i == 0 ? row.job_id : other.text), ARTIFACT_PENDING);
        cr_assert_eq(silent_s3_asked(fd), i == 0, "job %d", i);
    }
    cr_assert(pending_away(p));
    shell("rm objects && mv away objects");
    for (int64_t until = mono_ms() + WAIT_MS; pending_away(p) && mono_ms() < until; sleep_ms(20)) {
    }
    struct id next = id_new();
    cr_assert_eq(store_one(puts, next.text), ARTIFACT_PENDING);
    cr_assert(silent_s3_asked(fd), "asked again");
    object_store_free(puts);
    (void)close(fd);
    dispatch_rows_done(&row, 1);
}

/* A worker that is told to end does not wait for it either. */
Test(pending, it_ends_while_the_store_is_silent)
{
    int fd;
    struct object_store *s = silent_s3(home, 600, &fd);
    struct dispatch_row row;
    begin(&row);
    keep(row.job_id);
    pending_stop(p);
    p = NULL;
    OK(pending_start(&config, s, &p, &err));
    bool came = false;
    for (int64_t until = mono_ms() + WAIT_MS; !came && mono_ms() < until; sleep_ms(20)) {
        came = silent_s3_asked(fd);
    }
    cr_assert(came);
    object_store_give_up(s);
    pending_stop(p);
    p = NULL;
    cr_assert(waits(row.job_id));
    object_store_free(s);
    (void)close(fd);
    dispatch_rows_done(&row, 1);
}
