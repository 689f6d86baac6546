/* The sweep of the object store, with a real Postgres and the directory driver: what goes, what
 * stays, and what was wanted again just then. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/store/snapshots.h"
#include "scheduler/sweeper.h"
#include "tests/support/fixture.h"

FIXTURE_MAIN

#define OK(call) cr_assert_geq((call), 0, "%s: %s", #call, err.text)
#define AFTER_S 3600

static struct fixture f;
static struct err err;
static char top[] = "/tmp/brood-t-sweep-XXXXXX";
static struct object_options options;
static struct object_store *store;

static void set_up(void)
{
    fixture_open(&f);
    cr_assert_not_null(mkdtemp(top));
    (void)snprintf(options.dir, sizeof options.dir, "%s/objects", top);
    options.renew_after_s = AFTER_S / 2;
    OK(object_store_open(&store, &options, &err));
}

static void tear_down(void)
{
    char command[128];
    object_store_free(store);
    (void)snprintf(command, sizeof command, "rm -rf -- %s", top);
    cr_assert_eq(system(command), 0);
    fixture_close(&f);
}

TestSuite(sweep, .init = set_up, .fini = tear_down, .timeout = 120);

/* An object of this text; older_s: so long ago. */
static struct object_id put(const char *text, int older_s)
{
    struct object_id id;
    char part[OBJECT_PATH + 1], path[700];
    OK(object_put_bytes(store, text, strlen(text), &id, &err));
    object_id_path(&id, part);
    (void)snprintf(path, sizeof path, "%s/%s", options.dir, part);
    const struct timespec at = { .tv_sec = wall_ms() / 1000 - older_s };
    const struct timespec times[2] = { at, at };
    cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
    return id;
}

static bool there(const struct object_id *id)
{
    return object_exists(store, id, &err) == 1;
}

/* $1 and $2 of the statement; NULL: it has none. */
static void sql(const char *text, const char *a, const char *b)
{
    const char *const values[] = { a, b };
    PGresult *r = PQexecParams(f.pg.conn, text, !a ? 0 : !b ? 1 : 2, NULL, values, NULL, NULL, 0);
    cr_assert_eq(PQresultStatus(r), PGRES_COMMAND_OK, "%s", PQerrorMessage(f.pg.conn));
    PQclear(r);
}

static struct sweep_pass pass(sweep_stop_fn stop, void *arg)
{
    struct sweep_pass p;
    const struct sweep_what w = {
        .pg = &f.pg, .objects = store, .after_s = AFTER_S, .stop = stop, .arg = arg
    };
    OK(sweep_pass(&w, &p, &err));
    return p;
}

/* A waiting job; its id is the caller's until the next call. archive: NULL, or the object of it. */
static const char *a_job(const struct object_id *archive)
{
    static char id[64];
    char json[400];
    struct job_spec *spec = NULL;
    (void)snprintf(json, sizeof json,
                   "{\"template\":\"python\",\"command\":[\"true\"]%s%s%s,\"labels\":{\"object\":"
                   "\"0000000000000000000000000000000000000000000000000000000000000000\"}}",
                   archive ? ",\"archive\":{\"format\":\"tar\",\"object\":\"" : "",
                   archive ? archive->hex : "", archive ? "\"}" : "");
    OK(job_parse(json, strlen(json), &spec, &err));
    struct submit_item one = { .spec = spec };
    OK(store_submit(&f.pg, "default", NULL, NULL, 0, &one, 1, true, &err));
    job_spec_free(spec);
    fixture_value(&f, "SELECT id FROM jobs ORDER BY id DESC LIMIT 1", id, sizeof id);
    return id;
}

static void keep_state(const struct object_id *manifest, const struct object_id *layer)
{
    char layers[160];
    (void)snprintf(layers, sizeof layers, "%s,%s", manifest->hex, layer->hex);
    sql("INSERT INTO snapshots (id, tenant, name, digest, layers, template, template_digest, "
        "engine,"
        " engine_version, cpu_model, kernel_digest, vcpus, memory_mib, ram_bytes, layer_bytes, "
        "ttl_s,"
        " pinned) VALUES (gen_random_uuid(), 'default', 'deps', $1, string_to_array($2, ','),"
        " 'python', 'd', 'e', 'v', 'c', 'k', 1, 256, 268435456, 4096, 0, true)",
        manifest->hex, layers);
}

Test(sweep, what_nobody_wants_goes_when_it_is_old)
{
    struct object_id artifact = put("artifact", 7200), manifest = put("manifest", 7200),
                     layer = put("layer", 7200), upload = put("upload", 7200),
                     late = put("late", 7200), late_free = put("late_free", 7200),
                     old = put("lent", 7200), older = put("of a lost attempt", 720000),
                     young = put("young", 60), between = put("between", AFTER_S - 60);
    sql("INSERT INTO artifacts (job_id, node, ord, path, sha256, size_bytes, mode, type, stored, "
        "reason, change) VALUES ($1, 0, 0, 'a', $2, 8, 420, 'file', true, '', 0)",
        a_job(NULL), artifact.hex);
    keep_state(&manifest, &layer);
    OK(store_upload_put(&f.pg, "default", upload.hex, 6, 3600, &err));
    OK(store_upload_put(&f.pg, "default", late.hex, 4, 3600, &err));
    OK(store_upload_put(&f.pg, "default", late_free.hex, 9, 3600, &err));
    (void)a_job(&late); /* it waits for longer than the upload lives */
    sql("UPDATE uploads SET expires_at = now() - interval '1 s' WHERE sha256 IN ($1, $2)", late.hex,
        late_free.hex);

    struct sweep_pass p = pass(NULL, NULL);
    cr_expect_eq(p.removed, 3, "%lld", (long long)p.removed);
    cr_expect_eq(p.removed_bytes, 9 + 4 + 17);
    cr_expect_eq(p.looked, 10);
    cr_expect_str_eq(p.after, "", "the end was reached");
    cr_expect(there(&artifact) && there(&manifest) && there(&layer) && there(&upload));
    cr_expect(there(&late), "a job that waits names it");
    cr_expect(there(&young) && there(&between));
    cr_expect(!there(&late_free) && !there(&old) && !there(&older));
    cr_expect_eq(fixture_number(&f, "SELECT count(*) FROM uploads"), 2, "the row goes too");

    sql("UPDATE jobs SET state = 'cancelled', verdict = 'cancelled'", NULL, NULL);
    sql("DELETE FROM snapshots", NULL, NULL);
    p = pass(NULL, NULL);
    cr_expect_eq(p.removed, 3, "the state's two, and what only the job named");
    cr_expect(there(&artifact) && there(&upload) && there(&young) && there(&between));
    struct sweep_view v;
    OK(store_sweep_view(&f.pg, &v, &err));
    cr_expect(v.passes == 2 && v.rounds == 2 && v.removed == 6 && v.looked == 17 && v.last_ms > 0,
              "%lld passes, %lld looked at", (long long)v.passes, (long long)v.looked);
}

struct again {
    struct object_id id;
    int calls;
};

/* Between the question to Postgres and the deletion somebody puts the same bytes again: the first
 * call comes before the list is read, the second just before the first deletion. */
static bool put_again(void *arg)
{
    struct again *a = arg;
    struct object_id now;
    if (++a->calls == 2) {
        OK(object_put_bytes(store, "wanted again", 12, &now, &err));
        cr_assert_str_eq(now.hex, a->id.hex);
    }
    return false;
}

Test(sweep, what_is_put_again_meanwhile_stays)
{
    struct again again = { .id = put("wanted again", 7200) };
    struct object_id old = put("old", 7200);
    struct sweep_pass p = pass(put_again, &again);
    cr_expect_geq(again.calls, 2);
    cr_expect_eq(p.removed, 1);
    cr_expect(there(&again.id), "whoever has put it counts on it");
    cr_expect(!there(&old));
}

/* The put before the pass is enough: its row may come up to half the age later. */
Test(sweep, a_put_of_what_was_there_protects_it)
{
    struct object_id id = put("found again", 7200), same;
    OK(object_put_bytes(store, "found again", 11, &same, &err));
    cr_expect_eq(pass(NULL, NULL).removed, 0);
    cr_expect(there(&id));
}

static bool stop_after(void *arg)
{
    int *left = arg;
    return (*left)-- <= 0;
}

Test(sweep, a_pass_that_was_stopped_goes_on_later)
{
    struct object_id ids[6];
    int left = 4, gone = 0;
    for (int i = 0; i < 6; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "number %d", i);
        ids[i] = put(text, 7200);
    }
    struct sweep_pass p = pass(stop_after, &left);
    cr_expect(p.removed > 0 && p.removed < 6, "%lld", (long long)p.removed);
    int64_t first = p.removed;
    p = pass(NULL, NULL);
    cr_expect_eq(first + p.removed, 6);
    for (int i = 0; i < 6; i++) {
        gone += !there(&ids[i]);
    }
    cr_expect_eq(gone, 6);
}

Test(sweep, it_goes_on_behind_the_mark_and_begins_anew)
{
    struct object_id id = put("before the mark", 7200);
    sql("UPDATE object_sweeps SET after = repeat('f', 64)", NULL, NULL);
    cr_expect_eq(pass(NULL, NULL).removed, 0, "all is before the mark");
    cr_expect(there(&id));
    cr_expect_eq(pass(NULL, NULL).removed, 1);
}

Test(sweep, one_at_a_time)
{
    struct object_id id = put("old", 7200);
    struct pg other = { 0 };
    struct sweep_view v;
    OK(pg_open(&other, f.pg_url, &err));
    cr_assert_eq(store_sweep_begin(&other, &v, &err), 1);
    cr_expect_eq(pass(NULL, NULL).looked, -1, "another sweeps");
    cr_expect(there(&id));
    pg_close(&other); /* as if it was killed */
    struct sweep_pass p = { .looked = -1 };
    for (int64_t end = mono_ms() + 10000; p.looked < 0 && mono_ms() < end; sleep_ms(20)) {
        p = pass(NULL, NULL); /* the server notices by itself */
    }
    cr_expect_eq(p.removed, 1);
}
