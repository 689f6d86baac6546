#include "tests/support/names.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SILENT "127.53.53.53" /* an address of this host's that nobody has */

static char hosts_path[256], resolv_path[256];

static void die(const char *what)
{
    perror(what);
    abort();
}

/* In place: the mount is of the file. */
static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        die(path);
    }
    (void)close(fd);
}

bool own_mounts(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

bool names_begin(const char *dir)
{
    (void)snprintf(hosts_path, sizeof hosts_path, "%s/hosts", dir);
    (void)snprintf(resolv_path, sizeof resolv_path, "%s/resolv.conf", dir);
    write_file(hosts_path, "");
    write_file(resolv_path, "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n");
    return own_mounts() && mount(hosts_path, "/etc/hosts", NULL, MS_BIND, NULL) == 0 &&
           mount(resolv_path, "/etc/resolv.conf", NULL, MS_BIND, NULL) == 0;
}

void names_set(const char *hosts)
{
    write_file(hosts_path, hosts);
}

bool names_silence(void)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(53) };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); /* open until we end: nothing is read */
    if (fd < 0 || inet_pton(AF_INET, SILENT, &addr.sin_addr) != 1 ||
        bind(fd, (struct sockaddr *)&addr, sizeof addr) < 0) {
        return false;
    }
    write_file(resolv_path, "nameserver " SILENT "\noptions timeout:2 attempts:2\n");
    return true;
}

/* ---- TCP in front of a Unix socket ---- */

static bool pass(int from, int to)
{
    char piece[65536];
    ssize_t n = read(from, piece, sizeof piece);
    for (ssize_t at = 0, k; at < n; at += k) {
        if ((k = send(to, piece + at, (size_t)(n - at), MSG_NOSIGNAL)) < 0) {
            return false;
        }
    }
    return n > 0;
}

static void serve(int client, const char *path)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    (void)snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path);
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server < 0 || connect(server, (struct sockaddr *)&addr, sizeof addr) < 0) {
        _exit(1);
    }
    struct pollfd p[2] = { { client, POLLIN, 0 }, { server, POLLIN, 0 } };
    while (poll(p, 2, -1) > 0) {
        if ((p[0].revents && !pass(client, server)) || (p[1].revents && !pass(server, client))) {
            break;
        }
    }
    _exit(0);
}

static void take_clients(int listener, const char *path)
{
    (void)signal(SIGCHLD, SIG_IGN);
    for (;;) {
        int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        pid_t us = getpid();
        if (client >= 0 && fork() == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() == us) {
                serve(client, path);
            }
            _exit(1);
        }
        (void)close(client);
    }
}

int tcp_front(const char *path, pid_t *ret_pid)
{
    struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof addr;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&addr, len) < 0 ||
        listen(listener, 16) < 0 || getsockname(listener, (struct sockaddr *)&addr, &len) < 0) {
        die("tcp_front");
    }
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        die("fork");
    }
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) {
            take_clients(listener, path);
        }
        _exit(1);
    }
    (void)close(listener);
    *ret_pid = pid;
    return ntohs(addr.sin_port);
}
