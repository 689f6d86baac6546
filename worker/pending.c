#include "worker/pending.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uthash.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/cond.h"
#include "common/base/log.h"
#include "common/base/path.h"
#include "common/store/jobs.h"
#include "common/store/pg.h"

#define LOOK_MS_MIN 1000
#define LOOK_MS_MAX 15000
#define COPY_BYTES 65536
#define NAME_BYTES (ID_TEXT_BYTES + OBJECT_HEX + 1)
#define IN_A_ROW_MAX 4 /* failures: then the store is away */
#define FILE_MS_MIN 2000
#define FILE_MS_MAX 600000
#define FILE_TRIES_MAX 8 /* of a spoilt file; then it stays until the next start */
#define FAILED_MAX 4096  /* remembered; of more it is forgotten that they have failed */

/* A file that was not stored. */
struct failed {
    UT_hash_handle hh;
    char name[NAME_BYTES];
    int tries;
    int64_t due_ms; /* mono_ms; INT64_MAX: never */
    bool own;       /* by its own fault */
    uint64_t seen;  /* in this look */
};

struct pending {
    const struct config *config;
    struct object_store *objects;
    char dir[CONFIG_STR_MAX + 32];
    /* of the thread */
    struct pg pg;
    struct failed *failed;
    bool none_goes; /* the last look stored nothing of what it offered */
    uint64_t looks;
    pthread_t thread;
    bool running;

    pthread_mutex_t lock;
    pthread_cond_t news;
    bool stopping, away;
    int64_t bytes;
    int files;
};

/* "JOB.DIGEST" into its two halves; false: no file of ours. */
static bool name_parts(const char *name, char job_id[ID_TEXT_BYTES], const char **ret_sha256)
{
    if (strlen(name) != ID_TEXT_BYTES + OBJECT_HEX || name[ID_TEXT_BYTES - 1] != '.') {
        return false;
    }
    memcpy(job_id, name, ID_TEXT_BYTES - 1);
    job_id[ID_TEXT_BYTES - 1] = 0;
    *ret_sha256 = name + ID_TEXT_BYTES;
    return id_valid(job_id);
}

static void count(struct pending *p, int files, int64_t bytes)
{
    (void)pthread_mutex_lock(&p->lock);
    p->files += files;
    p->bytes += bytes;
    if (files > 0) {
        (void)pthread_cond_signal(&p->news);
    }
    (void)pthread_mutex_unlock(&p->lock);
}

/* ---- called by slots ---- */

static int copy(int from, int to, uint64_t size, struct err *err)
{
    char block[COPY_BYTES];
    off_t at = lseek(from, 0, SEEK_CUR);
    while (size > 0) {
        ssize_t n = pread(from, block, size < sizeof block ? (size_t)size : sizeof block, at);
        if (n <= 0 || write(to, block, (size_t)n) != n) {
            return err_sys(err, "pending artifacts: copy");
        }
        at += n;
        size -= (uint64_t)n;
    }
    return fsync(to) < 0 ? err_sys(err, "pending artifacts: fsync") : 0;
}

static int keep(struct pending *p, const char *name, int fd, uint64_t size, struct err *err)
{
    char path[sizeof p->dir + NAME_BYTES + 2], own[64];
    (void)snprintf(path, sizeof path, "%s/spool", p->config->home);
    if ((mkdir(path, 0700) < 0 && errno != EEXIST) ||
        (mkdir(p->dir, 0700) < 0 && errno != EEXIST)) {
        return err_sys(err, "mkdir %s", p->dir);
    }
    cleanup_close int folder = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_close int file = open(p->dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (folder < 0 || file < 0) {
        return err_sys(err, "pending artifacts: %s", p->dir);
    }
    int rc = copy(fd, file, size, err);
    if (rc < 0) {
        return rc;
    }
    (void)snprintf(own, sizeof own, "/proc/self/fd/%d", file);
    (void)snprintf(path, sizeof path, "%s/%s", p->dir, name);
    if (linkat(AT_FDCWD, own, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0) {
        return errno == EEXIST ? 1 : err_sys(err, "pending artifacts: %s", path);
    }
    return fsync(folder) < 0 ? err_sys(err, "pending artifacts: fsync %s", p->dir) : 0;
}

int pending_keep(struct pending *p, const char *job_id, const char *sha256, int fd, uint64_t size,
                 struct err *err)
{
    char name[NAME_BYTES];
    assert(id_valid(job_id) && strlen(sha256) == OBJECT_HEX);
    (void)snprintf(name, sizeof name, "%s.%s", job_id, sha256);
    (void)pthread_mutex_lock(&p->lock);
    uint64_t room = (uint64_t)(p->config->worker_spool_mib << 20) - (uint64_t)p->bytes;
    bool fits = (uint64_t)p->bytes <= (uint64_t)(p->config->worker_spool_mib << 20) && size <= room;
    p->bytes += fits ? (int64_t)size : 0;
    (void)pthread_mutex_unlock(&p->lock);
    if (!fits) {
        return err_set(err, ERR_NO_CAPACITY, "pending artifacts: worker.spool_mib is reached");
    }
    int rc = keep(p, name, fd, size, err);
    count(p, rc == 0, rc == 0 ? 0 : -(int64_t)size);
    return rc < 0 ? rc : 0;
}

static void set_away(struct pending *p, bool away)
{
    (void)pthread_mutex_lock(&p->lock);
    p->away = away;
    (void)pthread_mutex_unlock(&p->lock);
}

void pending_say_away(struct pending *p)
{
    set_away(p, true);
}

bool pending_away(struct pending *p)
{
    (void)pthread_mutex_lock(&p->lock);
    bool away = p->away;
    (void)pthread_mutex_unlock(&p->lock);
    return away;
}

/* ---- the thread ---- */

static struct failed *failed_find(const struct pending *p, const char *name)
{
    struct failed *f;
    HASH_FIND_STR(p->failed, name, f);
    return f;
}

static void failed_drop(struct pending *p, struct failed *f)
{
    HASH_DEL(p->failed, f);
    free(f);
}

static void failed_add(struct pending *p, const char *name, bool own, const struct err *err)
{
    struct failed *f = failed_find(p, name);
    if (!f && HASH_COUNT(p->failed) < FAILED_MAX) {
        f = calloc(1, sizeof *f);
        if (!f) {
            abort();
        }
        (void)snprintf(f->name, sizeof f->name, "%s", name);
        f->seen = p->looks;
        HASH_ADD_STR(p->failed, name, f);
    }
    if (!f) {
        return;
    }
    f->own = own;
    int64_t wait_ms = (int64_t)FILE_MS_MIN << (f->tries < 16 ? f->tries : 16);
    f->due_ms = mono_ms() + (wait_ms < FILE_MS_MAX ? wait_ms : FILE_MS_MAX);
    if (++f->tries == 1) {
        log_warn("an artifact is not stored yet", "file", name, "error", err->text);
    }
    if (own && f->tries >= FILE_TRIES_MAX) {
        f->due_ms = INT64_MAX;
        log_error("an artifact is never stored: its file is not what it was", "file", name, "error",
                  err->text);
    }
}

/* One file: into the store, then its rows. 1: done with; 0: its job has not ended. *ret_own: that
 * says nothing of the store, it is the file. */
static int offer(struct pending *p, const char *name, bool *ret_own, struct err *err)
{
    char job_id[ID_TEXT_BYTES], path[sizeof p->dir + NAME_BYTES + 2];
    const char *sha256 = NULL;
    *ret_own = true;
    if (!name_parts(name, job_id, &sha256)) {
        return 0;
    }
    (void)snprintf(path, sizeof path, "%s/%s", p->dir, name);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    struct object_id want;
    if (fd < 0 || fstat(fd, &st) < 0) {
        return errno == ENOENT ? 0 : err_sys(err, "%s", path); /* another worker was quicker */
    }
    *ret_own = false;
    int rc = object_id_parse(&want, sha256, err);
    struct object_put put = { .fd = fd, .size_bytes = st.st_size, .want = &want };
    rc = rc < 0 ? rc : object_put(p->objects, &put, err);
    if (rc == 0) {
        set_away(p, false);
    } else if (rc != -ERR_STALE) {
        struct err why;
        *ret_own = object_verify(&want, fd, &why) < 0;
        *err = *ret_own ? why : *err;
    }
    rc = rc < 0 ? rc : store_artifact_came(&p->pg, job_id, sha256, err);
    if (rc > 0 && unlink(path) == 0) {
        count(p, -1, -(int64_t)st.st_size);
        log_debug("a pending artifact is stored", "job", job_id, "sha256", sha256);
    }
    return rc;
}

/* What one look has come to. */
struct look {
    int stored, failed, in_a_row; /* failed: by no fault of the file's */
    bool stop;
    struct err err;
};

static void try_one(struct pending *p, const char *name, struct look *l)
{
    struct err err;
    bool own;
    int rc = offer(p, name, &own, &err);
    if (rc >= 0) {
        struct failed *f = failed_find(p, name);
        if (f) {
            failed_drop(p, f);
        }
        l->stored += !own;
        l->in_a_row = 0;
        return;
    }
    if (rc == -ERR_STALE) { /* the worker's end */
        l->stop = true;
        return;
    }
    failed_add(p, name, own, &err);
    if (!own) {
        l->failed++;
        l->err = err;
        l->stop = ++l->in_a_row >= IN_A_ROW_MAX;
    }
}

/* All whose time it is; not those behind IN_A_ROW_MAX that failed one after the other. */
static void look_all(struct pending *p, DIR *d, struct look *l)
{
    int64_t now = mono_ms();
    for (struct dirent *e; !l->stop && (e = readdir(d));) {
        if (e->d_name[0] == '.') {
            continue;
        }
        struct failed *f = failed_find(p, e->d_name);
        if (f) {
            f->seen = p->looks;
        }
        if (!f || f->due_ms <= now) {
            try_one(p, e->d_name, l);
        }
    }
    struct failed *f, *next;
    HASH_ITER(hh, p->failed, f, next)
    {
        if (!l->stop && f->seen != p->looks) { /* another worker has stored it */
            failed_drop(p, f);
        }
    }
}

/* The one that was not tried for longest: each has its turn, should it be some that do not go.
 * false: there is none. */
static bool look_at_one(struct pending *p, DIR *d, struct look *l)
{
    char name[NAME_BYTES] = "";
    int64_t due_ms = INT64_MAX;
    for (struct dirent *e; due_ms > 0 && (e = readdir(d));) {
        char job_id[ID_TEXT_BYTES];
        const char *sha256;
        const struct failed *f = failed_find(p, e->d_name);
        if (name_parts(e->d_name, job_id, &sha256) && (f ? f->due_ms : 0) < due_ms) {
            due_ms = f ? f->due_ms : 0;
            (void)snprintf(name, sizeof name, "%s", e->d_name);
        }
    }
    if (name[0]) {
        try_one(p, name, l);
    }
    return name[0] != 0;
}

/* What waits, into the store. While that is away it is asked for one of them at a time. false: not
 * so soon again. */
static bool look(struct pending *p)
{
    DIR *d = opendir(p->dir);
    struct look l = { 0 };
    if (!d) {
        return errno == ENOENT;
    }
    p->looks++;
    bool was = p->none_goes;
    if (was) {
        was = look_at_one(p, d, &l);
        rewinddir(d);
    }
    if (was && l.stored > 0) {
        struct failed *f, *next;
        log_info("artifacts are stored again");
        HASH_ITER(hh, p->failed, f, next)
        {
            f->due_ms = f->own ? f->due_ms : 0;
        }
    }
    if (!was || l.stored > 0) {
        look_all(p, d, &l);
    }
    (void)closedir(d);
    p->none_goes = l.stored == 0 && (was || l.failed > 0);
    if (p->none_goes && !was) {
        log_warn("artifacts wait for the object store", "error", l.err.text);
    }
    return !p->none_goes;
}

static void *pending_main(void *arg)
{
    struct pending *p = arg;
    int64_t wait_ms = LOOK_MS_MIN;
    for (;;) {
        (void)pthread_mutex_lock(&p->lock);
        while (p->files == 0 && !p->stopping) {
            (void)pthread_cond_wait(&p->news, &p->lock);
        }
        int64_t at_us = mono_us() + wait_ms * 1000;
        for (int rc = 0; !p->stopping && rc == 0;) {
            rc = cond_wait_until(&p->news, &p->lock, at_us);
        }
        bool stop = p->stopping;
        (void)pthread_mutex_unlock(&p->lock);
        if (stop) {
            return NULL;
        }
        bool ok = look(p);
        wait_ms = ok ? LOOK_MS_MIN : wait_ms * 2 < LOOK_MS_MAX ? wait_ms * 2 : LOOK_MS_MAX;
    }
}

/* What an earlier worker of this home has left. */
static void count_left(struct pending *p)
{
    DIR *d = opendir(p->dir);
    if (!d) {
        return;
    }
    for (struct dirent *e; (e = readdir(d));) {
        char job_id[ID_TEXT_BYTES];
        const char *sha256;
        struct stat st;
        if (name_parts(e->d_name, job_id, &sha256) && fstatat(dirfd(d), e->d_name, &st, 0) == 0) {
            p->files++;
            p->bytes += st.st_size;
        }
    }
    (void)closedir(d);
}

int pending_start(const struct config *config, struct object_store *objects,
                  struct pending **ret_pending, struct err *err)
{
    struct pending *p = calloc(1, sizeof *p);
    if (!p) {
        abort();
    }
    p->config = config;
    p->objects = objects;
    (void)snprintf(p->dir, sizeof p->dir, "%s/spool/objects", config->home);
    int rc = pthread_mutex_init(&p->lock, NULL);
    assert(rc == 0);
    cond_init(&p->news);
    count_left(p);
    rc = pg_open(&p->pg, config->postgres_url, err);
    rc = rc == -ERR_UNAVAILABLE ? 0 : rc; /* connected when it is there */
    if (rc == 0 && (errno = pthread_create(&p->thread, NULL, pending_main, p)) != 0) {
        rc = err_sys(err, "pending artifacts: thread");
    }
    p->running = rc == 0;
    if (rc < 0) {
        pending_stop(p);
        return rc;
    }
    *ret_pending = p;
    return 0;
}

void pending_stop(struct pending *p)
{
    if (!p) {
        return;
    }
    (void)pthread_mutex_lock(&p->lock);
    p->stopping = true;
    (void)pthread_cond_signal(&p->news);
    (void)pthread_mutex_unlock(&p->lock);
    if (p->running) {
        (void)pthread_join(p->thread, NULL);
    }
    struct failed *f, *next;
    HASH_ITER(hh, p->failed, f, next)
    {
        failed_drop(p, f);
    }
    pg_close(&p->pg);
    (void)pthread_mutex_destroy(&p->lock);
    (void)pthread_cond_destroy(&p->news);
    free(p);
}
