#include "worker/cpu_meter.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int cpu_meter_read(int fd, int64_t *ret_ns, struct err *err)
{
    char text[128];
    ssize_t n;
    do {
        n = pread(fd, text, sizeof text - 1, 0);
    } while (n < 0 && errno == EINTR);
    if (n <= 0) {
        return err_sys(err, "schedstat of the sandbox");
    }
    text[n] = 0;
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || errno || v < 0) {
        return err_set(err, ERR_INVALID, "schedstat of the sandbox: not a number");
    }
    *ret_ns = v;
    return 0;
}
