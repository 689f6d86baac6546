#include "guest/collect.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/cleanup.h"

static_assert(GLOBS_MAX <= 64, "one bit a pattern");
static_assert(sizeof(((guest_Collect *)0)->globs.bytes) == GLOBS_BYTES_MAX, "guest.options");

/* One name in the folder dir_fd. O_NONBLOCK: whatever it turned into since it was looked at, this
 * does not wait. */
static int open_in(int dir_fd, const char *name, int flags)
{
    struct open_how how = {
        .flags = (unsigned)(flags | O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC),
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV
    };
    return (int)syscall(SYS_openat2, dir_fd, name, &how, sizeof how);
}

static void close_file(struct collect *c)
{
    if (c->file_fd >= 0) {
        (void)close(c->file_fd);
    }
    c->file_fd = -1;
}

static void pop(struct collect *c)
{
    struct collect_dir *d = &c->dirs[--c->depth];
    c->names_held -= d->n;
    free(d->names);
    buf_done(&d->text);
    (void)close(d->fd);
}

void collect_init(struct collect *c)
{
    c->active = c->in_file = false;
    c->depth = 0;
    c->names_held = 0;
    c->file_fd = -1;
}

void collect_drop(struct collect *c)
{
    while (c->depth > 0) {
        pop(c);
    }
    close_file(c);
    collect_init(c);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Read all names of d. false: the folder could not be read to its end, or holds too many. */
static bool read_names(struct collect *c, struct collect_dir *d)
{
    bool whole = true;
    int fd = fcntl(d->fd, F_DUPFD_CLOEXEC, 0);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return false;
    }
    errno = 0;
    for (struct dirent *e; (e = readdir(dir)); errno = 0) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        if (c->names_held + d->n >= COLLECT_NAMES_MAX ||
            buf_add(&d->text, e->d_name, strlen(e->d_name) + 1, NULL) < 0) {
            whole = false;
            break;
        }
        d->n++;
    }
    whole = whole && errno == 0;
    (void)closedir(dir);
    d->names = calloc(d->n ? d->n : 1, sizeof *d->names);
    if (!d->names) {
        abort();
    }
    char *at = d->text.data;
    for (size_t i = 0; i < d->n; i++) {
        d->names[i] = at;
        at += strlen(at) + 1;
    }
    qsort(d->names, d->n, sizeof *d->names, by_bytes);
    c->names_held += d->n;
    return whole;
}

static void left_out(struct collect *c)
{
    c->told.left_out++;
    c->told.truncated = true;
}

/* fd is taken over. */
static void push(struct collect *c, int fd, size_t path_len)
{
    assert(c->depth < COLLECT_DEPTH_MAX);
    struct collect_dir *d = &c->dirs[c->depth++];
    *d = (struct collect_dir){ .fd = fd, .path_len = path_len };
    buf_init(&d->text, COLLECT_NAME_BYTES_MAX);
    if (!read_names(c, d)) {
        left_out(c);
    }
}

int collect_start(struct collect *c, int work_fd, const struct frame *f, struct err *err)
{
    assert(!c->active);
    int rc = frame_decode(f, guest_Collect_fields, &c->ask, err);
    rc = rc ? rc : globs_check((const char *)c->ask.globs.bytes, c->ask.globs.size, err);
    if (rc < 0) {
        return rc;
    }
    int fd = open_in(work_fd, ".", O_DIRECTORY);
    if (fd < 0) {
        return err_sys(err, "the work folder");
    }
    c->active = true;
    c->matched = 0;
    c->told = (guest_Collected){ .run = c->ask.run };
    push(c, fd, 0);
    return 0;
}

/* Bit i: pattern i matches the path in hand (below: may match something below it). */
static uint64_t match(const struct collect *c, size_t path_len, bool below)
{
    const char *list = (const char *)c->ask.globs.bytes;
    uint64_t found = 0, bit = 1;
    for (size_t at = 0; at < c->ask.globs.size; bit <<= 1) {
        size_t n = strlen(list + at);
        bool yes = below ? glob_may_match_below(list + at, n, c->path, path_len)
                         : glob_match(list + at, n, c->path, path_len);
        found |= yes ? bit : 0;
        at += n + 1;
    }
    return found;
}

static void fill_link(guest_Artifact *m, int dir_fd, const char *name)
{
    char target[GUEST_ARTIFACT_PATH_MAX + 1];
    ssize_t n = readlinkat(dir_fd, name, target, sizeof target);
    m->type = guest_ArtifactType_ARTIFACT_LINK;
    if (n <= 0 || (size_t)n > GUEST_ARTIFACT_PATH_MAX) {
        m->skipped = n <= 0 ? guest_ArtifactSkipped_SKIPPED_UNREADABLE
                            : guest_ArtifactSkipped_SKIPPED_TARGET;
        return;
    }
    m->target.size = (pb_size_t)n;
    memcpy(m->target.bytes, target, (size_t)n);
}

/* Open the file, so that the size told is the size of what is read. */
static void fill_file(struct collect *c, guest_Artifact *m, int dir_fd, const char *name)
{
    cleanup_close int fd = open_in(dir_fd, name, 0);
    struct stat st;
    m->type = guest_ArtifactType_ARTIFACT_FILE;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        m->skipped = guest_ArtifactSkipped_SKIPPED_UNREADABLE;
        return;
    }
    m->size = (uint64_t)st.st_size;
    m->mode = st.st_mode & 0777;
    if (m->size > c->ask.file_bytes_max) {
        m->skipped = guest_ArtifactSkipped_SKIPPED_TOO_LARGE;
    } else if (m->size > c->ask.total_bytes_max - c->told.bytes) {
        m->skipped = guest_ArtifactSkipped_SKIPPED_TOTAL;
    } else {
        c->told.bytes += m->size;
        c->file_left = m->size;
        c->file_fd = TAKE_FD(fd);
        c->in_file = true;
        c->change = guest_ArtifactChange_CHANGE_NONE;
    }
}

static void tell(struct collect *c, struct channel *ch, int dir_fd, const char *name,
                 size_t path_len, const struct stat *st)
{
    if (path_len > GUEST_ARTIFACT_PATH_MAX) {
        left_out(c);
        return;
    }
    if (c->told.files >= c->ask.files_max) {
        c->told.truncated = true;
        while (c->depth > 0) {
            pop(c);
        }
        return;
    }
    guest_Artifact m = { .run = c->ask.run, .mode = st->st_mode & 0777 };
    m.path.size = (pb_size_t)path_len;
    memcpy(m.path.bytes, c->path, path_len);
    if (S_ISREG(st->st_mode)) {
        fill_file(c, &m, dir_fd, name);
    } else if (S_ISLNK(st->st_mode)) {
        fill_link(&m, dir_fd, name);
    } else {
        m.type = guest_ArtifactType_ARTIFACT_OTHER;
        m.skipped = guest_ArtifactSkipped_SKIPPED_KIND;
    }
    c->told.files++;
    channel_put(ch, FRAME_ARTIFACT, guest_Artifact_fields, &m);
}

static void enter(struct collect *c, int dir_fd, const char *name, size_t path_len)
{
    if (match(c, path_len, true) == 0) {
        return;
    }
    int fd = c->depth < COLLECT_DEPTH_MAX ? open_in(dir_fd, name, O_DIRECTORY) : -1;
    if (fd < 0) {
        left_out(c);
        return;
    }
    push(c, fd, path_len);
}

static void visit(struct collect *c, struct channel *ch)
{
    struct collect_dir *d = &c->dirs[c->depth - 1];
    const char *name = d->names[d->next++];
    size_t at = d->path_len, n = strlen(name);
    if (at + 1 + n > sizeof c->path) {
        left_out(c);
        return;
    }
    if (at > 0) {
        c->path[at++] = '/';
    }
    memcpy(c->path + at, name, n);
    struct stat st;
    if (fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return; /* gone since */
    }
    if (S_ISDIR(st.st_mode)) {
        enter(c, d->fd, name, at + n);
        return;
    }
    uint64_t found = match(c, at + n, false);
    if (found != 0) {
        c->matched |= found;
        tell(c, ch, d->fd, name, at + n, &st);
    }
}

static void end_file(struct collect *c, struct channel *ch)
{
    char more;
    if (c->file_fd >= 0 && read(c->file_fd, &more, 1) > 0) {
        c->change = guest_ArtifactChange_CHANGE_GREW;
    }
    close_file(c);
    c->in_file = false;
    guest_ArtifactEnd m = { .run = c->ask.run, .change = c->change };
    channel_put(ch, FRAME_ARTIFACT_END, guest_ArtifactEnd_fields, &m);
}

static void send_data(struct collect *c, struct channel *ch, size_t room)
{
    size_t want = c->file_left < room ? (size_t)c->file_left : room;
    uint8_t *to = channel_payload_space(ch);
    ssize_t n = c->file_fd >= 0 ? read(c->file_fd, to, want) : 0;
    if (n < 0 && errno == EINTR) {
        return;
    }
    if (n <= 0) {
        if (c->file_fd >= 0) {
            c->change =
                n < 0 ? guest_ArtifactChange_CHANGE_READ_ERROR : guest_ArtifactChange_CHANGE_SHRANK;
            close_file(c);
        }
        memset(to, 0, want);
        n = (ssize_t)want;
    }
    c->file_left -= (uint64_t)n;
    channel_put_payload(ch, FRAME_ARTIFACT_DATA, 0, (size_t)n);
}

static void finish(struct collect *c, struct channel *ch)
{
    uint64_t all = 0, bit = 1;
    const char *list = (const char *)c->ask.globs.bytes;
    for (size_t at = 0; at < c->ask.globs.size; at += strlen(list + at) + 1, bit <<= 1) {
        all |= bit;
    }
    c->told.unmatched = all & ~c->matched;
    channel_put(ch, FRAME_COLLECTED, guest_Collected_fields, &c->told);
    collect_drop(c);
}

void collect_work(struct collect *c, struct channel *ch)
{
    for (int i = 0; i < COLLECT_STEPS_MAX && c->active; i++) {
        size_t room = channel_room(ch);
        if (room == 0) {
            return;
        }
        if (c->in_file && c->file_left > 0) {
            send_data(c, ch, room);
        } else if (c->in_file) {
            end_file(c, ch);
        } else if (c->depth == 0) {
            finish(c, ch);
        } else if (c->dirs[c->depth - 1].next == c->dirs[c->depth - 1].n) {
            pop(c);
        } else {
            visit(c, ch);
        }
    }
}
