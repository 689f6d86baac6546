/* A small program with the preloaded half, in the place of QEMU. */
#pragma once
#include <sys/types.h>

#define PRELOADED_FDS 3

/* Start PROGRAM of the tests with mode (SEED_ENV...) as its only other variable; from[i], borrowed,
 * is to[i] there. It dies with its parent. */
pid_t preloaded_start(const char *program, const char *mode, const int from[PRELOADED_FDS],
                      const int to[PRELOADED_FDS]);
