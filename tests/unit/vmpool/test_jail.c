/* The jailer's checks: what it takes from a broker that may be anybody's by now. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "vmpool/jail/check.h"
#include "vmpool/jail/uids.h"

static struct err err;

static int check(const struct jail_request *r, unsigned n_fds)
{
    struct jail_request out;
    return jail_check_request(r, sizeof *r, n_fds, &out, &err);
}

/* Written out again, apart from check.c: what each kind may hold. */
static bool right(const struct jail_request *r)
{
    bool size = r->memory_mib >= 1 && r->memory_mib <= 65536 && r->vcpus >= 1 && r->vcpus <= 64;
    bool none = r->memory_mib == 0 && r->vcpus == 0;
    bool text = r->cmdline[0] != 0;
    switch (r->kind) {
    case JAIL_START:
        return r->slot == 0 && r->flags < 32 && size && !((r->flags & 4) && (r->flags & 1)) &&
               !((r->flags & 4) && !(r->flags & 2)) &&
               !((r->flags & 16) && (r->flags & 4 || !(r->flags & 2))) && !(text && (r->flags & 2));
    case JAIL_RESERVE:
    case JAIL_KILL:
    case JAIL_LOOK:
        return r->slot == 0 && r->flags == 0 && none && !text;
    case JAIL_LIMIT:
        return r->slot < 2048 && r->flags == 0 && size && !text;
    case JAIL_RELEASE:
        return r->slot < 2048 && r->flags == 0 && none && !text;
    default:
        return false;
    }
}

Test(jail, the_whole_product_of_requests)
{
    static const uint32_t kinds[] = { 0, 1, 2, 3, 4, 5, 6, 7, 1u << 31, UINT32_MAX };
    static const uint32_t slots[] = { 0, 1, 2047, 2048, UINT32_MAX };
    static const uint32_t memories[] = { 0, 1, 65536, 65537, UINT32_MAX };
    static const uint32_t vcpus[] = { 0, 1, 64, 65, UINT32_MAX };
    static const char *const texts[] = { "", "quiet" };
    int good = 0, bad = 0;
    for (size_t k = 0; k < 10; k++) {
        for (size_t s = 0; s < 5; s++) {
            for (uint32_t f = 0; f < 34; f++) {
                for (size_t m = 0; m < 25; m++) {
                    for (size_t t = 0; t < 2; t++) {
                        struct jail_request r = { .kind = kinds[k],
                                                  .slot = slots[s],
                                                  .flags = f == 33 ? 1u << 31 : f,
                                                  .memory_mib = memories[m / 5],
                                                  .vcpus = vcpus[m % 5] };
                        (void)snprintf(r.cmdline, sizeof r.cmdline, "%s", texts[t]);
                        unsigned n = jail_fds_wanted(&r);
                        bool is_right = check(&r, n) == 0;
                        cr_assert_eq(is_right, right(&r), "kind %u slot %u flags %u size %u/%u",
                                     r.kind, r.slot, r.flags, r.memory_mib, r.vcpus);
                        cr_assert_lt(check(&r, n + 1), 0);
                        cr_assert(n == 0 || check(&r, n - 1) < 0);
                        good += is_right;
                        bad += !is_right;
                    }
                }
            }
        }
    }
    cr_assert_gt(good, 60);
    cr_assert_gt(bad, 80000);
}

Test(jail, only_whole_requests)
{
    struct jail_request r = { .kind = JAIL_RESERVE }, out;
    char more[sizeof r + 1] = { 0 };
    memcpy(more, &r, sizeof r);
    cr_expect_eq(jail_check_request(more, sizeof r, 0, &out, &err), 0);
    for (size_t n = 0; n < sizeof r; n++) {
        cr_expect_eq(jail_check_request(more, n, 0, &out, &err), -ERR_PROTOCOL);
    }
    cr_expect_eq(jail_check_request(more, sizeof more, 0, &out, &err), -ERR_PROTOCOL);
}

Test(jail, command_lines)
{
    struct jail_request r = { .kind = JAIL_START, .memory_mib = 256, .vcpus = 1 };
    unsigned n = jail_fds_wanted(&r);
    cr_expect_eq(n, 8u);
    memset(r.cmdline, 'x', sizeof r.cmdline - 1); /* the maximum */
    cr_expect_eq(check(&r, n), 0);
    memset(r.cmdline, 'x', sizeof r.cmdline); /* one above: no end */
    cr_expect_lt(check(&r, n), 0);
    for (int c = 0; c < 256; c++) {
        memset(r.cmdline, 0, sizeof r.cmdline);
        r.cmdline[0] = 'a';
        r.cmdline[1] = (char)c;
        r.cmdline[2] = 'b'; /* behind a NUL there may be nothing */
        cr_expect_eq(check(&r, n) == 0, c >= ' ' && c <= '~', "character %d", c);
    }
}

/* ---- descriptors ---- */

enum thing {
    NOTHING,
    PIPE,
    STREAM,
    PACKETS,
    INET,
    MEMFD,
    SEALED,
    SMALL,
    FILE_R,
    FILE_RW,
    FOLDER,
    DEVICE,
    PATH,
    THINGS
};

static int things[THINGS];

static void make_things(void)
{
    int p[2];
    char path[] = "/tmp/brood-test-jail-XXXXXX";
    things[NOTHING] = -1;
    cr_assert_eq(pipe(p), 0);
    things[PIPE] = p[1];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
    things[STREAM] = p[0];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, p), 0);
    things[PACKETS] = p[0];
    things[INET] = socket(AF_INET, SOCK_STREAM, 0);
    things[MEMFD] = memfd_create("m", MFD_ALLOW_SEALING);
    things[SEALED] = memfd_create("s", MFD_ALLOW_SEALING);
    things[SMALL] = memfd_create("t", MFD_ALLOW_SEALING);
    cr_assert_eq(ftruncate(things[MEMFD], 2 << 20), 0);
    cr_assert_eq(ftruncate(things[SEALED], 2 << 20), 0);
    cr_assert_eq(ftruncate(things[SMALL], (2 << 20) - 4096), 0);
    cr_assert_eq(fcntl(things[SEALED], F_ADD_SEALS,
                       F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL),
                 0);
    things[FILE_RW] = mkstemp(path);
    things[FILE_R] = open(path, O_RDONLY);
    things[PATH] = open(path, O_PATH);
    (void)unlink(path);
    things[FOLDER] = open("/", O_RDONLY | O_DIRECTORY);
    things[DEVICE] = open("/dev/zero", O_RDONLY);
    for (int i = 1; i < THINGS; i++) {
        cr_assert_geq(things[i], 0);
    }
}

Test(jail, every_descriptor_is_looked_at)
{
    static const uint32_t flags[] = { 0,
                                      JAIL_DISK,
                                      JAIL_CLONE,
                                      JAIL_CLONE | JAIL_COPYABLE,
                                      JAIL_CLONE | JAIL_COPYABLE | JAIL_DISK,
                                      JAIL_CLONE | JAIL_WRITABLE | JAIL_KVM };
    make_things();
    for (size_t f = 0; f < sizeof flags / sizeof flags[0]; f++) {
        struct jail_request r = {
            .kind = JAIL_START, .flags = flags[f], .memory_mib = 2, .vcpus = 1
        };
        bool clone = flags[f] & JAIL_CLONE;
        const enum thing good[JAIL_FD_END] = {
            [JAIL_FD_REPORT] = PACKETS,
            [JAIL_FD_STDERR] = PIPE,
            [JAIL_FD_RAM] = clone ? SEALED : MEMFD,
            [JAIL_FD_QMP] = STREAM,
            [JAIL_FD_CHANNEL] = STREAM,
            [JAIL_FD_STATE] = clone ? FILE_R : MEMFD,
            [JAIL_FD_SEED] = flags[f] & (JAIL_COPYABLE | JAIL_WRITABLE) ? PACKETS : NOTHING,
            [JAIL_FD_DISK] = flags[f] & JAIL_DISK ? FILE_R : NOTHING,
            [JAIL_FD_KERNEL] = clone ? NOTHING : FILE_R,
            [JAIL_FD_INITRD] = clone ? NOTHING : FILE_R,
        };
        int fds[JAIL_FD_END];
        for (int i = 0; i < JAIL_FD_END; i++) {
            fds[i] = things[good[i]];
        }
        cr_assert_eq(jail_check_fds(&r, fds, &err), 0, "%s", err.text);
        for (int i = 0; i < JAIL_FD_END; i++) {
            for (int t = 0; t < THINGS; t++) {
                /* what a boot writes its state to may be any memfd that is not sealed */
                bool memfd = t == MEMFD || t == SMALL;
                bool ok = t == (int)good[i] || (i == JAIL_FD_STATE && !clone && memfd);
                fds[i] = things[t];
                cr_expect_eq(jail_check_fds(&r, fds, &err) == 0, ok, "flags %u: %d as %d", flags[f],
                             t, i);
            }
            fds[i] = things[good[i]];
        }
    }
}

/* ---- users ---- */

Test(jail, a_user_is_not_used_again_while_somebody_has_it)
{
    struct jail_uids u;
    uint32_t uid, first = 0;
    const uint32_t base = 0x7ffff000;
    cleanup_close int proc = open("/proc", O_RDONLY | O_DIRECTORY);
    jail_uids_init(&u, base, proc);
    cr_assert_eq(jail_uids_take(&u, &first, &err), 0);
    int ready[2];
    cr_assert_eq(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        char ok = setresuid(first, first, first) == 0;
        (void)!write(ready[1], &ok, 1);
        (void)pause();
        _exit(0);
    }
    char ok = 0;
    cr_assert_eq(read(ready[0], &ok, 1), 1);
    jail_uids_give_back(&u, first); /* a slot says so, the process does not */
    for (uint32_t i = 1; i < 3 * JAIL_UIDS; i++) {
        cr_assert_eq(jail_uids_take(&u, &uid, &err), 0);
        cr_assert(jail_uids_own(&u, uid));
        cr_assert(!ok || uid != first, "given away after %u", i); /* not root: cannot be tested */
        jail_uids_give_back(&u, uid);
    }
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

Test(jail, all_users_taken)
{
    struct jail_uids u;
    uint32_t uid;
    cleanup_close int proc = open("/proc", O_RDONLY | O_DIRECTORY);
    jail_uids_init(&u, 0x7fffe000, proc);
    for (uint32_t i = 0; i < JAIL_UIDS; i++) {
        cr_assert_eq(jail_uids_take(&u, &uid, &err), 0);
    }
    cr_expect_eq(jail_uids_take(&u, &uid, &err), -ERR_NO_CAPACITY);
    jail_uids_give_back(&u, 0x7fffe000 + 7);
    cr_assert_eq(jail_uids_take(&u, &uid, &err), 0);
    cr_expect_eq(uid, 0x7fffe007u);
}
