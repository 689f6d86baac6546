/* What the pool asks of a virtual machine monitor. One const struct of functions per engine; the
 * pool knows no other way to a VM. All calls are made on the loop's thread and none blocks; what
 * takes time is answered through the listener, which is called from the loop and never from inside
 * a call of the pool's (machine_destroy included).
 *
 * Life: start -> (RUNNING | LOADED) -> resume / pause / save in any sensible order -> destroy ->
 * EXITED -> free. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <event2/event.h>
#include "common/base/err.h"

#define ENGINE_TEXT_MAX 200

/* How a running machine is frozen, so that others can go on from there. */
enum machine_freeze {
    FREEZE_NONE,
    FREEZE_COPY, /* it stays, paused, and is copied as it stands (copy) */
    FREEZE_WRITE /* it is written out (save, look) and ends; what goes on is loaded from that */
};

/* What this host can do. Strings are part of a snapshot's identity. */
struct engine_host {
    char name[32];                /* "qemu-tcg", "qemu-kvm" */
    char reason[ENGINE_TEXT_MAX]; /* why this accelerator */
    char vmm_version[64];         /* of the binary that will run */
    char machine[256];            /* machine type with its options */
    char cpu_model[64];
    uint32_t tsc_khz; /* rate of the counter a guest reads, 0 when the guest learns it otherwise */
    bool kvm;
    bool sandbox; /* the VMM has a system call filter of its own to be asked for */
    enum machine_freeze freeze;
};

#define MACHINE_LAYERS_MAX 16

enum machine_event {
    MACHINE_RUNNING, /* a boot has begun (the guest's hello comes on the channel) */
    MACHINE_LOADED, /* a clone holds the snapshot's state and stands still; schedstat_fd is valid */
    MACHINE_PAUSED, /* answer to pause */
    MACHINE_SAVED,  /* answer to save: state_fd is complete */
    MACHINE_FAILED, /* text says why; only destroy is sensible now */
    MACHINE_EXITED  /* the process is gone and reaped; text is the tail of its stderr */
};
typedef void machine_listener(void *user, enum machine_event event, const char *text);

struct machine_options {
    uint32_t memory_mib, vcpus;
    int ram_fd;   /* memfd of memory_mib; borrowed during start */
    bool share;   /* guest writes go to ram_fd (a template's machine), else copy-on-write */
    int state_fd; /* clone: device state, a description of its own (the offset is used); boot: where
                     save writes. Borrowed during start */
    bool clone;
    enum machine_freeze freeze; /* of a clone: how it may be frozen later */
    bool seed;                  /* with FREEZE_COPY: only its copies run a tenant's code */
    /* With FREEZE_WRITE: dumps of RAM (dump.h), the oldest first; these pages lie over those of
     * ram_fd, copy-on-write. Sealed, borrowed during start */
    const int *layers;
    size_t n_layers;  /* at most MACHINE_LAYERS_MAX */
    const char *disk; /* read-only root file system, raw; opened during start */
    const char *kernel, *initrd, *cmdline; /* boot only */
};

/* /proc/PID of a machine. */
struct machine_look {
    int maps, pagemap, mem;
};

struct machine;

struct engine {
    const char *name;
    /* Look at the host: which accelerator, and the strings of a manifest. Under 2 s. */
    int (*probe)(struct engine_host *ret_host, struct err *err);
    int (*start)(struct event_base *base, const struct engine_host *host,
                 const struct machine_options *options, machine_listener *listener, void *user,
                 struct machine **ret_machine, struct err *err);
    /* May this machine, once loaded, be copied when it is paused? Only one started with
     * FREEZE_COPY, or a copy itself. */
    bool (*can_copy)(const struct machine *m);
    /* May this machine, once loaded, be written out when it is paused: its device state by save,
     * its RAM by whoever looks? Only one started with FREEZE_WRITE. */
    bool (*can_write)(const struct machine *m);
    /* Its process from outside, to read; -ERR_X, or the caller's fds. */
    int (*look)(const struct machine *m, struct machine_look *ret_look, struct err *err);
    /* A machine that continues where origin stands; origin stays paused and can be copied again.
     * Answer: LOADED or FAILED, then EXITED. origin may be destroyed and freed before or after its
     * copies. */
    int (*copy)(struct machine *origin, machine_listener *listener, void *user,
                struct machine **ret_machine, struct err *err);
    /* copy, a paused copy of origin that was exercised, shows what later copies will write first.
     * No more than a hint; -ERR_X when it could not be taken. */
    int (*learn)(struct machine *origin, const struct machine *copy, struct err *err);
    /* Stop the machine and write its device state to state_fd, or where that is -1 to the state_fd
     * of start. ram_fd: a file of zeros for the RAM that differs from the file the machine was
     * started on, in the form of seed_wire.h's SEED_DUMP (a machine for which can_copy holds); -1:
     * RAM is in the shared file of start, or read by others. Both borrowed. Answer: SAVED or
     * FAILED. */
    int (*save)(struct machine *m, int state_fd, int ram_fd, struct err *err);
    int (*pause)(struct machine *m, struct err *err);  /* answer: PAUSED or FAILED */
    int (*resume)(struct machine *m, struct err *err); /* no answer; FAILED when it could not */
    int (*channel_fd)(
        const struct machine *m);           /* the host's end; owned by the machine until taken */
    int (*take_channel)(struct machine *m); /* the caller owns it from now on */
    int (*schedstat_fd)(
        const struct machine *m); /* of the vCPU thread; owned by the machine; -1 before LOADED */
    int (*process_id)(const struct machine *m);
    void (*destroy)(struct machine *m); /* SIGKILL; answer: EXITED. Twice is harmless */
    void (*free)(
        struct machine *m); /* after EXITED only, or when the loop has ended (kills and reaps) */
};

extern const struct engine engine_qemu;
/* The engine this build uses. */
const struct engine *engine_default(void);
