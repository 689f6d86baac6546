/* See qmp.h. The write side never queues: a command is at most some hundred bytes and a socket
 * buffer holds hundreds of them, so that a short write means that QEMU hangs, which is treated as
 * closed. */
#include "vmpool/qmp.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/cleanup.h"

#define COMMAND_MAX 1024
#define READ_BYTES 16384

const char qmp_ended[] = "QEMU closed its control socket";

void qmp_reader_init(struct qmp_reader *r)
{
    *r = (struct qmp_reader){ 0 };
    buf_init(&r->buf, QMP_LINE_MAX + READ_BYTES);
}

void qmp_reader_done(struct qmp_reader *r)
{
    buf_done(&r->buf);
}

int qmp_reader_feed(struct qmp_reader *r, const void *data, size_t n, struct err *err)
{
    if (r->broken) {
        return err_set(err, r->broken, "qmp: the stream was broken before");
    }
    int rc = buf_add(&r->buf, data, n, err);
    if (rc < 0) {
        r->broken = -rc;
        return err_prefix(err, "qmp");
    }
    return 0;
}

static int classify(json_t *root, struct qmp_message *m)
{
    json_t *v;
    *m = (struct qmp_message){ .root = root };
    m->id = json_integer_value(json_object_get(root, "id"));
    if ((v = json_object_get(root, "return"))) {
        m->kind = QMP_RETURN;
        m->data = v;
    } else if ((v = json_object_get(root, "error"))) {
        m->kind = QMP_ERROR;
        m->name = json_string_value(json_object_get(v, "desc"));
        m->name = m->name ? m->name : "error without a text";
    } else if ((v = json_object_get(root, "event"))) {
        m->kind = QMP_EVENT;
        m->name = json_string_value(v);
        m->data = json_object_get(root, "data");
        return m->name ? 0 : -1;
    } else if (json_object_get(root, "QMP")) {
        m->kind = QMP_GREETING;
    } else {
        return -1;
    }
    return 0;
}

int qmp_reader_next(struct qmp_reader *r, struct qmp_message *ret_message, struct err *err)
{
    if (r->broken) {
        return err_set(err, r->broken, "qmp: the stream was broken before");
    }
    for (;;) {
        char *end = r->buf.len ? memchr(r->buf.data, '\n', r->buf.len) : NULL;
        if (!end) {
            if (r->buf.len > QMP_LINE_MAX) {
                r->broken = ERR_TOO_LARGE;
                return err_set(err, ERR_TOO_LARGE, "qmp: a line longer than %u bytes",
                               QMP_LINE_MAX);
            }
            return 0;
        }
        size_t n = (size_t)(end - r->buf.data);
        size_t text = n > 0 && r->buf.data[n - 1] == '\r' ? n - 1 : n;
        if (text == 0) {
            buf_consume(&r->buf, n + 1);
            continue;
        }
        json_error_t je;
        json_t *root = json_loadb(r->buf.data, text, JSON_REJECT_DUPLICATES, &je);
        buf_consume(&r->buf, n + 1);
        if (!root || !json_is_object(root) || classify(root, ret_message) < 0) {
            json_decref(root);
            r->broken = ERR_PROTOCOL;
            return err_set(err, ERR_PROTOCOL, "qmp: not a message: %s",
                           root ? "unknown kind" : je.text);
        }
        return 1;
    }
}

struct qmp {
    int fd;
    struct event *ev;
    struct qmp_reader reader;
    struct {
        json_int_t id;
        qmp_answer *fn;
    } pending[QMP_PENDING_MAX];
    int n_pending;
    json_int_t last_id;
    qmp_event *on_event;
    qmp_closed *on_closed;
    void *user;
    bool in_callback, doomed, closed;
};

static void really_free(struct qmp *q)
{
    qmp_reader_done(&q->reader);
    free(q);
}

static void shut(struct qmp *q)
{
    if (q->ev) {
        event_free(q->ev);
        q->ev = NULL;
    }
    if (q->fd >= 0) {
        (void)close(q->fd);
        q->fd = -1;
    }
}

static void report_closed(struct qmp *q, const char *why)
{
    shut(q);
    if (!q->closed && !q->doomed) {
        q->closed = true;
        q->on_closed(q->user, why);
    }
}

static void dispatch(struct qmp *q, const struct qmp_message *m)
{
    if (m->kind == QMP_EVENT) {
        q->on_event(q->user, m);
        return;
    }
    if (m->kind == QMP_GREETING) {
        return;
    }
    for (int i = 0; i < q->n_pending; i++) {
        if (q->pending[i].id != m->id) {
            continue;
        }
        qmp_answer *fn = q->pending[i].fn;
        q->n_pending--;
        memmove(&q->pending[i], &q->pending[i + 1],
                (size_t)(q->n_pending - i) * sizeof q->pending[0]);
        if (fn) {
            fn(q->user, m);
        } else if (m->kind == QMP_ERROR) {
            report_closed(q, m->name);
        }
        return;
    }
    report_closed(q, m->kind == QMP_ERROR ? m->name : "an answer without a command");
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct qmp *q = arg;
    struct err err;
    char chunk[READ_BYTES];
    (void)what;
    ssize_t n = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    q->in_callback = true;
    if (n <= 0) {
        report_closed(q, n == 0 || errno == ECONNRESET ? qmp_ended : strerror(errno));
    } else if (qmp_reader_feed(&q->reader, chunk, (size_t)n, &err) < 0) {
        report_closed(q, err.text);
    }
    while (q->fd >= 0 && !q->doomed) {
        struct qmp_message m;
        int rc = qmp_reader_next(&q->reader, &m, &err);
        if (rc == 0) {
            break;
        }
        if (rc < 0) {
            report_closed(q, err.text);
            break;
        }
        dispatch(q, &m);
        json_decref(m.root);
    }
    q->in_callback = false;
    if (q->doomed) {
        really_free(q);
    }
}

struct qmp *qmp_new(struct event_base *base, int fd, bool greets, qmp_event *on_event,
                    qmp_closed *on_closed, void *user)
{
    assert(fd >= 0 && on_event && on_closed);
    struct qmp *q = calloc(1, sizeof *q);
    if (!q) {
        abort();
    }
    q->fd = fd;
    q->on_event = on_event;
    q->on_closed = on_closed;
    q->user = user;
    qmp_reader_init(&q->reader);
    q->ev = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, q);
    if (!q->ev || event_add(q->ev, NULL) < 0) {
        abort();
    }
    if (greets) {
        /* a fresh socket takes this; if not, the read side finds it closed */
        int rc = qmp_send(q, "qmp_capabilities", NULL, -1, NULL, NULL);
        (void)rc;
    }
    return q;
}

void qmp_free(struct qmp *q)
{
    if (!q) {
        return;
    }
    shut(q);
    q->doomed = true;
    if (!q->in_callback) {
        really_free(q);
    }
}

int qmp_send(struct qmp *q, const char *command, const char *arguments, int pass_fd,
             qmp_answer *on_answer, struct err *err)
{
    char text[COMMAND_MAX];
    if (q->fd < 0) {
        return err_set(err, ERR_CLOSED, "qmp: %s: the control socket is closed", command);
    }
    if (q->n_pending == QMP_PENDING_MAX) {
        return err_set(err, ERR_LIMIT, "qmp: %s: %d commands without an answer", command,
                       QMP_PENDING_MAX);
    }
    json_int_t id = ++q->last_id;
    int n = snprintf(text, sizeof text, "{\"execute\":\"%s\",\"id\":%lld%s%s}\n", command,
                     (long long)id, arguments ? ",\"arguments\":" : "", arguments ? arguments : "");
    assert(n > 0 && (size_t)n < sizeof text);
    struct iovec iov = { .iov_base = text, .iov_len = (size_t)n };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { .bytes = { 0 } };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    if (pass_fd >= 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        *c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
                               .cmsg_type = SCM_RIGHTS,
                               .cmsg_len = CMSG_LEN(sizeof(int)) };
        memcpy(CMSG_DATA(c), &pass_fd, sizeof pass_fd);
    }
    ssize_t sent = sendmsg(q->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != n) {
        return sent < 0 ? err_sys(err, "qmp: %s", command)
                        : err_set(err, ERR_CLOSED, "qmp: %s: QEMU does not read", command);
    }
    q->pending[q->n_pending].id = id;
    q->pending[q->n_pending++].fn = on_answer;
    return 0;
}
