/* Between vmpool and a seed, a paused QEMU that copies itself on request (seed_preload.c).
 * SOCK_SEQPACKET on fd SEED_FD of the seed, one request at a time is answered, in order.
 *
 * vmpool -> seed: struct seed_request. SEED_COPY comes with SEED_FDS fds (the copy's stderr, QMP,
 * agent channel and its own end of such a socket: a copy can be copied in its turn), behind them
 * n_cgroups more (to join by), and is answered; SEED_PAGES with one, a file of n_ranges struct
 * seed_range: the memory that copies write early. It is not answered. SEED_DUMP with one, a file of
 * zeros: the pages of guest RAM that differ from the file it is mapped from are written there, each
 * at its own offset, then from SEED_DUMP_MAP(bytes of RAM) on a bit a page, set where one was
 * written (a page of zeros too). It is answered when all is written. With n_ranges 1 a second fd is
 * the process's own pagemap, which it may not open in a jail.
 *
 * SEED_BIND, to one in a jail whose guest stands still and will run a tenant's code itself: every
 * thread drops its capabilities, and the strict filter is on. Copies keep its user from then on.
 *
 * SEED_LAYERS comes first of all, and only to a QEMU with SEED_ENV_WRITE, which cannot copy itself:
 * with n_ranges such files (dumps, sealed), the oldest first, perhaps none. Their pages lie over
 * those of the file that RAM is mapped from. It is not answered, and the last; a QEMU that cannot
 * take it ends.
 *
 * seed -> vmpool: struct seed_reply; with the copy's pidfd when pid > 0. To SEED_DUMP and
 * SEED_BIND: pid is 0, and why is empty when it was done.
 *
 * End of file: no more copies. */
#pragma once
#include <stdint.h>

#define SEED_FD 7
#define SEED_FDS 4
#define SEED_CGROUPS_MAX 3
#define SEED_FDS_MAX (SEED_FDS + SEED_CGROUPS_MAX)
#define SEED_ENV "BROOD_SEED=1"           /* it can be copied */
#define SEED_ENV_WRITE "BROOD_SEED=write" /* it cannot: vmpool writes it out */
#define SEED_LAYERS_MAX 16
#define SEED_WHY_MAX 96

#define SEED_RANGES_MAX 4096

#define SEED_DUMP_MAP(ram_bytes) (ram_bytes)

enum seed_kind { SEED_COPY = 1, SEED_PAGES = 2, SEED_DUMP = 3, SEED_LAYERS = 4, SEED_BIND = 5 };

struct seed_request {
    int32_t kind;
    int32_t vcpu_tid; /* SEED_COPY: of the seed's vCPU thread */
    int32_t n_ranges; /* SEED_PAGES; SEED_LAYERS: how many files */
    uint32_t uid;     /* SEED_COPY: user and group the copy takes; 0: it keeps the seed's */
    int32_t n_cgroups;
};

struct seed_range {
    uint64_t at, len; /* whole pages */
};

struct seed_reply {
    int32_t pid;      /* of the copy, a child of the seed's parent; 0: none, why says why */
    int32_t vcpu_tid; /* of the copy's vCPU thread. Both as the seed's pid namespace has them */
    char why[SEED_WHY_MAX];
};
