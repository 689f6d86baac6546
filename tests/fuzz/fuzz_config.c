/* An INI file: every value that is accepted is in its range. */
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct config *c)
{
#define CONF_STR(field, key, def, help) assert(memchr(c->field, 0, sizeof c->field));
#define CONF_INT(field, key, def, min, max, help) assert(c->field >= (min) && c->field <= (max));
#include "common/base/config.def"
#undef CONF_STR
#undef CONF_INT
    assert(c->home[0] == '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct config c;
    struct err err = { 0 };
    char path[64];
    int fd = memfd_create("brood.ini", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
        abort();
    }
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (config_load(&c, "/nonexistent", path, &err) == 0) {
        check(&c);
    } else {
        assert(err.text[0]);
    }
    (void)close(fd);
    return 0;
}
