/* What this host has for QEMUs, and starting one, in a jail or as a child: the same command line,
 * the same descriptors. */
#include "vmpool/engine_qemu.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "vmpool/kvm_probe.h"
#include "vmpool/qemu_seed.h"
#include "vmpool/seed_wire.h"
#include "vmpool/spawn.h"
#include "vmpool/tsc.h"

int qemu_probe(struct engine_host *ret_host, struct err *err)
{
    struct engine_host host = { 0 };
    host.kvm = kvm_probe(host.reason, sizeof host.reason);
    const char *binary;
    int rc = qemu_binary(host.kvm, &binary, err);
    if (rc < 0) {
        return rc;
    }
    qemu_describe(&host, binary);
    if ((rc = qemu_version(binary, host.vmm_version, sizeof host.vmm_version, err)) < 0) {
        return rc;
    }
    host.tsc_khz = host.kvm ? 0 : tsc_measure_khz();
    char library[512];
    host.freeze = !seed_library_path(library, sizeof library) ? FREEZE_NONE
                  : host.kvm || getenv("BROOD_TEST_NO_SEED")  ? FREEZE_WRITE
                                                              : FREEZE_COPY;
    *ret_host = host;
    return 0;
}

/* The files that a machine reads, by the numbers of qemu_arguments. */
struct files {
    int disk, kernel, initrd;
};

static void files_done(struct files *f)
{
    int *fds[] = { &f->disk, &f->kernel, &f->initrd };
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (*fds[i] >= 0) {
            (void)close(TAKE_FD(*fds[i]));
        }
    }
}

static int open_files(const struct machine_options *o, struct files *f, struct err *err)
{
    const struct {
        const char *path;
        int *fd;
    } wanted[] = { { o->disk, &f->disk },
                   { o->clone ? NULL : o->kernel, &f->kernel },
                   { o->clone ? NULL : o->initrd, &f->initrd } };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        if (wanted[i].path) {
            *wanted[i].fd = open(wanted[i].path, O_RDONLY | O_CLOEXEC);
            if (*wanted[i].fd < 0) {
                return err_sys(err, "%s", wanted[i].path);
            }
        }
    }
    return 0;
}

int qemu_start_child(const struct engine_host *host, const struct machine_options *o,
                     const struct qemu_ends *ends, const char *library, pid_t *ret_pid,
                     int *ret_pidfd, struct err *err)
{
    CLEANUP(files_done) struct files files = { -1, -1, -1 };
    int rc = open_files(o, &files, err);
    if (rc < 0) {
        return rc;
    }
    const char *binary;
    char preload[600];
    char *envp[QEMU_ENV_MAX];
    struct qemu_args args;
    const struct spawn_fd all[] = { { o->ram_fd, QEMU_FD_RAM },
                                    { ends->qmp, QEMU_FD_QMP },
                                    { ends->channel, QEMU_FD_CHANNEL },
                                    { o->state_fd, QEMU_FD_STATE },
                                    { ends->seed, SEED_FD },
                                    { files.disk, QEMU_FD_DISK },
                                    { files.kernel, QEMU_FD_KERNEL },
                                    { files.initrd, QEMU_FD_INITRD } };
    struct spawn_fd fds[sizeof all / sizeof all[0]];
    struct spawn_options so = { .fds = fds, .stderr_fd = ends->stderr_fd };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].from >= 0) {
            fds[so.n_fds++] = all[i];
        }
    }
    rc = qemu_binary(host->kvm, &binary, err);
    /* With the library the file is only said to be shared (seed_preload.c: mmap64). */
    struct machine_options said = *o;
    said.share = o->share || ends->seed >= 0;
    rc = rc < 0 ? rc : qemu_arguments(&args, binary, host, &said, err);
    if (rc < 0) {
        return rc;
    }
    if (ends->seed >= 0) {
        int n = qemu_environment(envp, o->freeze);
        (void)snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library);
        envp[n++] = preload;
        envp[n] = NULL;
        so.envp = envp;
    }
    so.path = binary;
    so.argv = args.argv;
    rc = spawn_child(&so, ret_pid, ret_pidfd, err);
    qemu_args_done(&args);
    return rc;
}

int qemu_give_layers(const struct machine_options *o, int *ret_seed, struct err *err)
{
    int control[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0) {
        return err_sys(err, "socketpair");
    }
    *ret_seed = control[1];
    int rc = seed_layers(control[0], o->layers, o->n_layers, err);
    (void)close(control[0]);
    return rc;
}

int qemu_look(pid_t pid, int ret_fds[JAIL_LOOK_FDS], struct err *err)
{
    static const char *const names[JAIL_LOOK_FDS] = {
        [JAIL_LOOK_MAPS] = "maps", [JAIL_LOOK_PAGEMAP] = "pagemap", [JAIL_LOOK_MEM] = "mem"
    };
    char path[48];
    int rc = 0;
    for (int i = 0; i < JAIL_LOOK_FDS; i++) {
        (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, names[i]);
        ret_fds[i] = rc < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        rc = rc < 0 || ret_fds[i] >= 0 ? rc : err_sys(err, "%s", path);
    }
    for (int i = 0; rc < 0 && i < JAIL_LOOK_FDS; i++) {
        cleanup_close_fn(&ret_fds[i]);
    }
    return rc;
}

int qemu_start_in_jail(struct jail *jail, const struct engine_host *host,
                       const struct machine_options *o, const struct qemu_ends *ends,
                       int *ret_report, struct err *err)
{
    CLEANUP(files_done) struct files files = { -1, -1, -1 };
    int report[2], rc = open_files(o, &files, err);
    if (rc < 0) {
        return rc;
    }
    struct jail_request r = { .kind = JAIL_START,
                              .flags = (host->kvm ? JAIL_KVM : 0u) | (o->clone ? JAIL_CLONE : 0u) |
                                       (o->freeze == FREEZE_COPY    ? JAIL_COPYABLE
                                        : o->freeze == FREEZE_WRITE ? JAIL_WRITABLE
                                                                    : 0u) |
                                       (o->disk ? JAIL_DISK : 0u),
                              .memory_mib = o->memory_mib,
                              .vcpus = o->vcpus };
    if (!o->clone &&
        snprintf(r.cmdline, sizeof r.cmdline, "%s", o->cmdline) >= (int)sizeof r.cmdline) {
        return err_set(err, ERR_TOO_LARGE, "the kernel's command line: at most %zu bytes",
                       sizeof r.cmdline - 1);
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, report) < 0) {
        return err_sys(err, "socketpair");
    }
    const int fds[JAIL_FD_END] = {
        [JAIL_FD_REPORT] = report[1],      [JAIL_FD_STDERR] = ends->stderr_fd,
        [JAIL_FD_RAM] = o->ram_fd,         [JAIL_FD_QMP] = ends->qmp,
        [JAIL_FD_CHANNEL] = ends->channel, [JAIL_FD_STATE] = o->state_fd,
        [JAIL_FD_SEED] = ends->seed,       [JAIL_FD_DISK] = files.disk,
        [JAIL_FD_KERNEL] = files.kernel,   [JAIL_FD_INITRD] = files.initrd
    };
    rc = jail_ask_start(jail, &r, fds, err);
    (void)close(report[1]);
    if (rc < 0) {
        (void)close(report[0]);
        return rc;
    }
    *ret_report = report[0];
    return 0;
}

int qemu_make_ends(struct qemu_pairs *p, int *channel, int *stderr_fd, struct err *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        return err_sys(err, "socketpair");
    }
    p->qmp_ours = pair[0];
    p->its.qmp = pair[1];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        return err_sys(err, "socketpair");
    }
    *channel = pair[0];
    p->its.channel = pair[1];
    if (pipe2(pair, O_CLOEXEC) < 0) {
        return err_sys(err, "pipe");
    }
    *stderr_fd = pair[0];
    p->its.stderr_fd = pair[1];
    (void)fcntl(*stderr_fd, F_SETFL, O_NONBLOCK);
    (void)fcntl(p->its.qmp, F_SETFL, O_NONBLOCK);
    (void)fcntl(p->its.channel, F_SETFL, O_NONBLOCK);
    return 0;
}

void qemu_pairs_done(struct qemu_pairs *p)
{
    int *fds[] = { &p->its.stderr_fd, &p->its.qmp, &p->its.channel, &p->its.seed, &p->qmp_ours };
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (*fds[i] >= 0) {
            (void)close(TAKE_FD(*fds[i]));
        }
    }
}
