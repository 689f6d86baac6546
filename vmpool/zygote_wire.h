/* Between vmpool and a QEMU that waits to be copied (zygote_preload.c): SOCK_SEQPACKET on fd
 * ZYGOTE_FD.
 *
 * zygote -> vmpool: struct zygote_reply with pid 0 once it waits; then one for each request, in
 * order, with the pidfd. vmpool -> zygote: the child's arguments, each ended by NUL, with
 * ZYGOTE_FDS fds: stderr, then those that become 3, 4, ... End of file: no more requests; the
 * zygote ends when its last child has. */
#pragma once
#include <stdint.h>

#define ZYGOTE_FD 3
#define ZYGOTE_FDS 5
#define ZYGOTE_ARGC 64 /* fixed: argc was passed to QEMU's main before the arguments were known */
#define ZYGOTE_FILLER "-nodefaults" /* harmless when given again */
#define ZYGOTE_REQUEST_MAX 8192
#define ZYGOTE_ENV "BROOD_ZYGOTE=1"

struct zygote_reply {
    int32_t pid; /* 0: ready; < 0: -errno of fork */
};
