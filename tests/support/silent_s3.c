#include "tests/support/silent_s3.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct object_store *silent_s3(const char *home, int stall_s, int *ret_fd)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) < 0 || listen(fd, 16) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) < 0) {
        perror("silent S3");
        abort();
    }
    struct object_options o = { .driver = OBJECT_S3,
                                .s3 = { .region = "us-east-1",
                                        .bucket = "bucket",
                                        .access_key = "key",
                                        .secret_key = "secret",
                                        .part_bytes = 1 << 20,
                                        .connect_timeout_ms = 5000,
                                        .stall_timeout_s = stall_s,
                                        .attempts_max = 1 } };
    struct object_store *s = NULL;
    struct err err;
    (void)snprintf(o.dir, sizeof o.dir, "%s/silent", home);
    (void)snprintf(o.s3.endpoint, sizeof o.s3.endpoint, "http://127.0.0.1:%d", ntohs(at.sin_port));
    if (object_store_open(&s, &o, &err) < 0) {
        (void)fprintf(stderr, "silent S3: %s\n", err.text);
        abort();
    }
    *ret_fd = fd;
    return s;
}

bool silent_s3_asked(int fd)
{
    static int taken = -1;
    int more = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    if (more >= 0 && taken >= 0) {
        (void)close(taken);
    }
    taken = more >= 0 ? more : taken;
    return more >= 0;
}
