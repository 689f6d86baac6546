/* The pool: snapshots, the sandboxes cut from them, leases and the budget. All on the loop's
 * thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <event2/event.h>
#include "common/base/config.h"
#include "common/base/err.h"
#include "schemas/proto/pool.pb.h"
#include "vmpool/engine.h"

#define POOL_SNAPSHOTS_MAX 32
#define POOL_WAITERS_MAX 4096
#define POOL_LEASE_WAIT_MS 30000

struct pool;

/* What a granted lease hands on. The fds are borrowed: send or dup them during the call. */
struct pool_grant {
    pool_LeaseReply reply;
    int channel_fd, schedstat_fd;
};

struct pool_callbacks {
    /* Answer to pool_lease; false: it could not be delivered, the sandbox is destroyed. */
    bool (*granted)(void *client, uint32_t id, const struct pool_grant *grant);
    void (*refused)(void *client, uint32_t id, const struct err *err);
    /* Answer to pool_freeze, where refused is not. */
    void (*frozen)(void *client, uint32_t id, uint64_t lease);
    /* Answer to pool_keep, where refused is not: the state's ID, and that of the next of its chain
     * ("": none). */
    void (*kept)(void *client, uint32_t id, const char *kept_id, const char *parent_id);
    /* The snapshot asked for by pool_build is on disk (why NULL), or cannot be made. */
    void (*built)(void *user, const char *why);
    void *built_user;
};

/* home: existing folder. host: from engine->probe. config is copied. */
MUST_CHECK int pool_new(struct event_base *base, const struct config *config,
                        const struct engine *engine, const struct engine_host *host,
                        const struct pool_callbacks *callbacks, struct pool **ret_pool,
                        struct err *err);
/* Load the snapshots of all built templates in the background and fill their warm pools. */
void pool_preload(struct pool *p);
/* Make (or check) the snapshot of a template; the answer comes by the callback built. */
MUST_CHECK int pool_build(struct pool *p, const char *name, struct err *err);

/* Ask for a sandbox of template spec ("name", "name@digest" or "kept:ID"). Exactly one of the
 * callbacks answers, perhaps inside this call. */
void pool_lease(struct pool *p, void *client, uint32_t id, const char *spec, bool saturated);
/* Stop a sandbox for good, so that others can start where it stands. frozen or refused answers,
 * perhaps inside this call. Where the engine can neither copy nor write out: ERR_UNSUPPORTED; with
 * as many written out below it as there may be: ERR_TOO_LARGE. */
void pool_freeze(struct pool *p, void *client, uint32_t id, uint64_t lease);
/* Ask for a sandbox that continues where a frozen one stands. granted or refused answers. The
 * frozen one may belong to another client; when that releases it, or goes, its forks live on. */
void pool_fork(struct pool *p, void *client, uint32_t id, uint64_t lease);
/* Write a frozen sandbox's state to disk (kept.h). kept or refused answers; it stays frozen. */
void pool_keep(struct pool *p, void *client, uint32_t id, uint64_t lease);
/* Destroy a sandbox, running or frozen. A number that is not leased by this client is ignored: it
 * may have ended by itself. */
void pool_release(struct pool *p, void *client, uint64_t lease);
/* Its sandboxes are destroyed and its waiting requests dropped. */
void pool_client_gone(struct pool *p, void *client);
void pool_status(const struct pool *p, pool_StatusReply *ret_status);

/* Kill everything and start nothing more. pool_idle tells when all is reaped. */
void pool_stop(struct pool *p);
bool pool_idle(const struct pool *p);
void pool_free(struct pool *p);
