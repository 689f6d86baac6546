/* LD_PRELOAD: CLOCK_REALTIME that jumps. $BROOD_TEST_CLOCK is a file of 8-byte offsets in
 * nanoseconds, one a kind of program; the harness writes it, every program maps it. CLOCK_MONOTONIC
 * is not touched, as a settimeofday() does not touch it. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define KINDS 4
#define SECOND 1000000000ll

static volatile int64_t *offsets;
static int kind = -1;
static int (*real_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void set_up(void)
{
    static const char *const names[KINDS] = { "redis", "postgres", "scheduler", "worker" };
    const char *path = getenv("BROOD_TEST_CLOCK");
    real_clock =
        (int (*)(clockid_t, struct timespec *))(uintptr_t)dlsym(RTLD_NEXT, "clock_gettime");
    for (int i = 0; path && i < KINDS; i++) {
        if (strstr(program_invocation_short_name, names[i])) {
            kind = i;
        }
    }
    int fd = kind >= 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map =
        fd >= 0 ? mmap(NULL, KINDS * sizeof *offsets, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    offsets = map == MAP_FAILED ? NULL : map;
    if (fd >= 0) {
        (void)close(fd);
    }
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
    int rc = real_clock ? real_clock(clock, ts) : -1;
    if (rc == 0 && offsets && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = (int64_t)ts->tv_sec * SECOND + ts->tv_nsec + offsets[kind];
        ts->tv_sec = ns / SECOND;
        ts->tv_nsec = ns % SECOND;
    }
    return rc;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    (void)zone;
    struct timespec ts;
    int rc = clock_gettime(CLOCK_REALTIME, &ts);
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
    return rc;
}

time_t time(time_t *t)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    if (t) {
        *t = ts.tv_sec;
    }
    return ts.tv_sec;
}
