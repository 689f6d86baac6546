#include "common/base/secret_key.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"

static int open_file(const char *path, int *ret_fd, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return errno == ENOENT ? err_set(err, ERR_NOT_FOUND, "secrets: there is no key %s", path)
                               : err_sys(err, "secrets: %s", path);
    }
    *ret_fd = fd;
    return 0;
}

/* name: for messages. By position: others may read from the same descriptor. */
static int read_fd(int fd, const char *name, uint8_t ret_key[SECRET_KEY_BYTES], struct err *err)
{
    struct stat st;
    uint8_t key[SECRET_KEY_BYTES + 1];
    if (fstat(fd, &st) < 0) {
        return err_sys(err, "secrets: %s", name);
    }
    if (st.st_mode & 077) {
        return err_set(err, ERR_INVALID, "secrets: %s may be read by others: chmod 600", name);
    }
    ssize_t n = pread(fd, key, sizeof key, 0);
    if (n < 0) {
        return err_sys(err, "secrets: %s", name);
    }
    if (n != SECRET_KEY_BYTES) {
        sodium_memzero(key, sizeof key);
        return err_set(err, ERR_INVALID, "secrets: %s does not hold %d bytes", name,
                       SECRET_KEY_BYTES);
    }
    memcpy(ret_key, key, SECRET_KEY_BYTES);
    sodium_memzero(key, sizeof key);
    return 0;
}

/* Written whole under another name, then linked: the first link is the key. */
static int make_key(const char *home, const char *path, struct err *err)
{
    uint8_t key[SECRET_KEY_BYTES];
    char tmp[PATH_MAX];
    struct stat st;
    if (snprintf(tmp, sizeof tmp, "%s.XXXXXX", path) >= (int)sizeof tmp) {
        return err_set(err, ERR_TOO_LARGE, "secrets.key_file: path too long");
    }
    cleanup_close int fd = mkostemp(tmp, O_CLOEXEC); /* 0600 */
    if (fd < 0) {
        return err_sys(err, "secrets: %s", tmp);
    }
    if (stat(home, &st) == 0 && geteuid() == 0) {
        (void)!fchown(fd, st.st_uid, st.st_gid);
    }
    randombytes_buf(key, sizeof key);
    int rc = write(fd, key, sizeof key) == (ssize_t)sizeof key && fsync(fd) == 0
                 ? 0
                 : err_sys(err, "secrets: %s", tmp);
    sodium_memzero(key, sizeof key);
    if (rc == 0 && link(tmp, path) < 0 && errno != EEXIST) {
        rc = err_sys(err, "secrets: %s", path);
    }
    (void)unlink(tmp);
    return rc;
}

int secret_key_open(const struct config *c, bool create, int *ret_fd, struct err *err)
{
    char path[CONFIG_STR_MAX + 16];
    uint8_t key[SECRET_KEY_BYTES];
    cleanup_close int fd = -1;
    if (c->secrets_key_file[0]) {
        (void)snprintf(path, sizeof path, "%s", c->secrets_key_file);
    } else {
        (void)snprintf(path, sizeof path, "%s/secrets.key", c->home);
    }
    int rc = open_file(path, &fd, err);
    if (rc == -ERR_NOT_FOUND && create && (rc = make_key(c->home, path, err)) == 0) {
        rc = open_file(path, &fd, err);
    }
    rc = rc < 0 ? rc : read_fd(fd, path, key, err);
    sodium_memzero(key, sizeof key);
    if (rc == 0) {
        *ret_fd = TAKE_FD(fd);
    }
    return rc;
}

int secret_key_load(const struct config *c, bool create, uint8_t ret_key[SECRET_KEY_BYTES],
                    struct err *err)
{
    const char *given = getenv(SECRET_KEY_FD_ENV);
    if (given && *given) {
        char *end;
        long fd = strtol(given, &end, 10);
        if (*end || fd < 0 || fd > INT_MAX || fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0) {
            return err_set(err, ERR_INVALID,
                           "secrets: " SECRET_KEY_FD_ENV " = %.40s: no descriptor", given);
        }
        return read_fd((int)fd, "the key that brood up has opened", ret_key, err);
    }
    cleanup_close int fd = -1;
    int rc = secret_key_open(c, create, &fd, err);
    return rc < 0 ? rc : read_fd(fd, "the key", ret_key, err);
}

void secret_no_core_file(void)
{
    const struct rlimit none = { 0, 0 };
    (void)setrlimit(RLIMIT_CORE, &none); /* lowering always works */
}
