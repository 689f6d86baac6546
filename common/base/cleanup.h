/* Cleanup attributes: `cleanup_free char *s = ...;` frees when the scope ends; TAKE_PTR / TAKE_FD
 * hand the value on and leave NULL / -1 behind. File descriptors start at -1. */
#pragma once
#include <stdlib.h>
#include <stdio.h>
#include <unistd.h>

static inline void cleanup_free_fn(void *p)
{
    free(*(void **)p);
}
static inline void cleanup_close_fn(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
}
static inline void cleanup_fclose_fn(FILE **f)
{
    if (*f) {
        (void)fclose(*f);
    }
}

#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define cleanup_free CLEANUP(cleanup_free_fn)
#define cleanup_close CLEANUP(cleanup_close_fn)
#define cleanup_fclose CLEANUP(cleanup_fclose_fn)

/* Define static void name(T **p) that calls fn(*p); for `CLEANUP(name) T *x = ...`. */
#define DEFINE_CLEANUP(name, T, fn)                                                                \
    static inline void name(T **p)                                                                 \
    {                                                                                              \
        fn(*p);                                                                                    \
    }

#define TAKE_PTR(p)                                                                                \
    ({                                                                                             \
        __typeof__(p) take_ = (p);                                                                 \
        (p) = NULL;                                                                                \
        take_;                                                                                     \
    })
#define TAKE_FD(fd)                                                                                \
    ({                                                                                             \
        int take_ = (fd);                                                                          \
        (fd) = -1;                                                                                 \
        take_;                                                                                     \
    })
