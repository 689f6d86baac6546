/* A QEMU that waits, loaded and linked, to be copied: the fast way to start one (zygote_preload.c
 * says how and why). Optional everywhere: when it is not there or not ready, callers start QEMU the
 * plain way. Loop's thread only. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>
#include <event2/event.h>
#include "common/base/err.h"

struct zygote;

/* pidfd is the callee's; -1 with why set when the copy could not be made. Called from the loop, in
 * order of requests. */
typedef void zygote_started(void *user, pid_t pid, int pidfd, const char *why);

/* binary: QEMU's path, borrowed for ever. NULL when the preload library is not beside this program.
 */
struct zygote *zygote_new(struct event_base *base, const char *binary);
void zygote_free(struct zygote *z);
/* It has said that it waits. */
bool zygote_ready(const struct zygote *z);
/* Ask for a copy with argv (NULL at the end; argv[0] is left out) and fds[ZYGOTE_FDS] (stderr, then
 * 3, 4, ...; borrowed). Not 0: start it the plain way. zygote_forget(user) takes the callback back:
 * the copy is killed when it comes. */
MUST_CHECK int zygote_spawn(struct zygote *z, char *const *argv, const int *fds,
                            zygote_started *started, void *user, struct err *err);
void zygote_forget(struct zygote *z, void *user);
