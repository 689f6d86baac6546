/* Between the files of the QEMU engine only. */
#pragma once
#include "common/base/buf.h"
#include "vmpool/engine.h"

/* fds of the child; qemu_arguments names these numbers */
#define QEMU_FD_STATE_NUMBER 6
enum {
    QEMU_FD_RAM = 3,
    QEMU_FD_QMP = 4,
    QEMU_FD_CHANNEL = 5,
    QEMU_FD_STATE = QEMU_FD_STATE_NUMBER
};

#define QEMU_ARGS_MAX 64
#define QEMU_ARGS_BYTES_MAX 8192

/* A command line: args.argv for exec, text kept inside. */
struct qemu_args {
    char *argv[QEMU_ARGS_MAX + 1];
    size_t at[QEMU_ARGS_MAX]; /* offset of each in text, which moves while it grows */
    int n;
    struct buf text;
};

/* Path of the binary: $BROOD_TEST_QEMU in tests, else found by access(2). -ERR_UNSUPPORTED when
 * there is none. */
MUST_CHECK int qemu_binary(bool kvm, const char **ret_path, struct err *err);
/* What `binary --version` says after "QEMU emulator version ", cut to room: Debian's revision too.
 * Blocks for at most 20 s. -ERR_UNSUPPORTED when it says something else, -ERR_TIMEOUT. */
MUST_CHECK int qemu_version(const char *binary, char *ret_version, size_t room, struct err *err);
/* machine and cpu_model of host, from its kvm. */
void qemu_describe(struct engine_host *host);
/* Fill *ret_args; qemu_args_done frees it. */
MUST_CHECK int qemu_arguments(struct qemu_args *ret_args, const char *binary,
                              const struct engine_host *host, const struct machine_options *options,
                              struct err *err);
void qemu_args_done(struct qemu_args *args);
