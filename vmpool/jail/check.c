#include "vmpool/jail/check.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

bool jail_fd_wanted(uint32_t flags, enum jail_fd which)
{
    switch (which) {
    case JAIL_FD_SEED:
        return flags & (JAIL_COPYABLE | JAIL_WRITABLE);
    case JAIL_FD_DISK:
        return flags & JAIL_DISK;
    case JAIL_FD_KERNEL:
    case JAIL_FD_INITRD:
        return !(flags & JAIL_CLONE);
    case JAIL_FD_REPORT:
    case JAIL_FD_STDERR:
    case JAIL_FD_RAM:
    case JAIL_FD_QMP:
    case JAIL_FD_CHANNEL:
    case JAIL_FD_STATE:
        return true;
    case JAIL_FD_END:
        break;
    }
    return false;
}

unsigned jail_fds_wanted(const struct jail_request *r)
{
    unsigned n = 0;
    if (r->kind == JAIL_KILL || r->kind == JAIL_LOOK) {
        return 1;
    }
    for (int i = 0; r->kind == JAIL_START && i < JAIL_FD_END; i++) {
        n += jail_fd_wanted(r->flags, (enum jail_fd)i);
    }
    return n;
}

/* Printable text of the kernel's command line, or none at all; zeros behind it. */
static bool cmdline_ok(const struct jail_request *r)
{
    size_t len = strnlen(r->cmdline, sizeof r->cmdline);
    bool boots = r->kind == JAIL_START && !(r->flags & JAIL_CLONE);
    if (len == sizeof r->cmdline || (len > 0 && !boots)) {
        return false;
    }
    for (size_t i = 0; i < sizeof r->cmdline; i++) {
        unsigned char c = (unsigned char)r->cmdline[i];
        if (i < len ? c < ' ' || c > '~' : c != 0) {
            return false;
        }
    }
    return true;
}

static bool size_ok(const struct jail_request *r)
{
    return r->memory_mib >= 1 && r->memory_mib <= JAIL_MEMORY_MIB_MAX && r->vcpus >= 1 &&
           r->vcpus <= JAIL_VCPUS_MAX;
}

static const char *wrong(const struct jail_request *r)
{
    bool no_size = r->memory_mib == 0 && r->vcpus == 0;
    switch (r->kind) {
    case JAIL_START:
        if (r->flags & ~(uint32_t)JAIL_FLAGS || r->slot) {
            return "flags";
        }
        if (r->flags & JAIL_COPYABLE && (r->flags & JAIL_KVM || !(r->flags & JAIL_CLONE))) {
            return "only an emulated clone can be copied";
        }
        if (r->flags & JAIL_WRITABLE && (r->flags & JAIL_COPYABLE || !(r->flags & JAIL_CLONE))) {
            return "only a clone that is not copied can be written out";
        }
        return !size_ok(r) ? "size" : NULL;
    case JAIL_LIMIT:
        return r->flags || r->slot >= JAIL_SLOTS_MAX || !size_ok(r) ? "slot or size" : NULL;
    case JAIL_RELEASE:
        return r->flags || r->slot >= JAIL_SLOTS_MAX || !no_size ? "slot" : NULL;
    case JAIL_RESERVE:
    case JAIL_KILL:
    case JAIL_LOOK:
        return r->flags || r->slot || !no_size ? "a field that has no meaning here" : NULL;
    default:
        return "kind";
    }
}

int jail_check_request(const void *bytes, size_t len, unsigned n_fds,
                       struct jail_request *ret_request, struct err *err)
{
    struct jail_request r;
    if (len != sizeof r) {
        return err_set(err, ERR_PROTOCOL, "request of %zu bytes", len);
    }
    memcpy(&r, bytes, sizeof r);
    const char *why = wrong(&r);
    why = why ? why : cmdline_ok(&r) ? NULL : "command line";
    why = why ? why : n_fds == jail_fds_wanted(&r) ? NULL : "number of descriptors";
    if (why) {
        return err_set(err, ERR_PROTOCOL, "request %u: %s", r.kind, why);
    }
    *ret_request = r;
    return 0;
}

static bool is_socket(int fd, int type)
{
    int have = -1, domain = -1;
    socklen_t len = sizeof have, domain_len = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &have, &len) == 0 && have == type &&
           getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_len) == 0 && domain == AF_UNIX;
}

static bool is_readable_file(int fd)
{
    struct stat st;
    int mode = fcntl(fd, F_GETFL);
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && mode >= 0 &&
           (mode & (O_ACCMODE | O_PATH)) == O_RDONLY;
}

/* F_GET_SEALS fails on everything but memfds (and tmpfs files, which have F_SEAL_SEAL from birth).
 */
static bool is_ram(int fd, uint64_t bytes, bool sealed)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
           (uint64_t)st.st_size == bytes &&
           (sealed ? (seals & F_SEAL_WRITE) != 0 : (seals & F_SEAL_SEAL) == 0);
}

static bool fd_ok(const struct jail_request *r, enum jail_fd which, int fd)
{
    struct stat st;
    bool clone = r->flags & JAIL_CLONE;
    switch (which) {
    case JAIL_FD_REPORT:
    case JAIL_FD_SEED:
        return is_socket(fd, SOCK_SEQPACKET);
    case JAIL_FD_QMP:
    case JAIL_FD_CHANNEL:
        return is_socket(fd, SOCK_STREAM);
    case JAIL_FD_STDERR:
        return fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
    case JAIL_FD_RAM:
        return is_ram(fd, (uint64_t)r->memory_mib << 20, clone);
    case JAIL_FD_STATE: /* what a boot writes is a memfd too: no file of the host is ever written */
        return clone ? is_readable_file(fd) : fcntl(fd, F_GET_SEALS) == 0;
    case JAIL_FD_DISK:
    case JAIL_FD_KERNEL:
    case JAIL_FD_INITRD:
        return is_readable_file(fd);
    case JAIL_FD_END:
        break;
    }
    return false;
}

int jail_check_fds(const struct jail_request *r, const int fds[JAIL_FD_END], struct err *err)
{
    for (int i = 0; i < JAIL_FD_END; i++) {
        bool wanted = jail_fd_wanted(r->flags, (enum jail_fd)i);
        if (wanted ? !fd_ok(r, (enum jail_fd)i, fds[i]) : fds[i] >= 0) {
            return err_set(err, ERR_PROTOCOL, "descriptor %d is not what it should be", i);
        }
    }
    return 0;
}
