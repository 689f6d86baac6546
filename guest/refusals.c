#include "guest/refusals.h"

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/log.h"

#define TRACE_DIR "/trace"
#define PATH_TEXT_MAX 256u
#define STATS_TEXT_MAX 512u
#define BUFFER_KIB "4" /* entries that are overwritten are counted, too */

static const char *const kinds[REFUSALS] = {
    [REFUSAL_DISK] = "disk",
    [REFUSAL_DISK_FILES] = "files",
    [REFUSAL_OPEN_FILES] = "fds",
};

/* tmpfs asks for each page in one place, and for inodes in these; so does the overlay above it.
 * Of functions that have had two names in kernels of this decade one is there. */
static const struct {
    enum refusal kind;
    const char *event, *function, *filter;
} probes[] = {
    { REFUSAL_DISK, "folio", "shmem_get_folio_gfp", "ret == -28" },
    { REFUSAL_DISK, "page", "shmem_getpage_gfp", "ret == -28" },
    { REFUSAL_DISK, "fallocate", "shmem_fallocate", "ret == -28" },
    { REFUSAL_DISK_FILES, "mknod", "shmem_mknod", "ret == -28" },
    { REFUSAL_DISK_FILES, "symlink", "shmem_symlink", "ret == -28" },
    { REFUSAL_DISK_FILES, "link", "shmem_link", "ret == -28" },
    { REFUSAL_DISK_FILES, "tmpfile", "shmem_tmpfile", "ret == -28" },
    { REFUSAL_OPEN_FILES, "fd", "alloc_fd", "ret == -24" },
};

__attribute__((format(printf, 2, 3))) static bool put(const char *text, const char *fmt, ...)
{
    char path[PATH_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(path, sizeof path, fmt, ap);
    va_end(ap);
    cleanup_close int fd = n < (int)sizeof path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

/* One probe into the instance of its kind; false: this kernel has no such function. */
static bool add_probe(const char *kind, const char *event, const char *function, const char *filter)
{
    char text[PATH_TEXT_MAX];
    (void)snprintf(text, sizeof text, "r64:brood/%s %s ret=$retval:s32\n", event, function);
    return put(text, TRACE_DIR "/kprobe_events") &&
           put(filter, TRACE_DIR "/instances/%s/events/brood/%s/filter", kind, event) &&
           put("1", TRACE_DIR "/instances/%s/events/brood/%s/enable", kind, event);
}

static void open_stats(struct refusals *r, int kind)
{
    int cpu = 0;
    for (; cpu < REFUSALS_CPUS_MAX; cpu++) {
        char path[PATH_TEXT_MAX];
        (void)snprintf(path, sizeof path, TRACE_DIR "/instances/%s/per_cpu/cpu%d/stats",
                       kinds[kind], cpu);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            break;
        }
        r->stats_fd[kind][cpu] = fd;
    }
    r->n_cpus = cpu > r->n_cpus ? cpu : r->n_cpus;
    char path[PATH_TEXT_MAX];
    (void)snprintf(path, sizeof path, TRACE_DIR "/instances/%s/trace_pipe", kinds[kind]);
    r->pipe_fd[kind] = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

int refusals_init(struct refusals *r, struct err *err)
{
    *r = (struct refusals){ 0 };
    memset(r->stats_fd, -1, sizeof r->stats_fd);
    memset(r->pipe_fd, -1, sizeof r->pipe_fd);
    if (mkdir(TRACE_DIR, 0700) < 0 ||
        mount("tracefs", TRACE_DIR, "tracefs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0) {
        return err_sys(err, "tracefs");
    }
    bool works[REFUSALS] = { false };
    for (int i = 0; i < REFUSALS; i++) {
        char path[PATH_TEXT_MAX];
        (void)snprintf(path, sizeof path, TRACE_DIR "/instances/%s", kinds[i]);
        if (mkdir(path, 0700) < 0 ||
            !put(BUFFER_KIB, TRACE_DIR "/instances/%s/buffer_size_kb", kinds[i])) {
            return err_sys(err, "trace instance %s", kinds[i]);
        }
        /* else poll() says nothing before the buffer is half full; older kernels have no such file
         */
        (void)put("0", TRACE_DIR "/instances/%s/buffer_percent", kinds[i]);
        open_stats(r, i);
    }
    for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++) {
        works[probes[i].kind] |=
            add_probe(kinds[probes[i].kind], probes[i].event, probes[i].function, probes[i].filter);
    }
    for (int i = 0; i < REFUSALS; i++) {
        if (!works[i]) {
            return err_set(err, ERR_UNSUPPORTED, "no probe of kind %s", kinds[i]);
        }
    }
    return 0;
}

/* "entries: 3\noverrun: 0\n..." */
static uint64_t entries(int fd)
{
    char text[STATS_TEXT_MAX];
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    uint64_t sum = 0;
    text[n > 0 ? n : 0] = '\0';
    for (const char *key[] = { "entries: ", "overrun: " }, **k = key; k < key + 2; k++) {
        const char *at = strstr(text, *k);
        sum += at ? strtoull(at + strlen(*k), NULL, 10) : 0;
    }
    return sum;
}

void refusals_take(struct refusals *r, uint64_t ret_counts[REFUSALS])
{
    struct pollfd p[REFUSALS];
    for (int i = 0; i < REFUSALS; i++) {
        p[i] = (struct pollfd){ .fd = r->pipe_fd[i], .events = POLLIN };
        ret_counts[i] = 0;
    }
    if (poll(p, REFUSALS, 0) <= 0) {
        return;
    }
    for (int i = 0; i < REFUSALS; i++) {
        uint64_t now = 0;
        if (!p[i].revents) {
            continue;
        }
        for (int cpu = 0; cpu < r->n_cpus; cpu++) {
            now += entries(r->stats_fd[i][cpu]);
        }
        ret_counts[i] = now > r->seen[i] ? now - r->seen[i] : 0;
        r->seen[i] = now;
    }
}
