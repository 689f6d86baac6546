/* Receiving artifacts from guests that are played by a thread: good, slow, dying and hostile ones.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/support/fake_guest.h"
#include "worker/artifacts.h"

/* Criterion 2.4.1's runner loses 48 bytes of its own when a test takes seconds. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libcriterion";
}

#define RUN 3
#define GLOBS "out/**\0*.log\0none"
static const struct artifact_limits small = { .files_max = 5,
                                              .file_bytes_max = 100000,
                                              .total_bytes_max = 150000 };

struct played {
    struct artifact_set set;
    struct frame_parser parser;
    struct outq out;
    struct err err;
    int rc;
};

static void play(struct played *p, void (*script)(struct fake_guest *g, void *arg), void *arg,
                 int64_t timeout_ms, int abort_fd)
{
    *p = (struct played){ 0 };
    artifacts_init(&p->set);
    frame_parser_init(&p->parser);
    outq_init(&p->out);
    struct fake_guest *g = fake_guest_start(script, arg);
    struct artifacts_job job = { .channel_fd = g->host_fd,
                                 .abort_fd = abort_fd,
                                 .parser = &p->parser,
                                 .out = &p->out,
                                 .run = RUN,
                                 .globs = GLOBS,
                                 .globs_len = sizeof GLOBS,
                                 .limits = small,
                                 .timeout_ms = timeout_ms,
                                 .spool_dir = "/tmp" };
    p->rc = artifacts_receive(&job, &p->set, &p->err);
    fake_guest_join(g);
}

static void done(struct played *p)
{
    artifacts_done(&p->set);
    frame_parser_done(&p->parser);
    outq_done(&p->out);
}

/* ---- what a guest says ---- */

static guest_Artifact message(const char *path, guest_ArtifactType type, uint64_t size)
{
    guest_Artifact m = { .run = RUN, .mode = 0640, .type = type, .size = size };
    m.path.size = (pb_size_t)strlen(path);
    memcpy(m.path.bytes, path, m.path.size);
    return m;
}

static void tell(struct fake_guest *g, const guest_Artifact *m)
{
    (void)guest_send(g, FRAME_ARTIFACT, guest_Artifact_fields, m);
}

static void announce(struct fake_guest *g, const char *path, uint64_t size)
{
    guest_Artifact m = message(path, guest_ArtifactType_ARTIFACT_FILE, size);
    tell(g, &m);
}

static void data(struct fake_guest *g, size_t n, char fill)
{
    static __thread char piece[FRAME_PAYLOAD_MAX];
    memset(piece, fill, sizeof piece);
    while (n > 0) {
        uint8_t header[FRAME_HEADER_BYTES];
        size_t len = n < sizeof piece ? n : sizeof piece;
        frame_header(header, FRAME_ARTIFACT_DATA, 0, len);
        (void)guest_send_raw(g, header, sizeof header);
        (void)guest_send_raw(g, piece, len);
        n -= len;
    }
}

static void end(struct fake_guest *g, guest_ArtifactChange change)
{
    guest_ArtifactEnd m = { .run = RUN, .change = change };
    (void)guest_send(g, FRAME_ARTIFACT_END, guest_ArtifactEnd_fields, &m);
}

static void file(struct fake_guest *g, const char *path, size_t n, char fill)
{
    announce(g, path, n);
    data(g, n, fill);
    end(g, guest_ArtifactChange_CHANGE_NONE);
}

static void skipped(struct fake_guest *g, const char *path, uint64_t size,
                    guest_ArtifactSkipped why)
{
    guest_Artifact m = message(path, guest_ArtifactType_ARTIFACT_FILE, size);
    m.skipped = why;
    tell(g, &m);
}

static void link_to(struct fake_guest *g, const char *path, const char *target)
{
    guest_Artifact m = message(path, guest_ArtifactType_ARTIFACT_LINK, 0);
    m.target.size = (pb_size_t)strlen(target);
    memcpy(m.target.bytes, target, m.target.size);
    tell(g, &m);
}

static void collected(struct fake_guest *g, uint32_t files)
{
    guest_Collected m = { .run = RUN, .files = files, .unmatched = ~0ull };
    (void)guest_send(g, FRAME_COLLECTED, guest_Collected_fields, &m);
}

static bool asked(struct fake_guest *g)
{
    struct frame f;
    return guest_recv_type(g, FRAME_COLLECT, &f);
}

/* ---- good guests ---- */

static guest_Collect question;

static void good(struct fake_guest *g, void *arg)
{
    (void)arg;
    struct frame f;
    struct err err;
    if (!guest_recv_type(g, FRAME_COLLECT, &f) ||
        frame_decode(&f, guest_Collect_fields, &question, &err) < 0) {
        return;
    }
    file(g, "a.log", 3, 'a');
    link_to(g, "out/l", "/etc/passwd");
    file(g, "out/z", 70000, 'z');
    skipped(g, "out/zz", 1ull << 40, guest_ArtifactSkipped_SKIPPED_TOO_LARGE);
    announce(g, "out/zzz", 0);
    end(g, guest_ArtifactChange_CHANGE_GREW);
    collected(g, 5);
}

static int put_calls;
static int put_check(void *arg, const struct artifact_object *o, struct err *err)
{
    static char content[100000];
    unsigned char digest[crypto_hash_sha256_BYTES];
    char hex[2 * sizeof digest + 1];
    int *fail_at = arg;
    if (++put_calls == *fail_at) {
        return err_set(err, ERR_UNAVAILABLE, "store is away");
    }
    cr_assert_leq(o->size, sizeof content);
    cr_assert_eq(read(o->fd, content, o->size), (ssize_t)o->size);
    (void)crypto_hash_sha256(digest, (const unsigned char *)content, o->size);
    (void)sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
    cr_expect_str_eq(hex, o->sha256);
    return 0;
}

Test(artifacts, good_guest, .timeout = 20)
{
    struct played p;
    play(&p, good, NULL, 10000, -1);
    cr_assert_eq(p.rc, 0, "%s", p.err.text);
    cr_expect_eq(question.run, RUN);
    cr_expect_eq(question.globs.size, sizeof GLOBS);
    cr_expect_eq(question.files_max, 5);
    cr_expect_eq(question.total_bytes_max, 150000);
    struct manifest *m = &p.set.manifest;
    cr_assert_eq(m->n, 5);
    cr_expect_str_eq(m->files[0].sha256,
                     "9834876dcfb05cb167a5c24953eba58c4ac89b1adf57f28f2f9d09af107ee8f0");
    cr_expect_eq(m->files[0].mode, 0640);
    cr_expect(m->files[1].stored && m->files[1].type == ARTIFACT_LINK);
    cr_expect_str_eq(m->files[1].target, "/etc/passwd");
    cr_expect_eq(m->files[3].reason, ARTIFACT_TOO_LARGE);
    cr_expect_eq(m->files[3].size, 1ull << 40);
    cr_expect_eq(m->files[4].change, ARTIFACT_GREW);
    cr_expect_eq(m->unmatched_len, 5); /* by its own account, whatever the guest says */
    cr_expect_str_eq(m->unmatched, "none");
    cr_expect(!m->truncated);

    int fail_at = 2;
    struct err err = { 0 };
    put_calls = 0;
    cr_expect_eq(artifacts_store(&p.set, put_check, &fail_at, &err), -ERR_UNAVAILABLE);
    cr_expect_eq(put_calls, 2);
    cr_expect(m->files[0].stored);
    cr_expect_eq(m->files[2].reason, ARTIFACT_STORE);
    cr_expect_eq(m->files[4].reason, ARTIFACT_STORE);
    char *json = manifest_json(m);
    struct manifest back = { 0 };
    cr_expect_eq(manifest_parse(json, strlen(json), &back, &err), 0, "%s", err.text);
    free(json);
    manifest_done(&back);
    fail_at = 0; /* the store is back: only what is missing is put */
    cr_expect_eq(artifacts_store(&p.set, put_check, &fail_at, &err), 0);
    cr_expect_eq(put_calls, 4);
    cr_expect(m->files[2].stored && m->files[4].stored && !m->files[3].stored);
    cr_expect_eq(m->bytes_stored, 70003);
    done(&p);
}

static void nothing(struct fake_guest *g, void *arg)
{
    (void)arg;
    (void)asked(g);
    collected(g, 0);
}

Test(artifacts, nothing_is_no_failure, .timeout = 20)
{
    struct played p;
    play(&p, nothing, NULL, 10000, -1);
    cr_assert_eq(p.rc, 0, "%s", p.err.text);
    cr_expect_eq(p.set.manifest.n, 0);
    cr_expect_eq(p.set.manifest.unmatched_len, sizeof GLOBS);
    cr_expect_eq(memcmp(p.set.manifest.unmatched, GLOBS, sizeof GLOBS), 0);
    done(&p);
}

/* ---- guests that end in the middle ---- */

static void dies(struct fake_guest *g, void *arg)
{
    (void)arg;
    (void)asked(g);
    file(g, "out/a", 1000, 'a');
    announce(g, "out/b", 5000);
    data(g, 4999, 'b');
}

Test(artifacts, what_had_come_stays, .timeout = 20)
{
    struct played p;
    play(&p, dies, NULL, 10000, -1);
    cr_expect_eq(p.rc, -ERR_CLOSED);
    cr_assert_eq(p.set.manifest.n, 2);
    cr_expect(p.set.manifest.truncated);
    cr_expect_eq(p.set.manifest.files[0].reason, ARTIFACT_OK);
    cr_expect_eq(p.set.manifest.files[1].reason, ARTIFACT_LOST);
    cr_expect_str_eq(p.set.manifest.files[1].sha256, "");
    int fail_at = 0;
    struct err err = { 0 };
    put_calls = 0;
    cr_expect_eq(artifacts_store(&p.set, put_check, &fail_at, &err), 0);
    cr_expect_eq(put_calls, 1);
    cr_expect(p.set.manifest.files[0].stored && !p.set.manifest.files[1].stored);
    done(&p);
}

static void silent(struct fake_guest *g, void *arg)
{
    struct frame f;
    (void)arg;
    (void)asked(g);
    announce(g, "out/b", 5000);
    (void)guest_recv(g, &f);
}

Test(artifacts, silence_and_giving_up, .timeout = 20)
{
    struct played p;
    play(&p, silent, NULL, 200, -1);
    cr_expect_eq(p.rc, -ERR_TIMEOUT, "%s", p.err.text);
    cr_expect_eq(p.set.manifest.files[0].reason, ARTIFACT_LOST);
    done(&p);
    int abort_fd = eventfd(1, EFD_CLOEXEC);
    play(&p, silent, NULL, 10000, abort_fd);
    cr_expect_eq(p.rc, -ERR_STALE, "%s", p.err.text);
    done(&p);
    (void)close(abort_fd);
}

static void trickles(struct fake_guest *g, void *arg)
{
    (void)arg;
    (void)asked(g);
    announce(g, "out/b", 50000);
    uint8_t one[FRAME_HEADER_BYTES + 1] = { 0 };
    frame_header(one, FRAME_ARTIFACT_DATA, 0, 1);
    while (guest_send_raw(g, one, sizeof one)) {
        (void)usleep(10000);
    }
}

Test(artifacts, a_trickle_ends_with_the_time, .timeout = 100)
{
    struct played p;
    play(&p, trickles, NULL, 100, -1);
    cr_expect_eq(p.rc, -ERR_TIMEOUT, "%s", p.err.text);
    done(&p);
}

/* ---- hostile guests ---- */

enum trick {
    TRICK_ABSOLUTE,
    TRICK_UP,
    TRICK_UP_INSIDE,
    TRICK_TWICE,
    TRICK_ORDER,
    TRICK_BELOW_FILE,
    TRICK_BELOW_LINK,
    TRICK_NOT_ASKED,
    TRICK_NUL,
    TRICK_EMPTY,
    TRICK_TOO_MANY,
    TRICK_TOO_LARGE,
    TRICK_TOTAL,
    TRICK_HUGE,
    TRICK_LONG_DATA,
    TRICK_NO_DATA_ASKED,
    TRICK_EARLY_END,
    TRICK_EMPTY_DATA,
    TRICK_NO_END,
    TRICK_OTHER_RUN,
    TRICK_COUNT,
    TRICK_TYPE,
    TRICK_SKIPPED,
    TRICK_CHANGE,
    TRICK_TARGET_NUL,
    TRICK_OUTPUT,
    TRICK_ERROR,
    TRICK_HOST_FRAME,
    TRICK_BAD_FRAME,
    TRICKS
};

static const char *const trick_words[TRICKS] = {
    [TRICK_ABSOLUTE] = "not asked for",
    [TRICK_UP] = "not asked for",
    [TRICK_UP_INSIDE] = "must be relative",
    [TRICK_TWICE] = "twice",
    [TRICK_ORDER] = "not in order",
    [TRICK_BELOW_FILE] = "below",
    [TRICK_BELOW_LINK] = "below",
    [TRICK_NOT_ASKED] = "not asked for",
    [TRICK_NUL] = "must be relative",
    [TRICK_EMPTY] = "not asked for",
    [TRICK_TOO_MANY] = "more files",
    [TRICK_TOO_LARGE] = "more bytes",
    [TRICK_TOTAL] = "more bytes",
    [TRICK_HUGE] = "more bytes",
    [TRICK_LONG_DATA] = "not announced",
    [TRICK_NO_DATA_ASKED] = "frame of type 17 instead of 16",
    [TRICK_EARLY_END] = "frame of type 18 instead of 17",
    [TRICK_EMPTY_DATA] = "not announced",
    [TRICK_NO_END] = "frame of type 19 instead of 18",
    [TRICK_OTHER_RUN] = "another run",
    [TRICK_COUNT] = "counted",
    [TRICK_TYPE] = "type that is not known",
    [TRICK_SKIPPED] = "no reason known",
    [TRICK_CHANGE] = "an end that is not one",
    [TRICK_TARGET_NUL] = "NUL",
    [TRICK_OUTPUT] = "frame of type 11",
    [TRICK_ERROR] = "collect: what?",
    [TRICK_HOST_FRAME] = "frame of type 15",
    [TRICK_BAD_FRAME] = "bad header",
};

static void tricks(struct fake_guest *g, void *arg)
{
    guest_Artifact m = message("out/m", guest_ArtifactType_ARTIFACT_FILE, 0);
    guest_GuestError e = { .what = "collect", .text = "what?" };
    uint8_t junk[64];
    char name[16];
    if (!asked(g)) {
        return;
    }
    switch (*(const enum trick *)arg) {
    case TRICK_ABSOLUTE:
        announce(g, "/out/x.log", 1);
        break;
    case TRICK_UP:
        announce(g, "../x.log", 1);
        break;
    case TRICK_UP_INSIDE:
        announce(g, "out/../../x", 1);
        break;
    case TRICK_TWICE:
        file(g, "out/a", 1, 'a');
        announce(g, "out/a", 1);
        break;
    case TRICK_ORDER:
        file(g, "out/b", 1, 'a');
        announce(g, "out/a", 1);
        break;
    case TRICK_BELOW_FILE:
        file(g, "out/a", 1, 'a');
        announce(g, "out/a/b", 1);
        break;
    case TRICK_BELOW_LINK:
        link_to(g, "out/a", "/etc");
        announce(g, "out/a/b", 1);
        break;
    case TRICK_NOT_ASKED:
        announce(g, "secret", 1);
        break;
    case TRICK_NUL:
        m.path.bytes[4] = 0;
        tell(g, &m);
        break;
    case TRICK_EMPTY:
        m.path.size = 0;
        tell(g, &m);
        break;
    case TRICK_TOO_MANY:
        for (int i = 0; i < 6; i++) {
            (void)snprintf(name, sizeof name, "out/%d", i);
            file(g, name, 0, 'x');
        }
        break;
    case TRICK_TOO_LARGE:
        announce(g, "out/a", small.file_bytes_max + 1);
        break;
    case TRICK_TOTAL:
        file(g, "out/a", 100000, 'a');
        announce(g, "out/b", 50001);
        break;
    case TRICK_HUGE:
        announce(g, "out/a", UINT64_MAX);
        break;
    case TRICK_LONG_DATA:
        announce(g, "out/a", 10);
        data(g, 11, 'x');
        break;
    case TRICK_NO_DATA_ASKED:
        skipped(g, "out/a", 10, guest_ArtifactSkipped_SKIPPED_TOTAL);
        data(g, 10, 'x');
        break;
    case TRICK_EARLY_END:
        announce(g, "out/a", 10);
        end(g, guest_ArtifactChange_CHANGE_NONE);
        break;
    case TRICK_EMPTY_DATA:
        announce(g, "out/a", 10);
        frame_header(junk, FRAME_ARTIFACT_DATA, 0, 0);
        (void)guest_send_raw(g, junk, FRAME_HEADER_BYTES);
        break;
    case TRICK_NO_END:
        announce(g, "out/a", 10);
        data(g, 10, 'x');
        collected(g, 1);
        break;
    case TRICK_OTHER_RUN:
        m.run = RUN + 1;
        tell(g, &m);
        break;
    case TRICK_COUNT:
        file(g, "out/a", 1, 'a');
        collected(g, 2);
        break;
    case TRICK_TYPE:
        m.type = (guest_ArtifactType)9;
        tell(g, &m);
        break;
    case TRICK_SKIPPED:
        m.skipped = (guest_ArtifactSkipped)77;
        tell(g, &m);
        break;
    case TRICK_CHANGE:
        announce(g, "out/a", 0);
        end(g, (guest_ArtifactChange)99);
        break;
    case TRICK_TARGET_NUL:
        m.type = guest_ArtifactType_ARTIFACT_LINK;
        m.target.size = 3;
        memcpy(m.target.bytes, "a\0b", 3);
        tell(g, &m);
        break;
    case TRICK_OUTPUT:
        (void)guest_send_output(g, 1, "more", 4);
        break;
    case TRICK_ERROR:
        (void)guest_send(g, FRAME_ERROR, guest_GuestError_fields, &e);
        break;
    case TRICK_HOST_FRAME:
        frame_header(junk, FRAME_COLLECT, 0, 0);
        (void)guest_send_raw(g, junk, FRAME_HEADER_BYTES);
        break;
    case TRICK_BAD_FRAME:
        memset(junk, 0xff, sizeof junk);
        (void)guest_send_raw(g, junk, sizeof junk);
        break;
    case TRICKS:
        break;
    }
}

Test(artifacts, hostile_guests, .timeout = 60)
{
    for (enum trick t = 0; t < TRICKS; t++) {
        struct played p;
        play(&p, tricks, &t, 10000, -1);
        cr_expect_eq(p.rc, -ERR_PROTOCOL, "trick %d: %d %s", (int)t, p.rc, p.err.text);
        cr_expect(strstr(p.err.text, trick_words[t]), "trick %d: %s", (int)t, p.err.text);
        cr_expect(p.set.manifest.truncated);
        struct stat st;
        cr_expect(fstat(p.set.spool_fd, &st) == 0 && st.st_size <= (off_t)small.total_bytes_max);
        int fail_at = 0;
        struct err err = { 0 };
        cr_expect_eq(artifacts_store(&p.set, put_check, &fail_at, &err), 0);
        char *json = manifest_json(&p.set.manifest); /* whatever it is, it can be stored and read */
        struct manifest back = { 0 };
        cr_expect_eq(manifest_parse(json, strlen(json), &back, &err), 0, "trick %d: %s", (int)t,
                     err.text);
        manifest_done(&back);
        free(json);
        done(&p);
    }
}

static void floods(struct fake_guest *g, void *arg)
{
    (void)arg;
    char junk[4096];
    (void)asked(g);
    announce(g, "out/a", 100000);
    memset(junk, 'x', sizeof junk);
    for (;;) { /* data of the right form, for ever */
        uint8_t header[FRAME_HEADER_BYTES];
        frame_header(header, FRAME_ARTIFACT_DATA, 0, sizeof junk);
        if (!guest_send_raw(g, header, sizeof header) || !guest_send_raw(g, junk, sizeof junk)) {
            return;
        }
    }
}

Test(artifacts, a_flood_ends, .timeout = 60)
{
    struct played p;
    play(&p, floods, NULL, 30000, -1);
    cr_expect_eq(p.rc, -ERR_PROTOCOL, "%s", p.err.text);
    done(&p);
}

static void ignores_input(struct fake_guest *g, void *arg)
{
    (void)arg;
    (void)usleep(1000);
    (void)g;
    collected(g, 0); /* before it was asked */
}

/* What the session left in the queue goes out first, and is not cut. */
static void after_stdin(struct fake_guest *g, void *arg)
{
    uint64_t *had = arg;
    struct frame f;
    while (guest_recv(g, &f) && f.type != FRAME_COLLECT) {
        *had += f.type == FRAME_STDIN ? f.len : 0;
    }
    collected(g, 0);
}

Test(artifacts, behind_stdin_that_nobody_read, .timeout = 20)
{
    static char input[300000];
    uint64_t had = 0;
    struct played p = { 0 };
    artifacts_init(&p.set);
    frame_parser_init(&p.parser);
    outq_init(&p.out);
    cr_assert_eq(outq_raw(&p.out, FRAME_STDIN, input, sizeof input, &p.err), 0);
    struct fake_guest *g = fake_guest_start(after_stdin, &had);
    struct artifacts_job job = { .channel_fd = g->host_fd,
                                 .abort_fd = -1,
                                 .parser = &p.parser,
                                 .out = &p.out,
                                 .run = RUN,
                                 .globs = GLOBS,
                                 .globs_len = sizeof GLOBS,
                                 .limits = small,
                                 .timeout_ms = 10000,
                                 .spool_dir = "/tmp" };
    cr_expect_eq(artifacts_receive(&job, &p.set, &p.err), 0, "%s", p.err.text);
    fake_guest_join(g);
    cr_expect_eq(had, sizeof input);
    done(&p);
}

Test(artifacts, spool_that_cannot_be, .timeout = 20)
{
    struct played p = { 0 };
    artifacts_init(&p.set);
    frame_parser_init(&p.parser);
    outq_init(&p.out);
    struct fake_guest *g = fake_guest_start(ignores_input, NULL);
    struct artifacts_job job = { .channel_fd = g->host_fd,
                                 .abort_fd = -1,
                                 .parser = &p.parser,
                                 .out = &p.out,
                                 .run = RUN,
                                 .globs = GLOBS,
                                 .globs_len = sizeof GLOBS,
                                 .limits = small,
                                 .timeout_ms = 10000,
                                 .spool_dir = "/nowhere/at/all" };
    cr_expect_eq(artifacts_receive(&job, &p.set, &p.err), -ERR_SYS, "%s", p.err.text);
    cr_expect(strstr(p.err.text, "/nowhere/at/all"), "%s", p.err.text);
    fake_guest_join(g);
    done(&p);
}
