/* The key under which the secrets of jobs are sealed: 32 random bytes in a file, mode 0600, the
 * same on every host of one service. docs/security.md, "Secrets". */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "common/base/config.h"
#include "common/base/err.h"

#define SECRET_KEY_BYTES 32

/* Names a descriptor of the key, opened by `brood up` for services whose user may not read the file
 * (users.h). Only its number is in the environment. */
#define SECRET_KEY_FD_ENV "BROOD_SECRETS_FD"

/* Read the key of this configuration into ret_key: from the descriptor that SECRET_KEY_FD_ENV
 * names, else from secrets.key_file, else from HOME/secrets.key. create: make the file when there
 * is none, owned by the home's owner; two that make it at once agree. -ERR_NOT_FOUND, -ERR_INVALID
 * (no key, or others may read it), -ERR_SYS. Any thread. */
MUST_CHECK int secret_key_load(const struct config *c, bool create,
                               uint8_t ret_key[SECRET_KEY_BYTES], struct err *err);
/* The file of the same key, looked at and open for reading (CLOEXEC; the caller's). Errors as
 * above. */
MUST_CHECK int secret_key_open(const struct config *c, bool create, int *ret_fd, struct err *err);

/* From here on this process and those it starts leave no core file: it would hold jobs' data. */
void secret_no_core_file(void);
