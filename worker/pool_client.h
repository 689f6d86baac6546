/* Client of vmpool's socket: lease a sandbox, give it back. One connection a slot; when it closes,
 * its sandboxes die. Contract: docs/protocol.md, "Pool socket"; messages: schemas/proto/pool.proto.
 * Blocking with deadlines; one thread at a time. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"

#define POOL_PATH_MAX 108

struct pool_client {
    int fd; /* -1: not connected */
    char path[POOL_PATH_MAX];
    uint32_t last_id;
    bool refused; /* the last pool_lease failed by an answer of vmpool, which is there then */
};

struct lease {
    uint64_t id;
    int channel_fd; /* the guest's byte stream */
    int cpu_fd;     /* schedstat of the vCPU thread; -1 when the pool has none */
    int vcpus, memory_mib;
    char snapshot[72], engine[32];
    bool exercised, warm;
};

/* Does not connect. -ERR_TOO_LARGE when path does not fit a socket address. */
MUST_CHECK int pool_client_init(struct pool_client *c, const char *path, struct err *err);
void pool_client_done(struct pool_client *c);
/* Connect when not connected, or when the connection was lost meanwhile. -ERR_UNAVAILABLE. */
MUST_CHECK int pool_client_connect(struct pool_client *c, struct err *err);
/* Lease a sandbox of the template within timeout_ms. abort_fd (-1: none) readable ends the wait
 * with -ERR_STALE. saturated: there is more work than slots. Reconnects once when the connection
 * turns out to be lost. The pool's own refusals come back with its code. After a time-out or a
 * broken answer the connection is closed, so that no lease is left behind. */
MUST_CHECK int pool_lease(struct pool_client *c, const char *template_name, bool saturated,
                          int abort_fd, int64_t timeout_ms, struct lease *ret_lease,
                          struct err *err);
/* Lease a sandbox that continues where the frozen lease `frozen` stands; it may have been frozen by
 * another connection. -ERR_NOT_FOUND: that state is gone. Else as pool_lease, but for the
 * reconnecting. */
MUST_CHECK int pool_fork(struct pool_client *c, uint64_t frozen, int abort_fd, int64_t timeout_ms,
                         struct lease *ret_lease, struct err *err);
#define POOL_FULL_PATIENCE_MS 300000 /* how long a job waits for a host that is full */
/* For a job that is under way and needs one more sandbox: after pool_lease or pool_fork ended with
 * rc, is it to be tried again? Waits first, less when abort_fd (-1: none) is readable; the next
 * try says so. A host that is full is waited for up to 5 min, one that says no for another reason
 * that may pass up to 30 s, with growing pauses. */
struct pool_patience {
    int64_t since_ms; /* 0: begins */
    int again_ms;
};
bool pool_again(const struct pool_client *c, int rc, int abort_fd, struct pool_patience *p);
/* Freeze the lease's sandbox: it stands still until it is released; its channel must stay open and
 * is of no more use. -ERR_UNSUPPORTED, -ERR_TOO_LARGE: this host's engine cannot. */
MUST_CHECK int pool_freeze(struct pool_client *c, const struct lease *lease, int abort_fd,
                           int64_t timeout_ms, struct err *err);
struct pool_kept {
    char id[72];     /* of the state: HOME/kept/ID */
    char parent[72]; /* the next of its chain, "": none */
};
/* Have a frozen lease's state written to disk; it stays frozen. */
MUST_CHECK int pool_keep(struct pool_client *c, const struct lease *frozen, int abort_fd,
                         int64_t timeout_ms, struct pool_kept *ret_kept, struct err *err);
/* Close the lease's fds and tell the pool. Never fails: when the pool cannot be told, the
 * connection is closed, which is the same. */
void pool_release(struct pool_client *c, struct lease *lease);
