/* vmpool's socket: SOCK_SEQPACKET, one pool_PoolMessage a packet. Contract: docs/protocol.md, "Pool
 * socket". */
#pragma once
#include <event2/event.h>
#include "common/base/err.h"
#include "vmpool/pool.h"

#define SERVER_CLIENTS_MAX 1024

struct server;

/* Listen on path (an old socket there is replaced: the caller holds the home's lock). */
MUST_CHECK int server_new(struct event_base *base, const char *path, struct server **ret_server,
                          struct err *err);
/* The pool's callbacks that answer clients of a server. */
void server_pool_callbacks(struct pool_callbacks *ret_callbacks);
/* Clients are accepted from now on. */
void server_attach(struct server *s, struct pool *pool);
/* Close all and unlink the path. Before pool_free. */
void server_free(struct server *s);
