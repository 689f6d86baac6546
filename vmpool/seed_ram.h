/* Guest RAM of a seed: how QEMU maps it, and what the guest has written. In the preloaded half.
 *
 * Guest RAM is a sealed file that QEMU is told to share, for then its migration leaves RAM out of
 * the device state; but it is mapped privately here (mmap is ours), so that nothing is shared in
 * fact. What the guest has written is thus what this process has of its own in that mapping, and is
 * written out on request: together with the device state that is the whole machine. */
#pragma once

/* From the constructor, before QEMU maps anything: learn which file it is. Without it nothing can
 * be dumped, but the process can be copied. */
void seed_ram_init(void);
/* Write the pages into fd as seed_wire.h says of SEED_DUMP. The machine is paused. pagemap: this
 * process's, closed here; -1: opened here. NULL, or why not. */
const char *seed_ram_dump(int fd, int pagemap);
