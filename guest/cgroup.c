#include "guest/cgroup.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_TEXT_MAX 4096u

static const struct {
    const char *name;
    int flags;
} files[CGROUP_FILES] = {
    [CGROUP_PROCS] = { "cgroup.procs", O_RDWR },
    [CGROUP_KILL] = { "cgroup.kill", O_WRONLY },
    [CGROUP_EVENTS] = { "cgroup.events", O_RDONLY },
    [CGROUP_MEMORY_MAX] = { "memory.max", O_RDWR },
    [CGROUP_MEMORY_PEAK] = { "memory.peak", O_RDONLY },
    [CGROUP_MEMORY_EVENTS] = { "memory.events", O_RDONLY },
    [CGROUP_PIDS_MAX] = { "pids.max", O_RDWR },
    [CGROUP_PIDS_EVENTS] = { "pids.events", O_RDONLY },
    [CGROUP_CPU_STAT] = { "cpu.stat", O_RDONLY },
};

static void close_files(struct cgroup *cg)
{
    for (int i = 0; i < CGROUP_FILES; i++) {
        if (cg->fd[i] >= 0) {
            (void)close(cg->fd[i]);
        }
        cg->fd[i] = -1;
    }
    if (cg->dir_fd >= 0) {
        (void)close(cg->dir_fd);
    }
    cg->dir_fd = -1;
}

int cgroup_make(struct cgroup *cg, int parent_fd, const char *name, struct err *err)
{
    cg->dir_fd = -1;
    memset(cg->fd, -1, sizeof cg->fd);
    if (mkdirat(parent_fd, name, 0755) < 0) {
        return err_sys(err, "cgroup %s", name);
    }
    cg->dir_fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; cg->dir_fd >= 0 && i < CGROUP_FILES; i++) {
        cg->fd[i] = openat(cg->dir_fd, files[i].name, files[i].flags | O_CLOEXEC);
        if (cg->fd[i] < 0) {
            (void)err_sys(err, "cgroup %s: %s", name, files[i].name);
            close_files(cg);
            return -ERR_SYS;
        }
    }
    if (cg->dir_fd < 0) {
        return err_sys(err, "cgroup %s", name);
    }
    int swap = openat(cg->dir_fd, "memory.swap.max", O_WRONLY | O_CLOEXEC);
    if (swap >= 0) { /* not there when swap accounting is off */
        (void)!write(swap, "0", 1);
        (void)close(swap);
    }
    return 0;
}

void cgroup_remove(struct cgroup *cg, int parent_fd, const char *name)
{
    close_files(cg);
    (void)unlinkat(parent_fd, name, AT_REMOVEDIR);
}

static int put_number(int fd, uint64_t value)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%" PRIu64, value);
    return pwrite(fd, text, (size_t)n, 0) == n ? 0 : -1;
}

int cgroup_limit(const struct cgroup *cg, uint64_t memory_bytes, uint32_t processes,
                 struct err *err)
{
    if (put_number(cg->fd[CGROUP_MEMORY_MAX], memory_bytes) < 0 ||
        put_number(cg->fd[CGROUP_PIDS_MAX], processes) < 0) {
        return err_sys(err, "cgroup limits");
    }
    return 0;
}

void cgroup_kill(const struct cgroup *cg)
{
    (void)!pwrite(cg->fd[CGROUP_KILL], "1", 1, 0);
}

static size_t read_text(const struct cgroup *cg, enum cgroup_file which, char out[FILE_TEXT_MAX])
{
    ssize_t n = pread(cg->fd[which], out, FILE_TEXT_MAX - 1, 0);
    size_t len = n > 0 ? (size_t)n : 0;
    out[len] = '\0';
    return len;
}

/* The number behind "key " at the start of a line; 0 when there is none. */
static uint64_t keyed(const char *text, const char *key)
{
    size_t n = strlen(key);
    while (text && *text) {
        if (strncmp(text, key, n) == 0 && text[n] == ' ') {
            return strtoull(text + n + 1, NULL, 10);
        }
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    return 0;
}

uint32_t cgroup_processes(const struct cgroup *cg)
{
    char text[FILE_TEXT_MAX];
    uint32_t lines = 0;
    off_t at = 0;
    for (;;) { /* bounded by pids.max */
        ssize_t n = pread(cg->fd[CGROUP_PROCS], text, sizeof text, at);
        if (n <= 0) {
            return lines;
        }
        for (ssize_t i = 0; i < n; i++) {
            lines += text[i] == '\n';
        }
        if (n < (ssize_t)sizeof text / 2) {
            return lines;
        }
        at += n;
    }
}

bool cgroup_alone(const struct cgroup *cg, pid_t pid)
{
    char text[FILE_TEXT_MAX], *end;
    ssize_t n = pread(cg->fd[CGROUP_PROCS], text, sizeof text - 1, 0);
    if (n <= 0) {
        return n == 0;
    }
    text[n] = '\0';
    return strtol(text, &end, 10) == pid && strcmp(end, "\n") == 0;
}

bool cgroup_populated(const struct cgroup *cg)
{
    char text[FILE_TEXT_MAX];
    (void)read_text(cg, CGROUP_EVENTS, text);
    return keyed(text, "populated") != 0;
}

void cgroup_used(const struct cgroup *cg, struct cgroup_use *ret_use)
{
    char text[FILE_TEXT_MAX];
    (void)read_text(cg, CGROUP_MEMORY_PEAK, text);
    ret_use->memory_peak_bytes = strtoull(text, NULL, 10);
    (void)read_text(cg, CGROUP_MEMORY_EVENTS, text);
    ret_use->oom_kills = (uint32_t)keyed(text, "oom_kill");
    (void)read_text(cg, CGROUP_PIDS_EVENTS, text);
    ret_use->process_refusals = (uint32_t)keyed(text, "max");
    (void)read_text(cg, CGROUP_CPU_STAT, text);
    ret_use->cpu_us = keyed(text, "usage_usec");
}
