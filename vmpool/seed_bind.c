#include "vmpool/seed_bind.h"

#include <linux/capability.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vmpool/seed_filter.h"

bool seed_bind_thread(void)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2] = { 0 };
    return syscall(SYS_capset, &head, none) == 0;
}

bool seed_bind_copy(const struct seed_request *request, const int *cgroups, pid_t parent)
{
    uint32_t uid = request->uid;
    for (int i = 0; i < request->n_cgroups; i++) {
        if (write(cgroups[i], "0", 1) != 1) {
            return false;
        }
        (void)close(cgroups[i]);
    }
    if (uid != 0 &&
        (syscall(SYS_setresgid, uid, uid, uid) < 0 || syscall(SYS_setresuid, uid, uid, uid) < 0 ||
         !seed_bind_thread() || prctl(PR_SET_DUMPABLE, 0) < 0 || !filter_strict())) {
        return false;
    }
    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent;
}
