/* Around the engine, without a machine: QEMU's command line and version, and what a request is told
 * that waited in vain. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "vmpool/engine_qemu.h"
#include "vmpool/pool_internal.h"
#include "vmpool/seed_wire.h"

static struct err err;

static int arguments(bool kvm, enum machine_freeze freeze, struct qemu_args *ret_args)
{
    struct engine_host host = { .kvm = kvm };
    struct machine_options o = { .memory_mib = 256, .vcpus = 1, .clone = true, .freeze = freeze };
    o.share = freeze != FREEZE_NONE; /* as those who start it say */
    o.disk = "/nowhere/rootfs.erofs";
    qemu_describe(&host, kvm ? "/usr/bin/qemu-system-x86_64-microvm" : "/usr/bin/qemu");
    return qemu_arguments(ret_args, "/usr/bin/qemu", &host, &o, &err);
}

static const char *value_of(const struct qemu_args *a, const char *option)
{
    for (int i = 0; i + 1 < a->n; i++) {
        if (strcmp(a->argv[i], option) == 0) {
            return a->argv[i + 1];
        }
    }
    return "";
}

Test(engine, the_accelerator_is_the_hosts)
{
    struct qemu_args a;
    cr_assert_eq(arguments(true, FREEZE_NONE, &a), 0, "%s", err.text);
    cr_expect_str_eq(value_of(&a, "-accel"), "kvm");
    cr_expect_str_eq(value_of(&a, "-cpu"), "host");
    cr_expect_str_eq(value_of(&a, "-sandbox"), "", "the small binary knows none");
    qemu_args_done(&a);
    cr_assert_eq(arguments(false, FREEZE_COPY, &a), 0, "%s", err.text);
    cr_expect_eq(strncmp(value_of(&a, "-accel"), "tcg,", 4), 0);
    qemu_args_done(&a);
}

/* No path of the host's, and every switch of QEMU's own filter that the machine allows. */
Test(engine, files_are_descriptors_and_the_sandbox_is_on)
{
    struct qemu_args a;
    cr_assert_eq(arguments(false, FREEZE_NONE, &a), 0, "%s", err.text);
    for (int i = 1; i < a.n; i++) {
        cr_expect(!strstr(a.argv[i], "/nowhere"), "%s", a.argv[i]);
    }
    cr_expect_str_eq(value_of(&a, "-sandbox"),
                     "on,obsolete=deny,resourcecontrol=deny,spawn=deny,elevateprivileges=deny");
    qemu_args_done(&a);
    cr_assert_eq(arguments(false, FREEZE_COPY, &a), 0, "%s", err.text);
    cr_expect_str_eq(value_of(&a, "-sandbox"),
                     "on,obsolete=deny,resourcecontrol=deny,spawn=allow,elevateprivileges=allow");
    qemu_args_done(&a);
}

/* A machine that is to be copied by fork cannot run with KVM; asking for it is a bug of ours. */
Test(engine, no_seed_is_started_with_kvm, .signal = SIGABRT)
{
    struct qemu_args a;
    (void)!arguments(true, FREEZE_COPY, &a);
}

/* One that is written out is never copied: the right to is not given, and its environment says so.
 */
Test(engine, what_is_written_out_cannot_copy_itself)
{
    struct qemu_args a;
    char *envp[QEMU_ENV_MAX];
    cr_assert_eq(arguments(true, FREEZE_WRITE, &a), 0, "%s", err.text);
    qemu_args_done(&a);
    cr_assert_eq(arguments(false, FREEZE_WRITE, &a), 0, "%s", err.text);
    cr_expect(strstr(value_of(&a, "-sandbox"), "spawn=deny,elevateprivileges=deny"));
    cr_expect(strstr(value_of(&a, "-object"), "share=on"), "else its RAM would be in the state");
    qemu_args_done(&a);
    int n = qemu_environment(envp, FREEZE_WRITE), said = 0;
    for (int i = 0; i < n; i++) {
        cr_expect_str_neq(envp[i], SEED_ENV);
        said += strcmp(envp[i], SEED_ENV_WRITE) == 0;
    }
    cr_expect_eq(said, 1);
    for (n = qemu_environment(envp, FREEZE_NONE); n > 0; n--) {
        cr_expect_neq(strncmp(envp[n - 1], "BROOD_SEED", 10), 0);
    }
}

static const char *script(const char *text)
{
    static char path[64];
    (void)snprintf(path, sizeof path, "/tmp/brood-test-qemu-XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    cr_assert_eq(fchmod(fd, 0755), 0);
    (void)close(fd);
    return path;
}

Test(engine, version_is_the_first_line)
{
    char version[64];
    const char *qemu = script("#!/bin/sh\n[ \"$1\" = --version ] || exit 1\n"
                              "echo 'QEMU emulator version 7.2.1 (Debian 1:7.2+dfsg-7)'\n"
                              "echo 'Copyright (c)'\n");
    cr_assert_eq(qemu_version(qemu, version, sizeof version, &err), 0, "%s", err.text);
    cr_expect_str_eq(version, "7.2.1 (Debian 1:7.2+dfsg-7)");
    char small[4];
    cr_assert_eq(qemu_version(qemu, small, sizeof small, &err), 0);
    cr_expect_str_eq(small, "7.2");
    (void)unlink(qemu);
}

Test(engine, what_is_no_qemu_is_refused)
{
    char version[64] = "as before";
    const char *other = script("#!/bin/sh\necho 'BusyBox v1.35'\n");
    cr_expect_eq(qemu_version(other, version, sizeof version, &err), -ERR_UNSUPPORTED);
    cr_expect(strstr(err.text, "BusyBox v1.35"), "%s", err.text);
    (void)unlink(other);
    cr_expect_eq(qemu_version("/nowhere/qemu", version, sizeof version, &err), -ERR_UNSUPPORTED);
    /* no shell looks at the path */
    cr_expect_eq(
        qemu_version("/bin/echo x; echo QEMU emulator version 9", version, sizeof version, &err),
        -ERR_UNSUPPORTED);
    cr_expect_str_eq(version, "as before");
}

Test(engine, a_late_lease_says_what_it_waited_for)
{
    struct pool_snapshot s = { .name = "python", .begun_ms = 5000 };
    s.state = SNAPSHOT_READING;
    lease_late(&s, 36700, 0, 100, &err);
    cr_expect_eq(err.code, ERR_NO_CAPACITY);
    cr_expect_str_eq(err.text, "snapshot of template python is still being loaded, 31 s");
    s.state = SNAPSHOT_BUILDING;
    lease_late(&s, 65000, 0, 100, &err);
    cr_expect_eq(err.code, ERR_NO_CAPACITY);
    cr_expect_str_eq(err.text,
                     "snapshot of template python is still being made (the template boots), 60 s");
    s.state = SNAPSHOT_READY;
    lease_late(&s, 65000, 70, 100, &err);
    cr_expect_eq(err.code, ERR_NO_CAPACITY);
    cr_expect_str_eq(
        err.text, "template python: no sandbox became free within 30000 ms (70 of 100 MiB in use)");
}

static struct event_base *loop;
static struct machine *machine;
static int n_exited;

static void on_machine(void *user, enum machine_event event, const char *text)
{
    (void)user;
    (void)text;
    n_exited += event == MACHINE_EXITED;
}

static void run_loop(int ms)
{
    const struct timeval tv = { .tv_usec = ms * 1000 };
    (void)event_base_loopexit(loop, &tv);
    (void)event_base_loop(loop, 0);
}

static void start_script(const char *text)
{
    const struct engine_host host = { .name = "test" };
    struct machine_options o = { .memory_mib = 16, .vcpus = 1, .cmdline = "" };
    const char *qemu = script(text);
    loop = event_base_new();
    o.kernel = o.initrd = "/dev/null";
    o.ram_fd = memfd_create("ram", MFD_CLOEXEC);
    o.state_fd = memfd_create("state", MFD_CLOEXEC);
    (void)setenv("BROOD_TEST_QEMU", qemu, 1);
    cr_assert_eq(engine_qemu.start(loop, &host, &o, on_machine, NULL, &machine, &err), 0, "%s",
                 err.text);
}

static void end_script(void)
{
    engine_qemu.destroy(machine);
    for (int64_t end = mono_ms() + 20000; n_exited == 0 && mono_ms() < end;) {
        run_loop(5);
    }
    cr_expect_eq(n_exited, 1);
    engine_qemu.free(machine);
    event_base_free(loop);
    (void)unlink(getenv("BROOD_TEST_QEMU"));
}

/* What its stderr holds and was not read yet. */
static int unread(void)
{
    char path[64];
    int n = -1;
    (void)snprintf(path, sizeof path, "/proc/%d/fd/2", engine_qemu.process_id(machine));
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    cr_assert_eq(fd >= 0 && ioctl(fd, FIONREAD, &n) < 0, 0);
    (void)close(fd);
    return n;
}

/* A QEMU in a tenant's hands may write faster than we read: others have their turn in between. */
Test(engine, words_without_end_stop_nobody, .timeout = 60)
{
    const int all = 1 << 20;
    start_script("#!/usr/bin/python3\nimport fcntl, os, time\n"
                 "fcntl.fcntl(2, 1031, 1 << 20) # F_SETPIPE_SZ\n"
                 "os.write(2, b'x' * (1 << 20))\ntime.sleep(600)\n");
    for (int64_t end = mono_ms() + 20000; unread() < all && mono_ms() < end;) {
        sleep_ms(5);
    }
    cr_expect_eq(unread(), all);
    (void)event_base_loop(loop, EVLOOP_NONBLOCK | EVLOOP_ONCE);
    int left = unread();
    cr_expect(left > 0 && left < all, "%d bytes left after one turn", left);
    end_script();
}

/* One that lives on without its stderr is not looked at over and over. */
Test(engine, a_closed_stderr_is_let_go, .timeout = 60)
{
    start_script("#!/bin/sh\nexec 2>&-\nexec sleep 600\n");
    int before = event_base_get_num_events(loop, EVENT_BASE_COUNT_ADDED);
    int64_t end = mono_ms() + 20000;
    while (event_base_get_num_events(loop, EVENT_BASE_COUNT_ADDED) == before && mono_ms() < end) {
        run_loop(5);
    }
    cr_expect_eq(event_base_get_num_events(loop, EVENT_BASE_COUNT_ADDED), before - 1);
    end_script();
}
