#include "cli/ci_pack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <sodium.h>

#include "common/archive/pack.h"
#include "common/base/cleanup.h"
#include "common/model/glob.h"

#define PIECE_BYTES 65536

static inline void cleanup_pack_fn(struct pack **p)
{
    pack_free(*p);
}

static int write_archive(const struct checkout *c, const char *dir, int fd, struct err *err)
{
    cleanup_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) {
        return err_sys(err, "%s", dir);
    }
    cleanup_free const char **paths = calloc(c->n + 1, sizeof *paths);
    if (!paths) {
        abort();
    }
    for (size_t i = 0; i < c->n; i++) {
        paths[i] = c->files[i].path;
    }
    CLEANUP(cleanup_pack_fn) struct pack *p = NULL;
    int rc = pack_new_fd(&p, fd, err);
    rc = rc < 0 ? rc : pack_files(p, dir_fd, paths, c->n, err);
    return rc < 0 ? rc : pack_finish(p, err);
}

int ci_pack_upload(const struct checkout *c, const char *dir, struct object_store *store,
                   struct ci_upload *ret_upload, struct err *err)
{
    cleanup_fclose FILE *spool = tmpfile();
    if (!spool || fcntl(fileno(spool), F_SETFD, FD_CLOEXEC) < 0) {
        return err_sys(err, "temporary file");
    }
    int rc = write_archive(c, dir, fileno(spool), err);
    if (rc < 0) {
        return rc;
    }
    struct object_put put = { .fd = fileno(spool), .size_bytes = -1 };
    if (lseek(put.fd, 0, SEEK_SET) < 0) {
        return err_sys(err, "temporary file");
    }
    if ((rc = object_put(store, &put, err)) < 0) {
        return err_prefix(err, "upload to %s", object_store_name(store));
    }
    *ret_upload = (struct ci_upload){ .id = put.ret_id,
                                      .size_bytes = put.ret_size_bytes,
                                      .existed = put.ret_existed };
    return 0;
}

bool ci_globs_match(const struct string_list *globs, const char *path, size_t n)
{
    for (int i = 0; i < globs->n; i++) {
        if (glob_match(globs->items[i], strlen(globs->items[i]), path, n)) {
            return true;
        }
    }
    return false;
}

int ci_file_digest(int dir_fd, const char *path, char hex[OBJECT_HEX + 1], struct err *err)
{
    cleanup_close int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return err_sys(err, "%s", path);
    }
    crypto_hash_sha256_state state;
    uint8_t sum[crypto_hash_sha256_BYTES], piece[PIECE_BYTES];
    (void)crypto_hash_sha256_init(&state);
    for (ssize_t n; (n = read(fd, piece, sizeof piece)) != 0;) {
        if (n < 0 && errno != EINTR) {
            return err_sys(err, "%s", path);
        }
        if (n > 0) {
            (void)crypto_hash_sha256_update(&state, piece, (size_t)n);
        }
    }
    (void)crypto_hash_sha256_final(&state, sum);
    (void)sodium_bin2hex(hex, OBJECT_HEX + 1, sum, sizeof sum);
    return 0;
}

int ci_stale_find(const struct checkout *c, const char *dir, const struct string_list *reports,
                  struct ci_stale *ret_stale, struct err *err)
{
    cleanup_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) {
        return err_sys(err, "%s", dir);
    }
    struct ci_stale s = { .files = calloc(CI_STALE_MAX, sizeof *s.files) };
    if (!s.files) {
        abort();
    }
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->n; i++) {
        const struct checkout_file *f = &c->files[i];
        if (!S_ISREG(f->mode) || !ci_globs_match(reports, f->path, strlen(f->path))) {
            continue;
        }
        if (s.n == CI_STALE_MAX) {
            rc = err_set(err, ERR_TOO_LARGE,
                         "reports: more than %d files of the checkout match; a narrower glob, or "
                         "reports in a folder of their own",
                         CI_STALE_MAX);
            break;
        }
        s.files[s.n].path = f->path;
        rc = ci_file_digest(dir_fd, f->path, s.files[s.n].sha256, err);
        s.n++;
    }
    if (rc < 0) {
        ci_stale_done(&s);
        return rc;
    }
    *ret_stale = s;
    return 0;
}

bool ci_stale_is(const struct ci_stale *s, const char *path, const char *sha256)
{
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->files[i].path, path) == 0) {
            return strcmp(s->files[i].sha256, sha256) == 0;
        }
    }
    return false;
}

void ci_stale_done(struct ci_stale *s)
{
    free(s->files);
    *s = (struct ci_stale){ 0 };
}
