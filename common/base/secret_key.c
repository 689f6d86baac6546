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

static int read_key(const char *path, uint8_t ret_key[SECRET_KEY_BYTES], struct err *err)
{
    struct stat st;
    uint8_t key[SECRET_KEY_BYTES + 1];
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return errno == ENOENT ? err_set(err, ERR_NOT_FOUND, "secrets: there is no key %s", path)
                               : err_sys(err, "secrets: %s", path);
    }
    if (fstat(fd, &st) < 0) {
        return err_sys(err, "secrets: %s", path);
    }
    if (st.st_mode & 077) {
        return err_set(err, ERR_INVALID, "secrets: %s may be read by others: chmod 600", path);
    }
    ssize_t n = read(fd, key, sizeof key);
    if (n < 0) {
        return err_sys(err, "secrets: %s", path);
    }
    if (n != SECRET_KEY_BYTES) {
        sodium_memzero(key, sizeof key);
        return err_set(err, ERR_INVALID, "secrets: %s does not hold %d bytes", path,
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

int secret_key_load(const struct config *c, bool create, uint8_t ret_key[SECRET_KEY_BYTES],
                    struct err *err)
{
    char path[CONFIG_STR_MAX + 16];
    if (c->secrets_key_file[0]) {
        (void)snprintf(path, sizeof path, "%s", c->secrets_key_file);
    } else {
        (void)snprintf(path, sizeof path, "%s/secrets.key", c->home);
    }
    int rc = read_key(path, ret_key, err);
    if (rc == -ERR_NOT_FOUND && create && (rc = make_key(c->home, path, err)) == 0) {
        rc = read_key(path, ret_key, err);
    }
    return rc;
}

void secret_no_core_file(void)
{
    const struct rlimit none = { 0, 0 };
    (void)setrlimit(RLIMIT_CORE, &none); /* lowering always works */
}
