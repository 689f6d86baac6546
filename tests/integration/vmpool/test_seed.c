/* The live copy of a process with threads (vmpool/seed_preload.c), on a program of ours instead of
 * QEMU. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/vmpool/preloaded.h"
#include "vmpool/seed_wire.h"

#define ANSWER_MS 60000
#define BUSY_TRIES 20
#define COPIES 20
#define CHAIN 24

struct target {
    pid_t pid;
    int ask, hear, control;
};

static void pair(int type, int fds[2])
{
    cr_assert_eq(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds), 0);
}

static void start(struct target *t)
{
    int ask[2], hear[2], control[2];
    pair(SOCK_STREAM, ask);
    pair(SOCK_SEQPACKET, hear);
    pair(SOCK_SEQPACKET, control);
    const int from[] = { ask[1], hear[1], control[1] }, to[] = { 4, 5, SEED_FD };
    t->pid = preloaded_start(BROOD_BINARY_DIR "/tests/bin/brood-seed-target", SEED_ENV, from, to);
    (void)close(ask[1]);
    (void)close(hear[1]);
    (void)close(control[1]);
    t->ask = ask[0];
    t->hear = hear[0];
    t->control = control[0];
}

static void stop_asking(struct target *t)
{
    (void)close(t->ask);
    (void)close(t->hear);
    (void)close(t->control);
}

static void stop(struct target *t)
{
    (void)kill(t->pid, SIGKILL);
    (void)waitpid(t->pid, NULL, 0);
    stop_asking(t);
}

static void get(int fd, void *to, size_t room, size_t *ret_n)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    cr_assert_eq(poll(&p, 1, ANSWER_MS), 1, "no answer");
    ssize_t n = recv(fd, to, room, 0);
    cr_assert_gt(n, 0);
    *ret_n = (size_t)n;
}

/* Ask the worker thread; its answer must come from pid and tid and be its n-th. */
static void expect(const struct target *t, int pid, int tid, int n)
{
    char want[96], text[96] = "";
    size_t len;
    cr_assert_eq(send(t->ask, "x", 1, MSG_NOSIGNAL), 1);
    get(t->hear, text, sizeof text - 1, &len);
    (void)snprintf(want, sizeof want, "pid %d tid %d asked %d own 42 ok", pid, tid, n);
    cr_assert_str_eq(text, want);
}

/* The thread that is neither the first nor the library's. */
static int worker_tid(int pid)
{
    char path[64];
    int found = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    struct dirent *e;
    while (dir && (e = readdir(dir))) {
        int tid = (int)strtol(e->d_name, NULL, 10);
        found = tid > found ? tid : found; /* made last */
    }
    (void)closedir(dir);
    return found;
}

static void ask_copy(const struct target *t, int vcpu_tid, struct target *ret_copy,
                     struct seed_reply *ret_reply)
{
    int ask[2], hear[2], control_of_copy[2];
    struct seed_request request = { .kind = SEED_COPY, .vcpu_tid = vcpu_tid };
    pair(SOCK_STREAM, ask);
    pair(SOCK_SEQPACKET, hear);
    pair(SOCK_SEQPACKET, control_of_copy);
    int fds[SEED_FDS] = { 2, ask[1], hear[1], control_of_copy[1] };
    struct iovec iov = { &request, sizeof request };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof fds)];
    } control = { .bytes = { 0 } };
    struct msghdr msg = { .msg_iov = &iov,
                          .msg_iovlen = 1,
                          .msg_control = control.bytes,
                          .msg_controllen = sizeof control.bytes };
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    *c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
                           .cmsg_type = SCM_RIGHTS,
                           .cmsg_len = CMSG_LEN(sizeof fds) };
    memcpy(CMSG_DATA(c), fds, sizeof fds);
    cr_assert_eq(sendmsg(t->control, &msg, MSG_NOSIGNAL), (ssize_t)sizeof request);
    size_t n;
    get(t->control, ret_reply, sizeof *ret_reply,
        &n); /* the pidfd is dropped: closed by the kernel */
    cr_assert_eq(n, sizeof *ret_reply);
    (void)close(ask[1]);
    (void)close(hear[1]);
    (void)close(control_of_copy[1]);
    *ret_copy = (struct target){
        .pid = ret_reply->pid, .ask = ask[0], .hear = hear[0], .control = control_of_copy[0]
    };
}

/* A thread that gets no processor on a busy host is no fault. */
static void request_copy(const struct target *t, int vcpu_tid, struct target *ret_copy,
                         struct seed_reply *ret_reply)
{
    int tries = 0;
    for (;;) {
        ask_copy(t, vcpu_tid, ret_copy, ret_reply);
        if (strcmp(ret_reply->why, "a thread did not stop") != 0 || ++tries == BUSY_TRIES) {
            return;
        }
        stop_asking(ret_copy);
    }
}

Test(seed, copies_run_on_and_the_original_too, .timeout = 120)
{
    struct target t, copy[COPIES];
    struct seed_reply r[COPIES];
    start(&t);
    char text[96] = "";
    size_t n;
    cr_assert_eq(send(t.ask, "x", 1, MSG_NOSIGNAL), 1);
    get(t.hear, text, sizeof text - 1, &n);
    int tid = worker_tid(t.pid);
    for (int i = 0; i < COPIES; i++) {
        request_copy(&t, tid, &copy[i], &r[i]);
        cr_assert_gt(r[i].pid, 0, "%s", r[i].why);
        cr_assert_gt(r[i].vcpu_tid, 0);
        cr_assert_neq(r[i].vcpu_tid, tid);
        expect(&t, t.pid, tid, 2 + i); /* the original goes on where it was */
    }
    for (int i = 0; i < COPIES; i++) {
        for (int again = 0; again < 3;
             again++) { /* each from the state at its copy, apart from all others */
            expect(&copy[i], r[i].pid, r[i].vcpu_tid, 2 + i + again);
        }
    }
    /* a copy is a child of ours and can end by itself */
    int status;
    cr_assert_eq(send(copy[0].ask, "q", 1, MSG_NOSIGNAL), 1);
    cr_assert_eq(waitpid(copy[0].pid, &status, 0), copy[0].pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    /* the original's death is not theirs */
    stop(&t);
    expect(&copy[1], r[1].pid, r[1].vcpu_tid, 6);
    for (int i = 1; i < COPIES; i++) {
        stop(&copy[i]);
    }
    stop_asking(&copy[0]);
}

/* A chain: each is a copy of the one before, which goes on too. No copy is taken in a moment in
 * which a lock is held that the copy could not unlock: with so many, one would be. */
Test(seed, copies_of_copies, .timeout = 120)
{
    struct target t[CHAIN + 1];
    struct seed_reply r;
    char text[96] = "";
    size_t n;
    start(&t[0]);
    cr_assert_eq(send(t[0].ask, "x", 1, MSG_NOSIGNAL), 1);
    get(t[0].hear, text, sizeof text - 1, &n);
    int tid = worker_tid(t[0].pid);
    for (int i = 0; i < CHAIN; i++) {
        request_copy(&t[i], tid, &t[i + 1], &r);
        cr_assert_gt(r.pid, 0, "%s", r.why);
        expect(&t[i], t[i].pid, tid, 2 + i);
        tid = r.vcpu_tid;
        expect(&t[i + 1], r.pid, tid, 2 + i);
    }
    for (int i = 0; i <= CHAIN; i++) {
        stop(&t[i]);
    }
}

Test(seed, a_thread_that_is_not_there_is_reported, .timeout = 60)
{
    struct target t, copy;
    struct seed_reply r;
    start(&t);
    request_copy(&t, 1, &copy, &r);
    cr_assert_gt(r.pid, 0, "%s", r.why);
    cr_assert_eq(r.vcpu_tid, 0, "vmpool refuses such a copy");
    stop(&copy);
    stop(&t);
}

/* Ask, and hear the answer: what was asked before it has been done. */
static void tell(const struct target *t, char what)
{
    char text[96];
    size_t n;
    cr_assert_eq(send(t->ask, &what, 1, MSG_NOSIGNAL), 1);
    get(t->hear, text, sizeof text, &n);
}

/* What hinders a copy now need not hinder the next. */
Test(seed, one_that_could_not_be_copied_is_asked_again, .timeout = 120)
{
    struct target t, copy;
    struct seed_reply r;
    start(&t);
    tell(&t, 'x');
    int tid = worker_tid(t.pid);
    for (int i = 0; i < 3; i++) {
        tell(&t, 'e');
        request_copy(&t, tid, &copy, &r);
        cr_expect_eq(r.pid, 0);
        cr_expect_str_eq(r.why, "QEMU uses epoll");
        stop_asking(&copy);
        tell(&t, 'd');
        request_copy(&t, tid, &copy, &r);
        cr_assert_gt(r.pid, 0, "%s", r.why);
        expect(&copy, r.pid, r.vcpu_tid, 4 + 2 * i);
        stop(&copy);
    }
    stop(&t);
}
