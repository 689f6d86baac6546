/* Requests are answered in order; whatever breaks that order ends the seed's use: every open
 * request is told so, and the pool takes another seed. A copy that nobody waits for any more is
 * killed by its pidfd. */
#include "vmpool/qemu_seed.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "vmpool/seed_wire.h"
#include "vmpool/spawn.h"
#include "vmpool/fd_pass.h"

#define PENDING_MAX 64
#define PAGEMAP_WORDS 512
#define ASK_FDS_MAX SEED_LAYERS_MAX
static_assert(SEED_FDS_MAX <= ASK_FDS_MAX && ASK_FDS_MAX <= FD_PASS_MAX, "the largest request");
/* Documentation/admin-guide/mm/pagemap.rst: present, mapped exclusively; file page */
#define PAGEMAP_OWN (1ull << 63 | 1ull << 56)
#define PAGEMAP_OF_FILE (1ull << 61)

static seed_kill *kill_copy = spawn_kill;

struct pending {
    seed_copied *copied; /* NULL: forgotten, or none */
    seed_done *done;     /* NULL: forgotten, or a copy */
    void *user;
    bool dump; /* or bind: no process comes with the answer */
    int place; /* of a copy: kept for its pidfd, which is the only way to it */
};

struct seed {
    int fd;
    struct event *ev;
    struct pending pending[PENDING_MAX];
    int n_pending;
};

bool seed_library_path(char *out, size_t room)
{
    char self[400];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) {
        return false;
    }
    self[n] = 0;
    char *slash = strrchr(self, '/');
    if (!slash) {
        return false;
    }
    *slash = 0;
    int len = snprintf(out, room, "%s/brood-qemu-seed.so", self);
    /* LD_PRELOAD cannot name a path with a blank or a colon */
    return len > 0 && (size_t)len < room && access(out, R_OK) == 0 && !strpbrk(out, " :");
}

static void answer(struct seed *s, const struct seed_reply *r, int pidfd, const char *why)
{
    assert(s->n_pending > 0);
    struct pending p = s->pending[0];
    s->n_pending--;
    memmove(&s->pending[0], &s->pending[1], (size_t)s->n_pending * sizeof p);
    if (p.place >= 0) {
        (void)close(p.place);
    }
    if (p.dump) {
        if (p.done) {
            p.done(p.user, why);
        }
    } else if (p.copied) {
        p.copied(p.user, pidfd >= 0 ? r->pid : 0, pidfd, r->vcpu_tid, why);
    } else if (pidfd >= 0) {
        kill_copy(pidfd);
        (void)close(pidfd);
    }
}

void seed_set_kill(seed_kill *kill)
{
    kill_copy = kill;
}

static void shut(struct seed *s)
{
    static const struct seed_reply none = { 0 };
    if (s->fd >= 0) {
        event_free(TAKE_PTR(s->ev));
        (void)close(TAKE_FD(s->fd));
    }
    while (s->n_pending > 0) {
        answer(s, &none, -1, "the seed ended");
    }
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct seed *s = arg;
    struct seed_reply r;
    int pidfd;
    (void)what;
    if (s->n_pending > 0 && s->pending[0].place >= 0) {
        (void)close(TAKE_FD(s->pending[0].place));
    }
    ssize_t n = fd_take(fd, &r, sizeof r, MSG_DONTWAIT, &pidfd);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n != sizeof r || s->n_pending == 0) {
        if (pidfd >= 0) {
            kill_copy(pidfd);
            (void)close(pidfd);
        }
        shut(s);
        return;
    }
    r.why[sizeof r.why - 1] = 0;
    if (s->pending[0].dump && pidfd < 0) {
        answer(s, &r, -1, r.why[0] ? r.why : NULL);
        return;
    }
    if (pidfd < 0 || r.pid <= 0 || r.vcpu_tid <= 0) {
        if (pidfd >= 0) {
            kill_copy(pidfd);        /* half a copy */
            (void)spawn_reap(pidfd); /* if it is ours */
            (void)close(pidfd);
        }
        answer(s, &r, -1, r.why[0] ? r.why : "the copy was not complete");
        return;
    }
    answer(s, &r, pidfd, NULL);
}

struct seed *seed_new(struct event_base *base, int control)
{
    struct seed *s = calloc(1, sizeof *s);
    if (!s) {
        abort();
    }
    s->fd = control;
    s->ev = event_new(base, control, EV_READ | EV_PERSIST, on_readable, s);
    if (!s->ev || event_add(s->ev, NULL) < 0) {
        abort();
    }
    return s;
}

bool seed_open(const struct seed *s)
{
    return s->fd >= 0;
}

void seed_free(struct seed *s)
{
    if (s) {
        shut(s);
        free(s);
    }
}

static int send_request(int control_fd, const struct seed_request *r, const int *fds, size_t n_fds,
                        struct err *err)
{
    assert(n_fds <= ASK_FDS_MAX);
    if (!fds_send(control_fd, r, sizeof *r, fds, n_fds, MSG_DONTWAIT)) {
        return err_sys(err, "seed");
    }
    return 0;
}

static int ask(struct seed *s, const struct seed_request *r, const int *fds, size_t n_fds,
               struct err *err)
{
    return s->fd < 0 ? err_set(err, ERR_UNAVAILABLE, "the seed has ended")
                     : send_request(s->fd, r, fds, n_fds, err);
}

int seed_copy(struct seed *s, pid_t vcpu_tid, const int *fds, uint32_t uid, int n_cgroups,
              seed_copied *copied, void *user, struct err *err)
{
    struct seed_request r = {
        .kind = SEED_COPY, .vcpu_tid = vcpu_tid, .uid = uid, .n_cgroups = n_cgroups
    };
    assert(n_cgroups >= 0 && n_cgroups <= SEED_CGROUPS_MAX);
    cleanup_close int place = fcntl(s->fd, F_DUPFD_CLOEXEC, 3);
    if (s->n_pending == PENDING_MAX) {
        return err_set(err, ERR_UNAVAILABLE, "the seed takes no more requests");
    }
    if (place < 0 && s->fd >= 0) {
        return err_sys(err, "seed");
    }
    int rc = ask(s, &r, fds, SEED_FDS + (size_t)n_cgroups, err);
    if (rc < 0) {
        return rc;
    }
    s->pending[s->n_pending++] =
        (struct pending){ .copied = copied, .user = user, .place = TAKE_FD(place) };
    return 0;
}

int seed_layers(int control, const int *fds, size_t n, struct err *err)
{
    struct seed_request r = { .kind = SEED_LAYERS, .n_ranges = (int32_t)n };
    assert(n <= SEED_LAYERS_MAX);
    return send_request(control, &r, fds, n, err);
}

int seed_dump(struct seed *s, int fd, int pagemap, seed_done *done, void *user, struct err *err)
{
    struct seed_request r = { .kind = SEED_DUMP, .n_ranges = pagemap >= 0 };
    const int fds[] = { fd, pagemap };
    if (s->n_pending == PENDING_MAX) {
        return err_set(err, ERR_UNAVAILABLE, "the seed takes no more requests");
    }
    int rc = ask(s, &r, fds, pagemap >= 0 ? 2 : 1, err);
    if (rc < 0) {
        return rc;
    }
    s->pending[s->n_pending++] =
        (struct pending){ .done = done, .user = user, .dump = true, .place = -1 };
    return 0;
}

int seed_bind(struct seed *s, seed_done *done, void *user, struct err *err)
{
    struct seed_request r = { .kind = SEED_BIND };
    if (s->n_pending == PENDING_MAX) {
        return err_set(err, ERR_UNAVAILABLE, "the seed takes no more requests");
    }
    int rc = ask(s, &r, NULL, 0, err);
    if (rc < 0) {
        return rc;
    }
    s->pending[s->n_pending++] =
        (struct pending){ .done = done, .user = user, .dump = true, .place = -1 };
    return 0;
}

/* Page by page: present, not of a file, mapped by this process alone. A page that is still shared
 * with the seed is not. */
static int own_pages(int pagemap, uint64_t from, uint64_t to, struct seed_range *ranges, int n)
{
    uint64_t words[PAGEMAP_WORDS], page = (uint64_t)sysconf(_SC_PAGESIZE);
    while (from < to && n < SEED_RANGES_MAX) {
        size_t want = (to - from) / page < PAGEMAP_WORDS ? (to - from) / page : PAGEMAP_WORDS;
        ssize_t got =
            pread(pagemap, words, want * sizeof words[0], (off_t)(from / page * sizeof words[0]));
        if (got < (ssize_t)sizeof words[0]) {
            return n;
        }
        for (size_t i = 0; i < (size_t)got / sizeof words[0] && n < SEED_RANGES_MAX; i++) {
            uint64_t at = from + i * page;
            if ((words[i] & PAGEMAP_OWN) != PAGEMAP_OWN || words[i] & PAGEMAP_OF_FILE) {
                continue;
            }
            if (n > 0 && ranges[n - 1].at + ranges[n - 1].len == at) {
                ranges[n - 1].len += page;
            } else {
                ranges[n++] = (struct seed_range){ at, page };
            }
        }
        from += (uint64_t)got / sizeof words[0] * page;
    }
    return n;
}

int seed_learn(struct seed *s, int maps_fd, int pagemap, struct err *err)
{
    cleanup_free struct seed_range *ranges = calloc(SEED_RANGES_MAX, sizeof *ranges);
    char line[512];
    int n = 0, own = fcntl(maps_fd, F_DUPFD_CLOEXEC, 3);
    if (!ranges) {
        abort();
    }
    cleanup_close int list = memfd_create("brood-pages", MFD_CLOEXEC);
    FILE *maps = own < 0 ? NULL : fdopen(own, "re");
    if (list < 0 || !maps) {
        int rc = err_sys(err, "maps of a copy");
        if (maps) {
            (void)fclose(maps);
        }
        return rc;
    }
    while (fgets(line, sizeof line, maps)) {
        uint64_t from, to;
        char mode[5];
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &from, &to, mode) == 3 && mode[1] == 'w' &&
            mode[3] == 'p') {
            n = own_pages(pagemap, from, to, ranges, n);
        }
    }
    (void)fclose(maps);
    size_t len = (size_t)n * sizeof *ranges;
    struct seed_request r = { .kind = SEED_PAGES, .n_ranges = n };
    if (n == 0) {
        return 0;
    }
    if (pwrite(list, ranges, len, 0) != (ssize_t)len) {
        return err_sys(err, "list of pages");
    }
    return ask(s, &r, &list, 1, err);
}

void seed_forget(struct seed *s, const void *user)
{
    for (int i = 0; s && i < s->n_pending; i++) {
        if (s->pending[i].user == user) {
            s->pending[i].copied = NULL;
            s->pending[i].done = NULL;
        }
    }
}
