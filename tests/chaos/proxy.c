/* chaos_proxy LISTEN TARGET: a Unix socket in front of another, whose connections can be cut in the
 * middle of whatever they are saying.
 *
 * A child for each connection. SIGUSR1 to the parent: every connection passes on a part of the next
 * piece from the client, and is then cut. SIGUSR2: the same with the next piece from the server, so
 * that what was asked has been done and its answer is lost. The harness stops the process group
 * (SIGSTOP) for a peer that is there and says nothing. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE 65536

static volatile sig_atomic_t cut; /* SIGUSR1 or SIGUSR2, once */

static void on_cut(int sig)
{
    cut = sig;
}

static int open_socket(const char *path, int listening)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || strlen(path) >= sizeof a.sun_path) {
        return -1;
    }
    memcpy(a.sun_path, path, strlen(path) + 1);
    if (listening) {
        (void)unlink(path);
    }
    int rc = listening ? bind(fd, (struct sockaddr *)&a, sizeof a)
                       : connect(fd, (struct sockaddr *)&a, sizeof a);
    if (rc < 0 || (listening && listen(fd, 256) < 0)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static int send_all(int fd, const char *data, ssize_t n)
{
    while (n > 0) {
        ssize_t w = send(fd, data, (size_t)n, MSG_NOSIGNAL);
        if (w < 0 && errno == EINTR) {
            continue;
        }
        if (w <= 0) {
            return -1;
        }
        data += w;
        n -= w;
    }
    return 0;
}

/* One piece from in to out; 0: go on. */
static int pass(int in, int out, int cut_by)
{
    static char piece[PIECE];
    ssize_t n = recv(in, piece, sizeof piece, 0);
    if (n < 0 && errno == EINTR) {
        return 0;
    }
    if (n <= 0) {
        return -1;
    }
    if (cut == cut_by) {
        (void)send_all(out, piece, cut_by == SIGUSR1 ? n / 2 : 0);
        return -1;
    }
    return send_all(out, piece, n);
}

static void serve(int client, const char *target)
{
    int server = open_socket(target, 0);
    struct pollfd p[2] = { { .fd = client, .events = POLLIN }, { .fd = server, .events = POLLIN } };
    while (server >= 0) {
        if (poll(p, 2, -1) < 0) {
            if (errno == EINTR) {
                continue;
            }
            break;
        }
        if ((p[0].revents && pass(client, server, SIGUSR1) < 0) ||
            (p[1].revents && pass(server, client, SIGUSR2) < 0)) {
            break;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        (void)fprintf(stderr, "usage: chaos_proxy LISTEN TARGET\n");
        return 2;
    }
    int fd = open_socket(argv[1], 1);
    if (fd < 0) {
        perror(argv[1]);
        return 1;
    }
    struct sigaction act = { .sa_handler = on_cut }, reap = { .sa_handler = SIG_IGN };
    (void)sigaction(SIGUSR1, &act, NULL);
    (void)sigaction(SIGUSR2, &act, NULL);
    (void)sigaction(SIGCHLD, &reap, NULL);
    for (;;) {
        int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0) {
            cut = 0; /* the children have it */
            continue;
        }
        pid_t parent = getpid(), pid = fork();
        if (pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            cut = 0;
            if (getppid() == parent) {
                (void)close(fd);
                serve(client, argv[2]);
            }
            _exit(0);
        }
        (void)close(client);
    }
}
