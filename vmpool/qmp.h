/* QMP, QEMU's control protocol: JSON objects, one a line, over a stream socket.
 *
 * Two layers. qmp_reader is pure: bytes in, messages out, bounded, no I/O. struct qmp is the client
 * on a socket in an event loop: commands are sent in order and their answers matched by id. Source:
 * docs/interop/qmp-spec.txt of QEMU. */
#pragma once
#include <stdbool.h>
#include <jansson.h>
#include <event2/event.h>
#include "common/base/buf.h"
#include "common/base/err.h"

#define QMP_LINE_MAX (256u << 10) /* bytes of one message; query answers stay far below */
#define QMP_PENDING_MAX 16        /* commands without an answer */

enum qmp_kind { QMP_GREETING, QMP_RETURN, QMP_ERROR, QMP_EVENT };

struct qmp_message {
    enum qmp_kind kind;
    json_int_t id;    /* of the command, 0 when there was none */
    const char *name; /* event's name, or the error's text */
    json_t *data;     /* return value or event data; borrowed from root, may be NULL */
    json_t *root;     /* owned: json_decref */
};

struct qmp_reader {
    struct buf buf;
    int broken; /* sticky */
};

void qmp_reader_init(struct qmp_reader *r);
void qmp_reader_done(struct qmp_reader *r);
/* -ERR_TOO_LARGE when a line passes QMP_LINE_MAX; the reader is unusable then. */
MUST_CHECK int qmp_reader_feed(struct qmp_reader *r, const void *data, size_t n, struct err *err);
/* 1: *ret_message is set; 0: more bytes are needed; -ERR_PROTOCOL. */
MUST_CHECK int qmp_reader_next(struct qmp_reader *r, struct qmp_message *ret_message,
                               struct err *err);

struct qmp;
/* m->kind is QMP_RETURN or QMP_ERROR. */
typedef void qmp_answer(void *user, const struct qmp_message *m);
typedef void qmp_event(void *user, const struct qmp_message *m);
/* Called once; no command is answered any more. why == qmp_ended: end of file, the process is
 * ending. */
extern const char qmp_ended[];
typedef void qmp_closed(void *user, const char *why);

/* fd: connected stream socket, owned from now on. greets: the other end is new and greets;
 * qmp_capabilities is sent at once. Else it has left that behind (a copied QEMU). */
struct qmp *qmp_new(struct event_base *base, int fd, bool greets, qmp_event *on_event,
                    qmp_closed *on_closed, void *user);
/* Safe inside a callback of its own. */
void qmp_free(struct qmp *q);
/* Send a command. arguments: JSON object text or NULL. pass_fd: sent along when >= 0, stays the
 * caller's. on_answer may be NULL: then an error is given to on_closed. Returns -ERR_LIMIT with
 * QMP_PENDING_MAX outstanding, -ERR_CLOSED. */
MUST_CHECK int qmp_send(struct qmp *q, const char *command, const char *arguments, int pass_fd,
                        qmp_answer *on_answer, struct err *err);
