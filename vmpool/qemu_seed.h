/* vmpool's side of a seed: a paused QEMU that copies itself (seed_preload.c says how and why).
 * Loop's thread only. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <event2/event.h>
#include "common/base/err.h"

struct seed;

/* One copy is there: pid, pidfd (the callee's) and its vCPU's thread (both numbers as the seed's
 * pid namespace has them, and as the seed says); pidfd -1: there is none, why says why. Called from
 * the loop, in order of requests, never from inside seed_copy. */
typedef void seed_copied(void *user, pid_t pid, int pidfd, pid_t vcpu_tid, const char *why);

/* Path of the preload library beside this program, into out; false when it is not there or cannot
 * be preloaded. It holds the filter of the jails, too. */
bool seed_library_path(char *out, size_t room);
/* control: our end of the socket pair whose other end is SEED_FD of the QEMU; owned from now on. */
struct seed *seed_new(struct event_base *base, int control);
/* Requests that are still open are answered: there is no copy. */
void seed_free(struct seed *s);
/* Does it still take requests? Once it does not, it never will again. */
bool seed_open(const struct seed *s);
/* fds: stderr, QMP, agent channel, control socket of the copy, then n_cgroups (at most
 * SEED_CGROUPS_MAX) to join; borrowed. uid: whom the copy becomes, 0: nobody else. -ERR_UNAVAILABLE
 * when the seed takes no request. */
MUST_CHECK int seed_copy(struct seed *s, pid_t vcpu_tid, const int *fds, uint32_t uid,
                         int n_cgroups, seed_copied *copied, void *user, struct err *err);
/* Look at what a paused copy has written so far, and have later copies take those pages for their
 * own at once. Nothing more than speed depends on it. maps, pagemap: of its process, borrowed. */
MUST_CHECK int seed_learn(struct seed *s, int maps, int pagemap, struct err *err);
/* Before a QEMU is started that is not copied (SEED_ENV_WRITE): control, our end of its socket
 * pair, is told what lies over its RAM's file, n dumps, the oldest first, perhaps none. All
 * borrowed. */
MUST_CHECK int seed_layers(int control, const int *fds, size_t n, struct err *err);
/* It is done (why NULL), or cannot be. Called as seed_copied is. */
typedef void seed_done(void *user, const char *why);
/* Have the paused process write the RAM that differs from the file it is mapped from into fd, a
 * file of zeros (seed_wire.h says how). pagemap: its own, where it may not open it; -1. Both
 * borrowed. -ERR_UNAVAILABLE when it takes no request. */
MUST_CHECK int seed_dump(struct seed *s, int fd, int pagemap, seed_done *done, void *user,
                         struct err *err);
/* Have a process in a jail, whose guest stands still, give up what only a seed may have: it is to
 * run a tenant's code itself. -ERR_UNAVAILABLE as above. */
MUST_CHECK int seed_bind(struct seed *s, seed_done *done, void *user, struct err *err);
/* Kill a copy that nobody waits for, or half of one. In a jail it is not this process's to kill. */
typedef void seed_kill(int pidfd);
void seed_set_kill(seed_kill *kill);
/* Take a callback back: its copy is killed when it comes. */
void seed_forget(struct seed *s, const void *user);
