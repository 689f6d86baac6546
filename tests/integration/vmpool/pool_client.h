/* A small blocking client of vmpool and of a leased guest, for tests and the bench. One thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/err.h"
#include "schemas/proto/pool.pb.h"

struct pool_lease {
    pool_LeaseReply reply;
    int channel, schedstat; /* owned; -1 when closed */
    int64_t lease_us;       /* request written to reply read */
};

struct guest_result {
    int64_t first_byte_us, total_us; /* from the write of Run to the first output byte, to Exit */
    char output[4096];               /* stdout's and stderr's head, NUL-terminated */
    size_t output_len;
    int exit_code;
    uint32_t signal;
    bool warm;
};

/* Connected SOCK_SEQPACKET socket. */
MUST_CHECK int pool_client_connect(const char *path, int timeout_ms, struct err *err);
/* A PoolError of the server is returned as the err_code of its word (ERR_INTERNAL when unknown). */
MUST_CHECK int pool_client_lease(int fd, const char *spec, bool saturated,
                                 struct pool_lease *ret_lease, struct err *err);
/* Freeze a leased sandbox (guest_settle first); the lease stays as it is, to be released. */
MUST_CHECK int pool_client_freeze(int fd, const struct pool_lease *lease, struct err *err);
/* A sandbox that continues where the frozen lease stands. */
MUST_CHECK int pool_client_fork(int fd, uint64_t frozen, struct pool_lease *ret_lease,
                                struct err *err);
/* Keep a frozen lease's state; ret_id: of room bytes, where "kept:ID" is a template from then on.
 */
MUST_CHECK int pool_client_keep(int fd, const struct pool_lease *frozen, char *ret_id, size_t room,
                                struct err *err);
/* Until the snapshot of the template name is none that is being read or built; one that vmpool has
 * not heard of is none. */
MUST_CHECK int pool_client_await(int fd, const char *name, int timeout_ms, struct err *err);
MUST_CHECK int pool_client_release(int fd, struct pool_lease *lease, struct err *err);
MUST_CHECK int pool_client_status(int fd, pool_StatusReply *ret_status, struct err *err);
/* Close what the lease holds. */
void pool_lease_close(struct pool_lease *lease);
/* Process that runs the sandbox, from the link of schedstat; 0 when it cannot be told. */
int pool_lease_pid(const struct pool_lease *lease);

/* Send Identity and wait for Ready. */
MUST_CHECK int guest_identity(int channel, int timeout_ms, struct err *err);
/* Send Settle and wait for Settled. */
MUST_CHECK int guest_settle(int channel, int timeout_ms, struct err *err);
/* As guest_run, but what it leaves running lives on. */
MUST_CHECK int guest_run_keep(int channel, const char *const *argv, int timeout_ms,
                              struct guest_result *ret_result, struct err *err);
/* Run argv (NULL at the end) and wait for its Exit. */
MUST_CHECK int guest_run(int channel, const char *const *argv, int timeout_ms,
                         struct guest_result *ret_result, struct err *err);
