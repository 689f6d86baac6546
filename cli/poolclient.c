#include "cli/poolclient.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <pb_decode.h>
#include <pb_encode.h>

#include "common/base/cleanup.h"

#define POOL_PACKET_MAX 65536

static int connect_pool(const char *path, int64_t timeout_ms, struct err *err)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof addr.sun_path) {
        return err_set(err, ERR_INVALID, "vmpool.socket: %s: longer than %zu bytes", path,
                       sizeof addr.sun_path - 1);
    }
    memcpy(addr.sun_path, path, strlen(path) + 1);
    cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return err_sys(err, "socket");
    }
    struct timeval tv = { .tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000 };
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
    if (connect(fd, (const struct sockaddr *)&addr, sizeof addr) < 0) {
        return err_set(err, ERR_UNAVAILABLE, "vmpool is not reachable at %s: %s", path,
                       strerror(errno));
    }
    return TAKE_FD(fd);
}

int poolclient_status(const char *socket_path, int64_t timeout_ms, pool_StatusReply *ret_reply,
                      struct err *err)
{
    cleanup_close int fd = connect_pool(socket_path, timeout_ms, err);
    if (fd < 0) {
        return fd;
    }
    cleanup_free pool_PoolMessage *m = calloc(1, sizeof *m);
    cleanup_free pb_byte_t *packet = malloc(POOL_PACKET_MAX);
    if (!m || !packet) {
        abort();
    }
    m->id = 1;
    m->which_body = pool_PoolMessage_status_tag;
    pb_ostream_t out = pb_ostream_from_buffer(packet, POOL_PACKET_MAX);
    if (!pb_encode(&out, pool_PoolMessage_fields, m)) {
        return err_set(err, ERR_INTERNAL, "status request: %s", PB_GET_ERROR(&out));
    }
    if (send(fd, packet, out.bytes_written, MSG_NOSIGNAL) < 0) {
        return err_set(err, ERR_UNAVAILABLE, "vmpool at %s: %s", socket_path, strerror(errno));
    }
    ssize_t n = recv(fd, packet, POOL_PACKET_MAX, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return err_set(err, ERR_TIMEOUT, "vmpool at %s does not answer", socket_path);
    }
    if (n <= 0) {
        return err_set(err, ERR_UNAVAILABLE, "vmpool at %s closed the connection", socket_path);
    }
    pb_istream_t in = pb_istream_from_buffer(packet, (size_t)n);
    if (!pb_decode(&in, pool_PoolMessage_fields, m)) {
        return err_set(err, ERR_PROTOCOL, "vmpool's answer: %s", PB_GET_ERROR(&in));
    }
    if (m->which_body == pool_PoolMessage_error_tag) {
        return err_set(err, ERR_PROTOCOL, "vmpool: %s", m->body.error.text);
    }
    if (m->which_body != pool_PoolMessage_status_reply_tag) {
        return err_set(err, ERR_PROTOCOL, "vmpool's answer is not a status");
    }
    *ret_reply = m->body.status_reply;
    return 0;
}
