/* Between vmpool (the broker, which may be anybody) and the jailer, its privileged part.
 *
 * SOCK_SEQPACKET; one struct jail_request a packet, with the fds that jail_fds_wanted counts;
 * nothing else is taken. The jailer believes none of it: check.c. Only JAIL_RESERVE and JAIL_LOOK
 * are answered, in order, by one struct jail_reply; of a start the first process of the jail says
 * itself how it went, on the socket that came with the request (struct jail_report).
 *
 * A slot is a place for one machine: a cgroup, and a user id of its own while it is taken. */
#pragma once
#include <stdint.h>

#define JAIL_SLOTS_MAX 2048u
#define JAIL_MEMORY_MIB_MAX 65536u
#define JAIL_VCPUS_MAX 64u
#define JAIL_CMDLINE_MAX 512u
#define JAIL_CGROUPS_MAX 3u /* memory, cpu, pids of cgroup v1; one of v2 */
#define JAIL_FDS_MAX 10u
#define JAIL_TEXT_MAX 160u
#define JAIL_PROTECTIONS_MAX 16u

enum jail_kind {
    JAIL_START = 1, /* a QEMU in a jail of its own; the slot is in the report */
    JAIL_RESERVE,   /* a slot for a copy */
    JAIL_LIMIT,     /* memory and processors of a taken slot */
    JAIL_RELEASE,   /* its machine has ended */
    JAIL_KILL,      /* SIGKILL by pidfd, to a process of the jails' users only */
    JAIL_LOOK,      /* maps, pagemap and mem of such a process, to read */
    JAIL_KIND_END
};

/* flags of JAIL_START */
enum {
    JAIL_KVM = 1,
    JAIL_CLONE = 2,    /* it loads a state; else it boots and has kernel and initrd */
    JAIL_COPYABLE = 4, /* a seed: with the preloaded half's socket. Not with KVM */
    JAIL_DISK = 8,
    JAIL_WRITABLE =
        16, /* its RAM can be written out: the same socket, and no right to copy itself */
    JAIL_FLAGS = 31
};

struct jail_request {
    uint32_t kind;
    uint32_t slot; /* LIMIT, RELEASE */
    uint32_t flags;
    uint32_t memory_mib, vcpus;     /* START, LIMIT */
    char cmdline[JAIL_CMDLINE_MAX]; /* START of a boot: printable, ends with NUL */
};

/* fds of JAIL_START in this order; those that its flags do not name are left out */
enum jail_fd {
    JAIL_FD_REPORT,
    JAIL_FD_STDERR,
    JAIL_FD_RAM,
    JAIL_FD_QMP,
    JAIL_FD_CHANNEL,
    JAIL_FD_STATE,
    JAIL_FD_SEED,
    JAIL_FD_DISK,
    JAIL_FD_KERNEL,
    JAIL_FD_INITRD,
    JAIL_FD_END
};

struct jail_reply {
    int32_t error; /* errno; 0: */
    uint32_t slot; /* RESERVE */
    uint32_t uid;
    uint32_t n_fds; /* RESERVE: the slot's cgroups, write "0" to each; LOOK: maps, pagemap, mem */
};

/* With the QEMU's pidfd when error is 0. */
struct jail_report {
    int32_t error; /* errno */
    uint32_t slot, uid;
    char step[48]; /* that failed */
};

/* What holds on this host; the first packet from the jailer. */
struct jail_protection {
    char name[24];
    uint8_t holds, required;
    char why[JAIL_TEXT_MAX]; /* how, or why not */
};

struct jail_hello {
    uint32_t n;
    struct jail_protection rows[JAIL_PROTECTIONS_MAX];
};
