/* The key under which the secrets of jobs are sealed: 32 random bytes in a file, mode 0600, the
 * same on every host of one service. docs/security.md, "Secrets". */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "common/base/config.h"
#include "common/base/err.h"

#define SECRET_KEY_BYTES 32

/* Read the key of this configuration (secrets.key_file, else HOME/secrets.key) into ret_key.
 * create: make it when there is none, owned by the home's owner; two that make it at once agree.
 * -ERR_NOT_FOUND, -ERR_INVALID (no key, or others may read it), -ERR_SYS. */
MUST_CHECK int secret_key_load(const struct config *c, bool create,
                               uint8_t ret_key[SECRET_KEY_BYTES], struct err *err);

/* From here on this process and those it starts leave no core file: it would hold jobs' data. */
void secret_no_core_file(void);
