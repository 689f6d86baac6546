/* The root file system of the jails: QEMU's binary, the shared libraries, its firmware, the
 * preloaded half, all read-only, and an empty /proc; built once by the jailer on a tmpfs of its own
 * mount namespace, which every jail gets a copy of. */
#pragma once
#include <stdbool.h>
#include "common/base/err.h"

#define JAIL_PRELOAD_PATH "/brood-qemu-seed.so"      /* inside */
#define JAIL_QEMU_PATH "/usr/bin/qemu-system-x86_64" /* inside */

/* Leave the mount namespace (and the chroot, if in one: it is left only to mount, see root.c) for a
 * private one and build the root, which is the working folder afterwards. qemu, preload: host paths
 * ("" preload: none). kvm: with /dev/kvm. */
MUST_CHECK int jail_root_make(const char *qemu, const char *preload, bool kvm, int *ret_root,
                              struct err *err);
/* In a child with mount and pid namespaces of its own: make the working folder the root, with a
 * /proc of its own. */
MUST_CHECK int jail_root_enter(struct err *err);
