/* A node's artifacts by way of a session and the object store; the protocol is test_artifacts.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/model/branch_result.h"
#include "tests/support/fake_guest.h"
#include "worker/node_artifacts.h"

#define RUN 4
static char dir[48];
static struct session s;
static struct err err;

static void setup(void)
{
    (void)snprintf(dir, sizeof dir, "/tmp/node-artifacts-XXXXXX");
    cr_assert(mkdtemp(dir));
    session_init(&s);
    s.run = RUN;
}

static void done(void)
{
    char line[80];
    (void)snprintf(line, sizeof line, "rm -rf %s", dir);
    cr_assert_eq(system(line), 0);
    session_done(&s);
}

TestSuite(node_artifacts, .init = setup, .fini = done, .timeout = 60);

static char *const globs[] = { "out/**", "*.log", "report.xml" };

/* Sends out/a with "hello", out/big as too large; ends well unless arg. */
static void two_files(struct fake_guest *g, void *arg)
{
    struct frame f;
    static guest_Collect asked;
    uint8_t header[FRAME_HEADER_BYTES];
    if (!guest_recv_type(g, FRAME_COLLECT, &f) ||
        frame_decode(&f, guest_Collect_fields, &asked, NULL) < 0 || asked.run != RUN ||
        asked.globs.size != sizeof "out/**\0*.log\0report.xml" ||
        memcmp(asked.globs.bytes, "out/**\0*.log\0report.xml", asked.globs.size) != 0) {
        return;
    }
    guest_Artifact m = { .run = RUN, .mode = 0644, .type = guest_ArtifactType_ARTIFACT_FILE };
    m.path.size = 5;
    memcpy(m.path.bytes, "out/a", 5);
    m.size = 5;
    guest_ArtifactEnd end = { .run = RUN };
    frame_header(header, FRAME_ARTIFACT_DATA, 0, 5);
    (void)guest_send(g, FRAME_ARTIFACT, guest_Artifact_fields, &m);
    (void)guest_send_raw(g, header, sizeof header);
    (void)guest_send_raw(g, "hello", 5);
    (void)guest_send(g, FRAME_ARTIFACT_END, guest_ArtifactEnd_fields, &end);
    m.path.size = 7;
    memcpy(m.path.bytes, "out/big", 7);
    m.size = asked.file_bytes_max + 1;
    m.skipped = guest_ArtifactSkipped_SKIPPED_TOO_LARGE;
    (void)guest_send(g, FRAME_ARTIFACT, guest_Artifact_fields, &m);
    guest_Collected all = { .run = RUN, .files = arg ? 7 : 2 };
    (void)guest_send(g, FRAME_COLLECTED, guest_Collected_fields, &all);
}

static int take(struct artifact_set *set, void *arg)
{
    struct fake_guest *g = fake_guest_start(two_files, arg);
    int rc = node_artifacts_take(&s, g->host_fd, -1, globs, 3, dir, set, &err);
    fake_guest_join(g);
    return rc;
}

static struct object_store *open_store(void)
{
    struct object_options o = { .driver = OBJECT_DIR };
    struct object_store *store;
    (void)snprintf(o.dir, sizeof o.dir, "%s/objects", dir);
    cr_assert_eq(object_store_open(&store, &o, &err), 0, "%s", err.text);
    return store;
}

Test(node_artifacts, are_taken_stored_and_noted)
{
    struct artifact_set set;
    cleanup_manifest struct manifest m = { 0 };
    struct object_store *store = open_store();
    cr_assert_eq(take(&set, NULL), 0, "%s", err.text);
    cr_assert_eq(node_artifacts_store(&set, store, NULL, NULL, &m, &err), 0, "%s", err.text);
    cr_expect_eq(set.spool_fd, -1);
    cr_expect_eq(set.manifest.n, 0u);
    cr_assert_eq(m.n, 2u);
    cr_expect(m.files[0].stored);
    cr_expect_not(m.files[1].stored);
    cr_expect_eq(m.files[1].reason, ARTIFACT_TOO_LARGE);
    struct object_id id;
    int64_t size;
    cr_assert_eq(object_id_parse(&id, m.files[0].sha256, &err), 0);
    cr_assert_eq(object_size(store, &id, &size, &err), 0, "%s", err.text);
    cr_expect_eq(size, 5);
    struct job_result r = { 0 };
    job_result_take_manifest(&r, &m);
    cr_expect_eq(r.artifacts.listed, 2);
    cr_expect_eq(r.artifacts.stored, 1);
    cr_assert_eq(r.n_warnings, 2);
    cr_expect_str_eq(r.warnings[0], "artifacts: *.log matched nothing");
    cr_expect_str_eq(r.warnings[1], "artifacts: report.xml matched nothing");
    job_result_done(&r);
    object_store_free(store);
}

Test(node_artifacts, without_a_store_they_are_listed)
{
    struct artifact_set set;
    cleanup_manifest struct manifest m = { 0 };
    cr_assert_eq(take(&set, NULL), 0, "%s", err.text);
    cr_expect_eq(node_artifacts_store(&set, NULL, NULL, NULL, &m, &err), -ERR_UNAVAILABLE);
    cr_assert_eq(m.n, 2u);
    cr_expect_not(m.files[0].stored);
    cr_expect_eq(m.files[0].reason, ARTIFACT_STORE);
    cr_expect_eq(m.files[0].size, 5u);
    cr_expect_eq(m.files[1].reason, ARTIFACT_TOO_LARGE);
}

Test(node_artifacts, a_store_that_fails_costs_no_more)
{
    struct artifact_set set;
    cleanup_manifest struct manifest m = { 0 };
    struct object_store *store = open_store();
    char line[120];
    cr_assert_eq(take(&set, NULL), 0, "%s", err.text);
    (void)snprintf(line, sizeof line, "rm -rf %s/objects && printf x > %s/objects", dir, dir);
    cr_assert_eq(system(line), 0);
    cr_expect_lt(node_artifacts_store(&set, store, NULL, NULL, &m, &err), 0);
    cr_assert_eq(m.n, 2u);
    cr_expect_eq(m.files[0].reason, ARTIFACT_STORE);
    object_store_free(store);
}

Test(node_artifacts, of_a_guest_that_lies_what_had_come_stays)
{
    struct artifact_set set;
    cleanup_manifest struct manifest m = { 0 };
    struct object_store *store = open_store();
    cr_expect_eq(take(&set, &set), -ERR_PROTOCOL);
    cr_assert_eq(node_artifacts_store(&set, store, NULL, NULL, &m, &err), 0, "%s", err.text);
    cr_expect(m.truncated);
    cr_expect(m.files[0].stored);
    object_store_free(store);
}

Test(node_artifacts, no_pattern_asks_for_nothing)
{
    struct artifact_set set;
    cleanup_manifest struct manifest m = { 0 };
    cr_assert_eq(node_artifacts_take(&s, -1, -1, NULL, 0, dir, &set, &err), 0);
    cr_assert_eq(node_artifacts_store(&set, NULL, NULL, NULL, &m, &err), 0);
    cr_expect_eq(m.n, 0u);
    cr_expect_eq(m.unmatched_len, 0u);
}
