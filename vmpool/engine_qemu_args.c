/* QEMU's command line. A clone is given the same machine as the template's boot, for the device
 * state must fit; only what is gone after the boot (kernel, initrd) is left out, which spares a
 * clone the reading and 14 MiB of memory.
 *
 * - microvm with ACPI: Debian's kernel has CONFIG_VIRTIO_MMIO_CMDLINE_DEVICES off and finds the
 * virtio devices only by the DSDT. pit, pic, rtc: without them a TCG guest never gets through
 * calibration.
 * - no firmware option ROMs, no serial port, no PCI, no defaults: start costs less, and a guest has
 * less to attack.
 * - thread=single: one vCPU; multi-threaded TCG adds barriers for nothing. tb-size: the default may
 * take 1 GiB. */
#include "vmpool/engine_qemu.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vmpool/seed_wire.h"

#define TB_SIZE_MIB                                                                                \
    128 /* address space; gcc alone fills 32, and a full buffer is thrown away whole */

void qemu_describe(struct engine_host *host, const char *binary)
{
    const char *slash = strrchr(binary, '/');
    host->sandbox = strstr(slash ? slash : binary, "-microvm") == NULL;
    (void)snprintf(host->machine, sizeof host->machine,
                   "microvm,x-option-roms=off,acpi=on,auto-kernel-cmdline=off,pit=on,pic=on,rtc=on,"
                   "isa-serial=off,usb=off,pcie=off,ioapic2=off,graphics=off,mem-merge=off,dump-"
                   "guest-core=off");
    (void)snprintf(host->cpu_model, sizeof host->cpu_model, "%s", host->kvm ? "host" : "qemu64");
    (void)snprintf(host->name, sizeof host->name, "%s", host->kvm ? "qemu-kvm" : "qemu-tcg");
}

int qemu_binary(bool kvm, const char **ret_path, struct err *err)
{
    static const char *const small =
        "/usr/bin/qemu-system-x86_64-microvm"; /* KVM only, 10 libraries */
    static const char *const full = "/usr/bin/qemu-system-x86_64";
    const char *test = getenv("BROOD_TEST_QEMU");
    if (test) {
        *ret_path = test;
        return 0;
    }
    if (kvm && access(small, X_OK) == 0) {
        *ret_path = small;
        return 0;
    }
    if (access(full, X_OK) == 0) {
        *ret_path = full;
        return 0;
    }
    return err_set(err, ERR_UNSUPPORTED, "no %s: install the Debian package qemu-system-x86", full);
}

static void add(struct qemu_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Remembers the offset (the buffer may move), too much is found at the end by n. */
static void add(struct qemu_args *a, const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    int len = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (a->n >= QEMU_ARGS_MAX || len < 0 || (size_t)len >= sizeof text) {
        a->n = QEMU_ARGS_MAX + 1;
        return;
    }
    a->at[a->n] = a->text.len;
    if (buf_add(&a->text, text, (size_t)len + 1, NULL) < 0) {
        a->n = QEMU_ARGS_MAX + 1;
        return;
    }
    a->n++;
}

int qemu_arguments(struct qemu_args *ret_args, const char *binary, const struct engine_host *host,
                   const struct machine_options *options, struct err *err)
{
    struct qemu_args *a = ret_args;
    assert(options->memory_mib > 0 && options->vcpus > 0);
    bool copied = options->freeze == FREEZE_COPY;
    /* A copy by fork has another address space, and KVM's descriptors belong to the first one. */
    assert(!(host->kvm && copied));
    *a = (struct qemu_args){ 0 };
    buf_init(&a->text, QEMU_ARGS_BYTES_MAX);
    add(a, "%s", binary);
    add(a, "-nodefaults");
    add(a, "-no-user-config");
    add(a, "-display");
    add(a, "none");
    add(a, "-no-reboot");
    /* a seed forks, and its copies change their user: for both there is our own filter, which is
     * the narrower one (seed_filter.c) */
    if (host->sandbox) {
        add(a, "-sandbox");
        add(a, "on,obsolete=deny,resourcecontrol=deny,spawn=%s,elevateprivileges=%s",
            copied ? "allow" : "deny", copied ? "allow" : "deny");
    }
    add(a, "-M");
    add(a, "%s,memory-backend=ram", host->machine);
    add(a, "-accel");
    if (host->kvm) {
        add(a, "kvm");
    } else {
        add(a, "tcg,thread=single,tb-size=%d", TB_SIZE_MIB);
    }
    add(a, "-cpu");
    add(a, "%s", host->cpu_model);
    add(a, "-smp");
    add(a, "%u", options->vcpus);
    add(a, "-m");
    add(a, "%uM", options->memory_mib);
    add(a, "-object");
    add(a, "memory-backend-file,id=ram,size=%uM,mem-path=/proc/self/fd/%d,share=%s,prealloc=off",
        options->memory_mib, QEMU_FD_RAM, options->share ? "on" : "off");
    add(a, "-chardev");
    add(a, "socket,id=qmp,fd=%d", QEMU_FD_QMP);
    add(a, "-mon");
    add(a, "chardev=qmp,mode=control");
    add(a, "-chardev");
    add(a, "socket,id=agent,fd=%d", QEMU_FD_CHANNEL);
    add(a, "-device");
    add(a, "virtio-serial-device,max_ports=2");
    add(a, "-device");
    add(a, "virtserialport,chardev=agent,name=brood.agent");
    if (options->disk) {
        add(a, "-add-fd");
        add(a, "fd=%d,set=1", QEMU_FD_DISK);
        add(a, "-drive");
        add(a, "id=root,if=none,format=raw,read-only=on,file.locking=off,file=/dev/fdset/1");
        add(a, "-device");
        add(a, "virtio-blk-device,drive=root");
    }
    if (options->clone) {
        add(a, "-S");
        add(a, "-incoming");
        add(a, "defer");
    } else {
        add(a, "-kernel");
        add(a, "/proc/self/fd/%d", QEMU_FD_KERNEL);
        add(a, "-initrd");
        add(a, "/proc/self/fd/%d", QEMU_FD_INITRD);
        add(a, "-append");
        add(a, "%s", options->cmdline);
    }
    if (a->n > QEMU_ARGS_MAX) {
        qemu_args_done(a);
        return err_set(err, ERR_TOO_LARGE, "QEMU's command line: at most %d arguments, %d bytes",
                       QEMU_ARGS_MAX, QEMU_ARGS_BYTES_MAX);
    }
    for (int i = 0; i < a->n; i++) {
        a->argv[i] = a->text.data + a->at[i];
    }
    a->argv[a->n] = NULL;
    return 0;
}

int qemu_environment(char *envp[QEMU_ENV_MAX], enum machine_freeze freeze)
{
    static const char *const written = SEED_ENV_WRITE;
    /* QEMU's translation look-aside tables grow and shrink with use. What malloc gives back to the
     * kernel is fetched again a page fault at a time, some 200 at the first breath of each copy. */
    static const char *const all[] = { "PATH=/usr/bin:/bin", SEED_ENV, "MALLOC_ARENA_MAX=1",
                                       "MALLOC_MMAP_THRESHOLD_=67108864",
                                       "MALLOC_TRIM_THRESHOLD_=268435456" };
    int n = 0;
    for (size_t i = 0; i < (freeze == FREEZE_COPY ? sizeof all / sizeof all[0] : 1); i++) {
        envp[n++] = (char *)(uintptr_t)all[i];
    }
    if (freeze == FREEZE_WRITE) {
        envp[n++] = (char *)(uintptr_t)written;
    }
    return n;
}

void qemu_args_done(struct qemu_args *args)
{
    buf_done(&args->text);
}
