/* Between the files of the QEMU engine only. */
#pragma once
#include <sys/types.h>
#include "common/base/buf.h"
#include "vmpool/engine.h"
#include "vmpool/jail/client.h"

/* fds of the child; qemu_arguments names these numbers */
#define QEMU_FD_STATE_NUMBER 6
enum {
    QEMU_FD_RAM = 3,
    QEMU_FD_QMP = 4,
    QEMU_FD_CHANNEL = 5,
    QEMU_FD_STATE = QEMU_FD_STATE_NUMBER,
    /* 7: SEED_FD of seed_wire.h */
    QEMU_FD_DISK = 8,
    QEMU_FD_KERNEL = 9,
    QEMU_FD_INITRD = 10
};
#define QEMU_ENV_MAX 12

#define QEMU_ARGS_MAX 64
#define QEMU_ARGS_BYTES_MAX 8192

/* A command line: args.argv for exec, text kept inside. */
struct qemu_args {
    char *argv[QEMU_ARGS_MAX + 1];
    size_t at[QEMU_ARGS_MAX]; /* offset of each in text, which moves while it grows */
    int n;
    struct buf text;
};

/* What every QEMU is given: its stderr, control socket and agent channel, and when it can be frozen
 * the seed's socket, else -1. The child's ends are non-blocking, as QEMU would make them: a copy
 * does not do it again. */
struct qemu_ends {
    int stderr_fd, qmp, channel, seed;
};

struct qemu_pairs {
    struct qemu_ends its;
    int qmp_ours;
};
#define NO_QEMU_PAIRS                                                                              \
    {                                                                                              \
        { -1, -1, -1, -1 }, -1                                                                     \
    }
/* Close what is open of them. */
void qemu_pairs_done(struct qemu_pairs *pairs);
/* Sockets and a pipe to a QEMU: its ends but the seed's, ours of QMP in p, of channel and stderr
 * apart. What could be made is the caller's, also after an error. */
MUST_CHECK int qemu_make_ends(struct qemu_pairs *p, int *channel, int *stderr_fd, struct err *err);
/* As a child of this process, preloaded with library when there is a seed's socket. */
MUST_CHECK int qemu_start_child(const struct engine_host *host, const struct machine_options *o,
                                const struct qemu_ends *ends, const char *library, pid_t *ret_pid,
                                int *ret_pidfd, struct err *err);
/* Ask the jailer; *ret_report, the caller's: where jail_take_report tells how it went. */
MUST_CHECK int qemu_start_in_jail(struct jail *jail, const struct engine_host *host,
                                  const struct machine_options *o, const struct qemu_ends *ends,
                                  int *ret_report, struct err *err);
/* The seed's socket of a machine that can be written out: what its preloaded half reads first of
 * all is in it already. *ret_seed: its end, the caller's, also after an error; else -1. */
MUST_CHECK int qemu_give_layers(const struct machine_options *o, int *ret_seed, struct err *err);
/* As jail_look, of a child of this process. */
MUST_CHECK int qemu_look(pid_t pid, int ret_fds[JAIL_LOOK_FDS], struct err *err);
/* From now on every QEMU is started in a jail; NULL: as a child of this process. Borrowed. */
void engine_qemu_use_jail(struct jail *jail);
/* engine.h: probe. */
MUST_CHECK int qemu_probe(struct engine_host *ret_host, struct err *err);
/* Path of the binary: $BROOD_TEST_QEMU in tests, else found by access(2). -ERR_UNSUPPORTED when
 * there is none. */
MUST_CHECK int qemu_binary(bool kvm, const char **ret_path, struct err *err);
/* What `binary --version` says after "QEMU emulator version ", cut to room: Debian's revision too.
 * Blocks for at most 20 s. -ERR_UNSUPPORTED when it says something else, -ERR_TIMEOUT. */
MUST_CHECK int qemu_version(const char *binary, char *ret_version, size_t room, struct err *err);
/* machine and cpu_model of host, from its kvm, and sandbox, from the binary's path: Debian's small
 * binary is built without. */
void qemu_describe(struct engine_host *host, const char *binary);
/* Fill envp, not ended, with constants; room for three more and the end. Returns how many. */
int qemu_environment(char *envp[QEMU_ENV_MAX], enum machine_freeze freeze);
/* Fill *ret_args; qemu_args_done frees it. No file is named: disk, kernel and initrd of options
 * only say that there is one, at its number. */
MUST_CHECK int qemu_arguments(struct qemu_args *ret_args, const char *binary,
                              const struct engine_host *host, const struct machine_options *options,
                              struct err *err);
void qemu_args_done(struct qemu_args *args);
