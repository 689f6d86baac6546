#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/support/fake_guest_pool.h"
#include "worker/cpu_meter.h"
#include "worker/pool_client.h"

static char path[64];

static struct fake_pool *start(enum fake_pool_mode mode, struct pool_client *c)
{
    struct err err = { 0 };
    (void)snprintf(path, sizeof path, "/tmp/brood-test-pool-%d.sock", (int)getpid());
    struct fake_pool *p = fake_pool_start(path, mode, guest_script_shell, NULL);
    cr_assert_eq(pool_client_init(c, path, &err), 0, "%s", err.text);
    return p;
}

static void stop(struct fake_pool *p, struct pool_client *c)
{
    pool_client_done(c);
    fake_pool_stop(p);
}

Test(pool_client, lease_and_release, .timeout = 20)
{
    struct pool_client c;
    struct fake_pool *p = start(POOL_GOOD, &c);
    struct err err = { 0 };
    for (int i = 0; i < 50; i++) {
        struct lease l;
        cr_assert_eq(pool_lease(&c, "python", i % 2, -1, 5000, &l, &err), 0, "%s", err.text);
        cr_assert_geq(l.channel_fd, 0);
        cr_assert(fcntl(l.channel_fd, F_GETFD) & FD_CLOEXEC);
        cr_assert_eq(l.vcpus, 1);
        cr_assert_eq(l.memory_mib, 512);
        cr_assert_str_eq(l.engine, "fake");
        cr_assert_str_eq(l.snapshot, "sha256:fake");
        struct cpu_meter meter;
        cr_assert_eq(cpu_meter_read(l.cpu_fd, &meter, &err), 0, "%s", err.text);
        pool_release(&c, &l);
        cr_assert_eq(l.channel_fd, -1);
    }
    for (int i = 0; i < 200 && fake_pool_releases(p) < 50; i++) {
        sleep_ms(10);
    }
    cr_assert_eq(fake_pool_releases(p), 50);
    stop(p, &c);
}

Test(pool_client, not_there)
{
    struct pool_client c;
    struct err err = { 0 };
    struct lease l;
    cr_assert_eq(pool_client_init(&c, "/tmp/brood-test-no-such-socket", &err), 0);
    cr_assert_eq(pool_lease(&c, "python", false, -1, 100, &l, &err), -ERR_UNAVAILABLE);
    cr_assert(strstr(err.text, "/tmp/brood-test-no-such-socket"), "%s", err.text);
    char longer[200];
    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = 0;
    cr_assert_eq(pool_client_init(&c, longer, &err), -ERR_TOO_LARGE);
}

static void expect_failure(enum fake_pool_mode mode, int want, bool connected)
{
    struct pool_client c;
    struct fake_pool *p = start(mode, &c);
    struct err err = { 0 };
    struct lease l;
    cr_assert_eq(pool_lease(&c, "python", false, -1, 200, &l, &err), want, "mode %d: %s", mode,
                 err.text);
    cr_assert_eq(c.fd >= 0, connected, "mode %d", mode);
    stop(p, &c);
}

Test(pool_client, refusals_and_broken_pools, .timeout = 20)
{
    expect_failure(POOL_REFUSES, -ERR_NOT_FOUND, true);
    expect_failure(POOL_SILENT, -ERR_TIMEOUT, false);
    expect_failure(POOL_WRONG_ID, -ERR_PROTOCOL, false);
    expect_failure(POOL_NO_FDS, -ERR_PROTOCOL, false);
    expect_failure(POOL_GARBAGE, -ERR_PROTOCOL, false);
}

Test(pool_client, reconnects_once, .timeout = 20)
{
    struct pool_client c;
    struct fake_pool *p = start(POOL_CLOSES, &c);
    struct err err = { 0 };
    struct lease l;
    cr_assert_eq(pool_lease(&c, "python", false, -1, 5000, &l, &err), 0, "%s", err.text);
    pool_release(&c, &l);
    stop(p, &c);
}

Test(pool_client, connection_closed_ends_its_leases, .timeout = 20)
{
    struct pool_client c;
    struct fake_pool *p = start(POOL_GOOD, &c);
    struct err err = { 0 };
    struct lease l;
    cr_assert_eq(pool_lease(&c, "python", false, -1, 5000, &l, &err), 0, "%s", err.text);
    pool_client_done(&c);
    for (int i = 0; i < 200 && fake_pool_releases(p) < 1; i++) {
        sleep_ms(10);
    }
    cr_assert_eq(fake_pool_releases(p), 1);
    pool_release(&c, &l); /* fds only */
    fake_pool_stop(p);
}

Test(pool_client, abort_ends_the_wait, .timeout = 20)
{
    struct pool_client c;
    struct fake_pool *p = start(POOL_SILENT, &c);
    struct err err = { 0 };
    struct lease l;
    int abort_fd = eventfd(1, EFD_CLOEXEC);
    cr_assert_eq(pool_lease(&c, "python", false, abort_fd, 60000, &l, &err), -ERR_STALE);
    (void)close(abort_fd);
    stop(p, &c);
}

Test(cpu_meter, bad_files)
{
    struct err err = { 0 };
    struct cpu_meter meter;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    cr_assert(cpu_meter_read(fd, &meter, &err) < 0);
    (void)close(fd);
    fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    cr_assert_eq(cpu_meter_read(fd, &meter, &err), -ERR_INVALID);
    (void)close(fd);
    cr_assert_eq(cpu_meter_read(-1, &meter, &err), -ERR_SYS);
}
