/* The broker's side of the jailer. The loop's thread only. The calls that get an answer wait for
 * it; slots for copies are asked for ahead, so that there is nothing to wait for in general. */
#pragma once
#include <stdint.h>
#include <sys/types.h>
#include <event2/event.h>
#include "common/base/err.h"
#include "vmpool/jail/wire.h"

enum { JAIL_LOOK_MAPS, JAIL_LOOK_PAGEMAP, JAIL_LOOK_MEM, JAIL_LOOK_FDS };

struct jail;

/* The jailer has ended: every machine has, too, and no other can be started. From the loop. */
typedef void jail_gone(void *user);

struct jail_slot {
    uint32_t slot, uid;
    int fds[JAIL_CGROUPS_MAX]; /* the caller's */
    int n_fds;
};

/* fd: of jailer_fork; owned from now on. */
struct jail *jail_new(struct event_base *base, int fd, jail_gone *gone, void *user);
void jail_free(struct jail *j);
/* fds: -1 where there is none; borrowed. The answer comes on the socket whose other end is
 * fds[JAIL_FD_REPORT]: struct jail_report with a pidfd, or end of file. */
MUST_CHECK int jail_ask_start(struct jail *j, const struct jail_request *r,
                              const int fds[JAIL_FD_END], struct err *err);
MUST_CHECK int jail_reserve(struct jail *j, struct jail_slot *ret_slot, struct err *err);
void jail_slot_done(struct jail_slot *s); /* closes what is left of its fds */
void jail_limit(struct jail *j, uint32_t slot, uint32_t memory_mib, uint32_t vcpus);
void jail_release(struct jail *j, uint32_t slot);
void jail_kill(struct jail *j, int pidfd);
/* To read: maps, pagemap (without frame numbers) and mem of a machine's process; the caller's. */
MUST_CHECK int jail_look(struct jail *j, int pidfd, int ret_fds[JAIL_LOOK_FDS], struct err *err);
/* One packet of a report socket: 1, with the QEMU's pidfd; 0: not yet; -ERR_X: there is none, err
 * says why. */
MUST_CHECK int jail_take_report(int fd, struct jail_report *ret_report, int *ret_pidfd,
                                struct err *err);
/* The number by which this process sees the one behind pidfd, and its thread that is called tid in
 * the innermost pid namespace. 0: gone. */
pid_t jail_pid(int pidfd);
pid_t jail_tid(pid_t pid, pid_t tid);
