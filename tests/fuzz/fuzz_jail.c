/* What vmpool's broker may ask of the jailer, which has the rights: whatever passes the check names
 * one operation, sizes within their maxima, and a command line that is text. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "vmpool/jail/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool sized(const struct jail_request *r)
{
    return r->memory_mib >= 1 && r->memory_mib <= JAIL_MEMORY_MIB_MAX && r->vcpus >= 1 &&
           r->vcpus <= JAIL_VCPUS_MAX;
}

static void check_start(const struct jail_request *r, unsigned n_fds)
{
    bool clone = r->flags & JAIL_CLONE;
    assert(sized(r) && r->slot == 0 && (r->flags & ~(uint32_t)JAIL_FLAGS) == 0);
    assert(clone || !(r->flags & (JAIL_COPYABLE | JAIL_WRITABLE)));
    assert(!clone || r->cmdline[0] == 0);
    assert(n_fds <= JAIL_FDS_MAX && n_fds >= JAIL_FD_SEED);
}

/* The first byte: how many descriptors came with the packet. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jail_request r;
    struct err err = { 0 };
    if (size < 1) {
        return 0;
    }
    unsigned n_fds = data[0] % (JAIL_FDS_MAX + 2);
    if (jail_check_request(data + 1, size - 1, n_fds, &r, &err) < 0) {
        assert(err.code == ERR_PROTOCOL && err.text[0]);
        return 0;
    }
    assert(size - 1 == sizeof r && memcmp(data + 1, &r, sizeof r) == 0);
    assert(r.kind >= JAIL_START && r.kind < JAIL_KIND_END && n_fds == jail_fds_wanted(&r));
    assert(memchr(r.cmdline, 0, sizeof r.cmdline));
    for (const char *p = r.cmdline; *p; p++) {
        assert(*p >= ' ' && *p <= '~');
    }
    if (r.kind == JAIL_START) {
        check_start(&r, n_fds);
        return 0;
    }
    assert(r.flags == 0 && r.cmdline[0] == 0 && r.slot < JAIL_SLOTS_MAX);
    assert(r.kind == JAIL_LIMIT ? sized(&r) : r.memory_mib == 0 && r.vcpus == 0);
    assert(n_fds == (r.kind == JAIL_KILL || r.kind == JAIL_LOOK ? 1 : 0));
    return 0;
}
