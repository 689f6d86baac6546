/* User ids for machines: a range that belongs to this home alone, gone through from end to end. An
 * id that was used is not used again before the range is through; then /proc is read for the ids
 * that any process still has. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "common/base/err.h"

#define JAIL_UIDS 4096u /* and the first is a multiple of it: seccomp compares by mask */

struct jail_uids {
    uint32_t first;
    int proc;                     /* of /proc; borrowed */
    uint32_t next;                /* offset */
    uint8_t taken[JAIL_UIDS / 8]; /* by a slot */
    uint8_t seen[JAIL_UIDS / 8];  /* by a process, at the last look */
};

/* first % JAIL_UIDS == 0. Reads /proc. */
void jail_uids_init(struct jail_uids *u, uint32_t first, int proc);
bool jail_uids_own(const struct jail_uids *u, uint32_t uid);
/* The next free one. -ERR_NO_CAPACITY. */
MUST_CHECK int jail_uids_take(struct jail_uids *u, uint32_t *ret_uid, struct err *err);
/* The slot is empty; processes may still have the id (forks of a frozen machine). */
void jail_uids_give_back(struct jail_uids *u, uint32_t uid);
