/* Guest RAM of a seed: how QEMU maps it, and what the guest has written. In the preloaded half.
 *
 * Guest RAM is a sealed file that QEMU is told to share, for then its migration leaves RAM out of
 * the device state; but it is mapped privately here (mmap is ours), so that nothing is shared in
 * fact. What the guest has written is thus what this process has of its own in that mapping, and is
 * written out on request: together with the device state that is the whole machine. */
#pragma once
#include <stdbool.h>

/* Where QEMUs cannot be copied, a machine that goes on where a frozen one stands is a new QEMU that
 * maps the same file, and over it what was written of the frozen one (its layers): each page is
 * mapped, privately too, from the newest layer that has it. So a chain of states costs the pages
 * that each of them changed, once, and a fork copies nothing. What such a machine has written is
 * again what is of no file, the next layer: vmpool reads it (dump.h). */

/* From the constructor, before QEMU maps anything: learn which file it is. Without it nothing can
 * be dumped, but the process can be copied. */
void seed_ram_init(void);
/* Before QEMU maps RAM: n layers (seed_wire.h, SEED_LAYERS), the oldest first. The fds are owned
 * from now on. When they cannot be mapped, neither can RAM. false: seed_ram_init found no RAM. */
bool seed_ram_layers(const int *fds, int n);
/* Write the pages into fd as seed_wire.h says of SEED_DUMP. The machine is paused. pagemap: this
 * process's, closed here; -1: opened here. NULL, or why not. */
const char *seed_ram_dump(int fd, int pagemap);
