/* One question to vmpool: its status. Contract: docs/protocol.md, "Pool socket". */
#pragma once
#include "common/base/err.h"
#include "schemas/proto/pool.pb.h"

/* -ERR_UNAVAILABLE when nobody listens; -ERR_TIMEOUT, -ERR_PROTOCOL. ret_reply is large (tens of
 * KiB): static or heap. */
MUST_CHECK int poolclient_status(const char *socket_path, int64_t timeout_ms,
                                 pool_StatusReply *ret_reply, struct err *err);
