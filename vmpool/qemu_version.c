/* Which QEMU is this? A snapshot is used only by the version that made it, Debian's revision
 * included, so the program is asked itself: at the start, once, before the loop runs. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "vmpool/engine_qemu.h"
#include "vmpool/spawn.h"

#define VERSION_MS_MAX 20000 /* an overloaded host; then it is no fit one */
#define VERSION_TEXT_MAX 512

/* What it writes until it closes its stdout, at most room - 1 bytes. Returns the length. */
static int read_all(int fd, char *text, size_t room, const char *what, struct err *err)
{
    size_t n = 0;
    for (int64_t end = mono_ms() + VERSION_MS_MAX; n + 1 < room;) {
        int64_t left = end - mono_ms();
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (ready == 0) {
            return err_set(err, ERR_TIMEOUT, "%s --version: no answer within %d s", what,
                           VERSION_MS_MAX / 1000);
        }
        ssize_t got = ready < 0 ? -1 : read(fd, text + n, room - 1 - n);
        if (got < 0 && errno != EINTR) {
            return err_sys(err, "%s --version", what);
        }
        if (got == 0) {
            break;
        }
        n += got > 0 ? (size_t)got : 0;
    }
    text[n] = 0;
    return (int)n;
}

int qemu_version(const char *binary, char *ret_version, size_t room, struct err *err)
{
    static const char prefix[] = "QEMU emulator version ";
    char *argv[] = { (char *)(uintptr_t)binary, (char *)"--version", NULL };
    char text[VERSION_TEXT_MAX];
    int out[2];
    assert(room > 0);
    if (pipe2(out, O_CLOEXEC) < 0) {
        return err_sys(err, "pipe");
    }
    cleanup_close int from = out[0];
    cleanup_close int to = out[1];
    cleanup_close int pidfd = -1;
    pid_t pid;
    struct spawn_options o = { .path = binary, .argv = argv, .stderr_fd = -1, .stdout_fd = to };
    int rc = spawn_child(&o, &pid, &pidfd, err);
    if (rc < 0) {
        return rc;
    }
    (void)close(TAKE_FD(to));
    rc = read_all(from, text, sizeof text, binary, err);
    spawn_kill(pidfd); /* it has said what is wanted, or will not */
    while (spawn_reap(pidfd) == 0) {
        sleep_ms(1);
    }
    if (rc < 0) {
        return rc;
    }
    text[strcspn(text, "\n")] = 0;
    if (strncmp(text, prefix, sizeof prefix - 1) != 0) {
        return err_set(err, ERR_UNSUPPORTED, "%s --version: no version in \"%.60s\"", binary, text);
    }
    (void)snprintf(ret_version, room, "%s", text + sizeof prefix - 1);
    return 0;
}
