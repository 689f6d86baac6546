#include "worker/cpu_meter.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int cpu_meter_read(int fd, struct cpu_meter *ret, struct err *err)
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
    char *end, *last;
    errno = 0;
    long long ran = strtoll(text, &end, 10), waited = strtoll(end, &last, 10);
    if (end == text || last == end || errno || ran < 0 || waited < 0) {
        return err_set(err, ERR_INVALID, "schedstat of the sandbox: not two numbers");
    }
    *ret = (struct cpu_meter){ .ran_ns = ran, .waited_ns = waited };
    return 0;
}
