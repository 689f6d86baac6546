/* The collector on a folder of this machine: files that change under it, a host that reads slowly.
 * What a job can lay there is tested in a real machine, tests/e2e/guest_artifacts.py. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/collect.h"

#define FILE_BYTES 3000000

static char dir[64];
static int work_fd, host_fd;
static struct channel ch;
static struct collect c;
static struct frame_parser host;
static struct err err;

static void start(const char *globs, size_t n)
{
    static uint8_t out[FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX];
    static guest_Collect ask;
    ask = (guest_Collect){
        .run = 7, .files_max = 100, .file_bytes_max = 4 << 20, .total_bytes_max = 8 << 20
    };
    ask.globs.size = (pb_size_t)n;
    memcpy(ask.globs.bytes, globs, n);
    int len = frame_encode(out, sizeof out, FRAME_COLLECT, guest_Collect_fields, &ask, &err);
    cr_assert_gt(len, 0);
    struct frame f = { .type = FRAME_COLLECT,
                       .payload = out + FRAME_HEADER_BYTES,
                       .len = (size_t)len - FRAME_HEADER_BYTES };
    cr_assert_eq(collect_start(&c, work_fd, &f, &err), 0, "%s", err.text);
}

static void setup(void)
{
    (void)snprintf(dir, sizeof dir, "/tmp/collect-XXXXXX");
    cr_assert(mkdtemp(dir));
    work_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int pair[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    host_fd = pair[0];
    cr_assert_eq(channel_init(&ch, pair[1], &err), 0);
    ch.connected = true;
    frame_parser_init(&host);
    collect_init(&c);
}

static void done(void)
{
    char command[128];
    collect_drop(&c);
    (void)snprintf(command, sizeof command, "rm -rf %s", dir);
    cr_assert_eq(system(command), 0);
    (void)close(work_fd);
    (void)close(host_fd);
    (void)close(ch.fd);
    (void)close(ch.epoll_fd);
    free(ch.out);
    frame_parser_done(&ch.in);
    frame_parser_done(&host);
}

TestSuite(collect, .init = setup, .fini = done, .timeout = 30);

static int make_file(const char *name, size_t n, char fill)
{
    int fd = openat(work_fd, name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    char *data = malloc(n ? n : 1);
    memset(data, fill, n);
    cr_assert_eq(write(fd, data, n), (ssize_t)n);
    free(data);
    return fd;
}

struct seen {
    int artifacts, ends, collected;
    uint64_t bytes, zeros;
    guest_Artifact last;
    guest_ArtifactEnd end;
    guest_Collected told;
};

static void take(struct seen *s, const struct frame *f)
{
    switch (f->type) {
    case FRAME_ARTIFACT:
        cr_assert_eq(frame_decode(f, guest_Artifact_fields, &s->last, &err), 0);
        s->artifacts++;
        break;
    case FRAME_ARTIFACT_DATA:
        s->bytes += f->len;
        for (size_t i = 0; i < f->len; i++) {
            s->zeros += f->payload[i] == 0;
        }
        break;
    case FRAME_ARTIFACT_END:
        cr_assert_eq(frame_decode(f, guest_ArtifactEnd_fields, &s->end, &err), 0);
        s->ends++;
        break;
    case FRAME_COLLECTED:
        cr_assert_eq(frame_decode(f, guest_Collected_fields, &s->told, &err), 0);
        s->collected++;
        break;
    default:
        cr_assert_fail("frame %d", (int)f->type);
    }
}

/* The loop of the agent and of a host, in turns, until COLLECTED. */
static void drain(struct seen *s)
{
    while (s->collected == 0) {
        collect_work(&c, &ch);
        cr_assert_eq(channel_flush(&ch), 0);
        size_t room;
        uint8_t *to = frame_parser_space(&host, &room);
        ssize_t n = recv(host_fd, to, room, 0);
        cr_assert_gt(n, 0);
        frame_parser_filled(&host, (size_t)n);
        struct frame f;
        int rc;
        while ((rc = frame_parser_next(&host, &f, &err)) > 0) {
            take(s, &f);
        }
        cr_assert_eq(rc, 0);
    }
}

Test(collect, shrinks_while_read)
{
    int fd = make_file("f", FILE_BYTES, 'x');
    struct seen s = { 0 };
    start("*", 2);
    collect_work(&c, &ch); /* announced, and as much as the channel holds */
    cr_assert(c.in_file && c.file_left > FILE_BYTES / 2);
    cr_assert_eq(ftruncate(fd, FILE_BYTES / 2), 0);
    drain(&s);
    cr_expect_eq(s.bytes, FILE_BYTES);
    cr_expect_eq(s.zeros, FILE_BYTES / 2);
    cr_expect_eq(s.end.change, guest_ArtifactChange_CHANGE_SHRANK);
    cr_expect_eq(s.told.bytes, FILE_BYTES);
    (void)close(fd);
}

Test(collect, grows_while_read)
{
    int fd = make_file("f", FILE_BYTES, 'x');
    struct seen s = { 0 };
    start("*", 2);
    collect_work(&c, &ch);
    cr_assert_eq(write(fd, "more", 4), 4);
    drain(&s);
    cr_expect_eq(s.bytes, FILE_BYTES);
    cr_expect_eq(s.zeros, 0);
    cr_expect_eq(s.end.change, guest_ArtifactChange_CHANGE_GREW);
    (void)close(fd);
}

Test(collect, removed_while_read_is_whole)
{
    (void)close(make_file("f", FILE_BYTES, 'x'));
    struct seen s = { 0 };
    start("*", 2);
    collect_work(&c, &ch);
    cr_assert_eq(unlinkat(work_fd, "f", 0), 0);
    drain(&s);
    cr_expect_eq(s.zeros, 0);
    cr_expect_eq(s.end.change, guest_ArtifactChange_CHANGE_NONE);
}

Test(collect, a_slow_host_stops_the_walk_and_not_the_agent)
{
    (void)close(make_file("f", FILE_BYTES, 'x'));
    start("*", 2);
    for (int i = 0; i < 50; i++) { /* nobody reads: each call comes back */
        collect_work(&c, &ch);
        cr_assert_eq(channel_flush(&ch), 0);
    }
    cr_expect(c.active && c.file_left > 0);
    struct seen s = { 0 };
    drain(&s);
    cr_expect_eq(s.bytes, FILE_BYTES);
    cr_expect(!c.active);
}

Test(collect, steps_are_bounded)
{
    char name[16];
    for (int i = 0; i < 3 * COLLECT_STEPS_MAX; i++) {
        (void)snprintf(name, sizeof name, "n%d", i);
        (void)close(make_file(name, 0, 0));
    }
    start("other", 6);
    collect_work(&c, &ch);
    cr_expect(c.active && channel_idle(&ch));
    cr_expect_eq(c.dirs[0].next, (size_t)COLLECT_STEPS_MAX);
    int turns = 1;
    for (; c.active; turns++) {
        collect_work(&c, &ch);
    }
    cr_expect_eq(turns, 4);
    struct seen s = { 0 };
    drain(&s);
    cr_expect_eq(s.told.unmatched, 1);
    cr_expect_eq(s.artifacts, 0);
}

Test(collect, depth_at_the_maximum_and_one_more)
{
    char path[4 * COLLECT_DEPTH_MAX] = "d";
    for (int i = 1; i <= COLLECT_DEPTH_MAX; i++) {
        cr_assert_eq(mkdirat(work_fd, path, 0755), 0);
        size_t n = strlen(path);
        if (i >= COLLECT_DEPTH_MAX - 1) { /* the work folder is the first of them */
            char file[sizeof path + 4];
            (void)snprintf(file, sizeof file, "%s/f", path);
            (void)close(make_file(file, 1, 'x'));
        }
        (void)snprintf(path + n, sizeof path - n, "/d");
    }
    struct seen s = { 0 };
    start("**", 3);
    drain(&s);
    cr_expect_eq(s.artifacts, 1);
    cr_expect(s.told.truncated);
    cr_expect_eq(s.told.left_out, 1);
}

Test(collect, dropped_in_the_middle_leaves_nothing)
{
    cr_assert_eq(mkdirat(work_fd, "a", 0755), 0);
    (void)close(make_file("a/f", FILE_BYTES, 'x'));
    start("**", 3);
    collect_work(&c, &ch);
    cr_assert(c.active && c.depth == 2);
    int before = dup(0);
    collect_drop(&c);
    cr_expect(!c.active && c.depth == 0 && c.names_held == 0);
    int after = dup(0); /* fds were given back */
    cr_expect_lt(after, before);
    (void)close(before);
    (void)close(after);
    start("a/f", 4);
    ch.out_start = ch.out_end = 0;
    struct seen s = { 0 };
    drain(&s);
    cr_expect_eq(s.bytes, FILE_BYTES);
}
