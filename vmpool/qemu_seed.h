/* vmpool's side of a seed: a paused QEMU that copies itself (seed_preload.c says how and why).
 * Loop's thread only. */
#pragma once
#include <stdint.h>
#include <sys/types.h>
#include <event2/event.h>
#include "common/base/err.h"

struct seed;

/* One copy is there: pid, pidfd (the callee's) and its vCPU's thread; pidfd -1: there is none, why
 * says why. Called from the loop, in order of requests, never from inside seed_copy. */
typedef void seed_copied(void *user, pid_t pid, int pidfd, pid_t vcpu_tid, const char *why);

/* Path of the preload library beside this program, into out; false when it is not there or cannot
 * be preloaded. */
bool seed_library(char *out, size_t room);
/* control: our end of the socket pair whose other end is SEED_FD of the QEMU; owned from now on. */
struct seed *seed_new(struct event_base *base, int control);
/* Requests that are still open are answered: there is no copy. */
void seed_free(struct seed *s);
/* fds[SEED_FDS]: stderr, QMP, agent channel, control socket of the copy; borrowed. -ERR_UNAVAILABLE
 * when the seed takes no request. */
MUST_CHECK int seed_copy(struct seed *s, pid_t vcpu_tid, const int *fds, seed_copied *copied,
                         void *user, struct err *err);
/* Look at what a paused copy has written so far, and have later copies take those pages for their
 * own at once. Nothing more than speed depends on it. copy: its process. */
MUST_CHECK int seed_learn(struct seed *s, pid_t copy, struct err *err);
/* The dump is complete (why NULL), or cannot be had. Called as seed_copied is. */
typedef void seed_dumped(void *user, const char *why);
/* Have the paused process write the RAM that differs from the file it is mapped from into fd, a
 * file of zeros (seed_wire.h says how); borrowed. -ERR_UNAVAILABLE when it takes no request. */
MUST_CHECK int seed_dump(struct seed *s, int fd, seed_dumped *dumped, void *user, struct err *err);
/* Take a callback back: its copy is killed when it comes. */
void seed_forget(struct seed *s, const void *user);
