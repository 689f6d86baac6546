/* System calls that a job in a shared machine may not make.
 *
 * Keys and keyrings belong to the uid, which the jobs of a machine share, so they would be a way
 * from one job to the next. The others are large parts of the kernel that few programs need, and
 * more of the kernel is at stake here than in a machine of one's own. They answer ENOSYS, as a
 * kernel without them does: programs know what to do then. All of the 32-bit interface goes the
 * same way, for each of these calls has another number there. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/cell.h"

#define X32_BIT 0x40000000u
#define LOAD(field)                                                                                \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
/* to the refusal, which stands `left` rows below the last of these rows */
#define REFUSE_IF(nr, left) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), (left), 0)

static const struct sock_filter filter[] = {
    LOAD(arch),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 12),
    LOAD(nr),
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 10, 0),
    /* most calls have low numbers: they pass after one comparison more */
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SYS_add_key, 0, 8),
    REFUSE_IF(SYS_add_key, 8),
    REFUSE_IF(SYS_request_key, 7),
    REFUSE_IF(SYS_keyctl, 6),
    REFUSE_IF(SYS_perf_event_open, 5),
    REFUSE_IF(SYS_bpf, 4),
    REFUSE_IF(SYS_userfaultfd, 3),
    REFUSE_IF(SYS_io_uring_setup, 2),
    REFUSE_IF(SYS_io_uring_enter, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
};

const void *cell_filter_bytes(size_t *ret_len)
{
    *ret_len = sizeof filter;
    return filter;
}

int cell_filter_install(struct err *err)
{
    struct sock_fprog program = { .len = sizeof filter / sizeof filter[0],
                                  .filter = (struct sock_filter *)(uintptr_t)filter };
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0) {
        return err_sys(err, "seccomp");
    }
    return 0;
}
