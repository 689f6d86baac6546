/* What is to be sent: a few pieces and very many come out as the same bytes in the same order. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "worker/guest_msgs.h"

static struct err err;

struct got {
    int fd;
    int files, folders, links;
    uint64_t bytes;
    bool in_order;
};

static void *receive(void *arg)
{
    struct got *g = arg;
    struct frame_parser parser;
    struct frame f;
    struct err e;
    frame_parser_init(&parser);
    g->in_order = true;
    for (;;) {
        size_t room;
        uint8_t *space = frame_parser_space(&parser, &room);
        ssize_t n = recv(g->fd, space, room, 0);
        if (n <= 0) {
            break;
        }
        frame_parser_filled(&parser, (size_t)n);
        while (frame_parser_next(&parser, &f, &e) > 0) {
            guest_File m;
            if (f.type == FRAME_FILE && frame_decode(&f, guest_File_fields, &m, &e) == 0) {
                char want[16];
                (void)snprintf(want, sizeof want, "%05d", g->files++);
                g->in_order = g->in_order && memcmp(m.path, want, 5) == 0;
                g->folders += m.folder;
                g->links += m.target.size == 400 && m.target.bytes[399] == 't';
            }
            g->bytes += f.type == FRAME_FILE_DATA ? f.len : 0;
        }
    }
    frame_parser_done(&parser);
    return NULL;
}

/* The most that an archive may bring, with the longest names. */
Test(outq, fifty_thousand_files, .timeout = 120)
{
    enum { N = 50000 };
    static char target[401];
    struct job_file *files = calloc(N, sizeof *files);
    memset(target, 't', 400);
    for (int i = 0; i < N; i++) {
        files[i].path = malloc(401);
        (void)snprintf(files[i].path, 401, "%05d", i);
        memset(files[i].path + 5, 'p', 395);
        files[i].path[400] = '\0';
        files[i].target = i % 2 ? target : NULL;
        files[i].folder = i % 100 == 0;
        if (i % 2 == 0 && !files[i].folder) {
            files[i].content = (struct bytes){ .data = target, .len = 4 };
        }
    }
    int fds[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    struct got got = { .fd = fds[1] };
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, receive, &got), 0);
    struct outq q;
    outq_init(&q);
    for (int round = 0; round < 2; round++) {
        got.files = 0;
        for (int i = 0; i < (round ? 3 : N); i++) {
            cr_assert_eq(guest_queue_file(&q, &files[i], &err), 0, "%s", err.text);
        }
        while (!outq_empty(&q)) {
            cr_assert_eq(outq_flush(&q, fds[0], &err), 0, "%s", err.text);
            sleep_ms(1);
        }
        cr_expect_eq(q.n_arenas, 1, "what it had grown by is given back");
        if (round == 0) { /* all of it must have come before files is counted anew */
            for (int i = 0; i < 30000 && __atomic_load_n(&got.files, __ATOMIC_RELAXED) < N; i++) {
                sleep_ms(1);
            }
        }
    }
    (void)shutdown(fds[0], SHUT_WR);
    (void)pthread_join(thread, NULL);
    cr_expect(got.in_order);
    cr_expect_eq(got.files, 3);
    cr_expect_eq(got.folders, N / 100 + 1);
    cr_expect_eq(got.links, N / 2 + 1);
    cr_expect_eq(got.bytes, (uint64_t)(N / 2 - N / 100 + 1) * 4);
    outq_done(&q);
    for (int i = 0; i < N; i++) {
        free(files[i].path);
    }
    free(files);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

Test(outq, raw_data_over_one_arena_of_headers, .timeout = 120)
{
    struct outq q;
    outq_init(&q);
    char byte = 'x';
    int rc = 0, n = 0;
    for (; n < OUTQ_PIECES_MAX && (rc = outq_raw(&q, FRAME_FILE_DATA, &byte, 1, &err)) == 0; n++) {
    }
    cr_expect_eq(rc, -ERR_TOO_LARGE);
    cr_expect_eq(n, OUTQ_PIECES_MAX / 2);
    cr_expect_eq(q.queued, (uint64_t)n * (FRAME_HEADER_BYTES + 1));
    outq_reset(&q);
    cr_expect(outq_empty(&q));
    outq_done(&q);
}
