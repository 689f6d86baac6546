/* Listing in order without reading everything: the two folder levels are tried by name, 00 to ff,
 * and only the names of one folder are sorted at a time. A folder's names are gathered in a
 * heap-free bounded way: those after the mark, kept sorted, the greatest dropped when there are too
 * many. */
#include "common/store/object_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"

static void cleanup_dir_fn(DIR **d)
{
    if (*d) {
        (void)closedir(*d);
    }
}

/* NULL with errno. */
static DIR *open_dir_at(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return NULL;
    }
    DIR *d = fdopendir(fd);
    if (!d) {
        (void)close(fd);
    }
    return d;
}

/* Put id into rows[0..n), sorted; the greatest falls out at max. Returns the new n. */
static int insert(struct object_info *rows, int n, int max, const struct object_id *id)
{
    int lo = 0, hi = n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (strcmp(rows[mid].id.hex, id->hex) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    if (lo == max) {
        return n;
    }
    int moved = (n < max ? n : max - 1) - lo;
    memmove(&rows[lo + 1], &rows[lo], (size_t)moved * sizeof *rows);
    rows[lo].id = *id;
    return n < max ? n + 1 : n;
}

/* The objects of one folder aa/bb. Those that are deleted meanwhile are left out. */
static int list_folder(int at, const char *name, const struct object_id *after,
                       struct object_info *rows, int max, struct err *err)
{
    CLEANUP(cleanup_dir_fn) DIR *d = open_dir_at(at, name);
    if (!d) {
        return errno == ENOENT ? 0 : err_sys(err, "object store: folder %s", name);
    }
    int n = 0, kept = 0;
    const struct dirent *e;
    while ((errno = 0, e = readdir(d))) {
        struct object_id id;
        if (object_id_parse(&id, e->d_name, NULL) == 0 && strncmp(id.hex, name, 2) == 0 &&
            strncmp(id.hex + 2, name + 3, 2) == 0 && (!after || strcmp(id.hex, after->hex) > 0)) {
            n = insert(rows, n, max, &id);
        }
    }
    if (errno) {
        return err_sys(err, "object store: read folder %s", name);
    }
    for (int i = 0; i < n; i++) {
        struct stat st;
        if (fstatat(dirfd(d), rows[i].id.hex, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode)) {
            rows[kept] = (struct object_info){ .id = rows[i].id,
                                               .size_bytes = st.st_size,
                                               .modified_ms = (int64_t)st.st_mtim.tv_sec * 1000 +
                                                              st.st_mtim.tv_nsec / 1000000 };
            kept++;
        }
    }
    /* rows that vanished: the caller may not take a short count for the end */
    if (n == max && kept < n) {
        struct object_id last = rows[n - 1].id;
        int more = list_folder(at, name, &last, rows + kept, max - kept, err);
        return more < 0 ? more : kept + more;
    }
    return kept;
}

int object_dir_walk(const char *root, const struct object_id *after, struct object_info *rows,
                    int max, struct err *err)
{
    cleanup_close int at = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0) {
        return err_sys(err, "object store: %s", root);
    }
    unsigned first = 0;
    if (after) {
        char head[5] = { after->hex[0], after->hex[1], after->hex[2], after->hex[3], 0 };
        first = (unsigned)strtoul(head, NULL, 16);
    }
    int n = 0;
    for (unsigned i = first; i <= 0xffff && n < max; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "%02x", i >> 8);
        if ((i & 0xff) == 0 && faccessat(at, name, F_OK, 0) < 0 && errno == ENOENT) {
            i |= 0xff; /* none of the 256 below it */
            continue;
        }
        (void)snprintf(name, sizeof name, "%02x/%02x", i >> 8, i & 0xff);
        int got = list_folder(at, name, after, rows + n, max - n, err);
        if (got < 0) {
            return got;
        }
        n += got;
    }
    return n;
}
