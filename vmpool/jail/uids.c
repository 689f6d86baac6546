#include "vmpool/jail/uids.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"

static bool bit(const uint8_t *set, uint32_t i)
{
    return set[i / 8] >> i % 8 & 1;
}

static void put(uint8_t *set, uint32_t i, bool on)
{
    uint8_t mask = (uint8_t)(1u << i % 8);
    set[i / 8] = on ? set[i / 8] | mask : set[i / 8] & (uint8_t)~mask;
}

bool jail_uids_own(const struct jail_uids *u, uint32_t uid)
{
    return uid >= u->first && uid - u->first < JAIL_UIDS;
}

/* real, effective, saved, file system */
static void look_at(struct jail_uids *u, const char *pid)
{
    char path[300], text[1024];
    unsigned long ids[4];
    (void)snprintf(path, sizeof path, "%s/status", pid);
    cleanup_close int fd = openat(u->proc, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    const char *line = strstr(text, "\nUid:");
    if (!line || sscanf(line, " Uid: %lu %lu %lu %lu", &ids[0], &ids[1], &ids[2], &ids[3]) != 4) {
        return;
    }
    for (int i = 0; i < 4; i++) {
        if (jail_uids_own(u, (uint32_t)ids[i])) {
            put(u->seen, (uint32_t)ids[i] - u->first, true);
        }
    }
}

static void look(struct jail_uids *u)
{
    int fd = openat(u->proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    memset(u->seen, 0, sizeof u->seen);
    while (dir && (e = readdir(dir))) {
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9') {
            look_at(u, e->d_name);
        }
    }
    if (dir) {
        (void)closedir(dir);
    }
}

void jail_uids_init(struct jail_uids *u, uint32_t first, int proc)
{
    assert(first % JAIL_UIDS == 0 && first > 0);
    *u = (struct jail_uids){ .first = first, .proc = proc };
    look(u);
}

int jail_uids_take(struct jail_uids *u, uint32_t *ret_uid, struct err *err)
{
    for (uint32_t tried = 0; tried < JAIL_UIDS; tried++) {
        uint32_t i = u->next++;
        if (u->next == JAIL_UIDS) {
            u->next = 0;
            look(u);
        }
        if (!bit(u->taken, i) && !bit(u->seen, i)) {
            put(u->taken, i, true);
            *ret_uid = u->first + i;
            return 0;
        }
    }
    return err_set(err, ERR_NO_CAPACITY, "all %u user ids of machines are in use", JAIL_UIDS);
}

void jail_uids_give_back(struct jail_uids *u, uint32_t uid)
{
    assert(jail_uids_own(u, uid));
    put(u->taken, uid - u->first, false);
}
