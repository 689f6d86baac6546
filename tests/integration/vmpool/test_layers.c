/* States that are written out (vmpool/dump.c) and gone on from (vmpool/seed_ram.c), on a program of
 * ours instead of QEMU: its RAM is a sealed file and the layers over it, and what it writes is its
 * own. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "tests/integration/vmpool/layers_target.h"
#include "tests/integration/vmpool/preloaded.h"
#include "vmpool/dump.h"
#include "vmpool/engine_qemu.h"
#include "vmpool/qemu_seed.h"
#include "vmpool/ram.h"
#include "vmpool/seed_wire.h"

#define RAM_BYTES (256ull << 20)
#define BASE_PAGES 64u /* of it that are not zeros */
#define PAGES (RAM_BYTES / LAYERS_PAGE)

struct target {
    pid_t pid;
    int ask;
};

static struct err err;

static int base_of(char c)
{
    int fd;
    char page[LAYERS_PAGE];
    memset(page, c, sizeof page);
    cr_assert_eq(ram_memfd("base", RAM_BYTES, &fd, &err), 0, "%s", err.text);
    for (uint32_t p = 0; p < BASE_PAGES; p++) {
        cr_assert_eq(pwrite(fd, page, sizeof page, (off_t)p * LAYERS_PAGE), (ssize_t)sizeof page);
    }
    cr_assert_eq(ram_seal_whole(fd, &err), 0, "%s", err.text);
    return fd;
}

/* n < 0: whoever starts it says nothing of layers. */
static void start(struct target *t, int ram, const int *layers, int n)
{
    int ask[2], control[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ask), 0);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control), 0);
    if (n >= 0) {
        cr_assert_eq(seed_layers(control[0], layers, (size_t)n, &err), 0, "%s", err.text);
    }
    const int from[] = { ram, ask[1], control[1] }, to[] = { 3, 4, SEED_FD };
    t->pid = preloaded_start(BROOD_BINARY_DIR "/tests/bin/brood-layers-target", SEED_ENV_WRITE,
                             from, to);
    (void)close(ask[1]);
    (void)close(control[0]);
    (void)close(control[1]);
    t->ask = ask[0];
}

static void stop(struct target *t)
{
    (void)kill(t->pid, SIGKILL);
    (void)waitpid(t->pid, NULL, 0);
    (void)close(t->ask);
}

static char command(const struct target *t, enum layers_verb verb, uint32_t page, char value)
{
    struct layers_command c = { .page = page, .verb = (char)verb, .value = value };
    char answer = '?';
    cr_assert_eq(send(t->ask, &c, sizeof c, MSG_NOSIGNAL), (ssize_t)sizeof c);
    cr_assert_eq(recv(t->ask, &answer, 1, 0), 1, "the target has ended");
    return answer;
}

static char peek(const struct target *t, uint32_t page)
{
    return command(t, LAYERS_PEEK, page, 0);
}

static void fill(const struct target *t, uint32_t page, char c)
{
    (void)command(t, LAYERS_FILL, page, c);
}

/* What the target has written, sealed. files: the base, then its layers. */
static int dump(const struct target *t, const int *files, size_t n, uint64_t *ret_bytes)
{
    int fds[JAIL_LOOK_FDS], out;
    cr_assert_eq(qemu_look(t->pid, fds, &err), 0, "%s", err.text);
    struct machine_look l = { .maps = fds[JAIL_LOOK_MAPS],
                              .pagemap = fds[JAIL_LOOK_PAGEMAP],
                              .mem = fds[JAIL_LOOK_MEM] };
    cr_assert_eq(dump_new(RAM_BYTES, &out, &err), 0, "%s", err.text);
    cr_assert_eq(dump_read(&l, files, n, RAM_BYTES, out, ret_bytes, &err), 0, "%s", err.text);
    cr_assert_eq(dump_seal(out, &err), 0, "%s", err.text);
    cr_assert_lt(pwrite(out, "x", 1, 0), 0, "a dump is never changed again");
    for (int i = 0; i < JAIL_LOOK_FDS; i++) {
        (void)close(fds[i]);
    }
    return out;
}

Test(layers, a_line_of_states, .timeout = 120)
{
    struct target root, child, other, grandchild;
    uint64_t bytes;
    int files[4] = { base_of('b') };
    start(&root, files[0], NULL, 0);
    cr_expect_eq(peek(&root, 3), 'b');
    cr_expect_eq(peek(&root, PAGES - 1), 0);
    fill(&root, 3, 'r');
    fill(&root, 4, 'r');
    fill(&root, PAGES - 1, 'r');
    files[1] = dump(&root, files, 1, &bytes);
    cr_expect_eq(bytes, 3 * LAYERS_PAGE);
    stop(&root);

    start(&child, files[0], &files[1], 1);
    start(&other, files[0], &files[1], 1);
    cr_expect_eq(peek(&child, 2), 'b');
    cr_expect_eq(peek(&child, 3), 'r');
    cr_expect_eq(peek(&child, PAGES - 1), 'r');
    fill(&child, 4, 'c');
    fill(&child, 5, 'c');
    cr_expect_eq(peek(&other, 4), 'r', "a sibling's page is one's own");
    cr_expect_eq(peek(&other, 5), 'b');
    files[2] = dump(&child, files, 2, &bytes);
    cr_expect_eq(bytes, 2 * LAYERS_PAGE, "what was only inherited is not written again");
    stop(&child);
    stop(&other);

    start(&grandchild, files[0], &files[1], 2);
    static const char want[] = { 'b', 'b', 'b', 'r', 'c', 'c', 'b' };
    for (uint32_t p = 0; p < sizeof want; p++) {
        cr_expect_eq(peek(&grandchild, p), want[p], "page %u", p);
    }
    cr_expect_eq(peek(&grandchild, PAGES - 1), 'r');
    fill(&grandchild, 3, 'g');
    files[3] = dump(&grandchild, files, 3, &bytes);
    cr_expect_eq(bytes, LAYERS_PAGE);
    stop(&grandchild);
    for (int i = 0; i < 4; i++) {
        (void)close(files[i]);
    }
}

/* More runs than a process may have mappings: every second page is written. */
Test(layers, of_scattered_pages, .timeout = 120)
{
    struct target root, child;
    uint64_t bytes;
    int files[2] = { base_of('b') };
    start(&root, files[0], NULL, 0);
    (void)command(&root, LAYERS_SCATTER, 0, 0);
    files[1] = dump(&root, files, 1, &bytes);
    cr_expect_eq(bytes, PAGES / 2 * LAYERS_PAGE);
    stop(&root);
    start(&child, files[0], &files[1], 1);
    cr_expect_eq(command(&child, LAYERS_LOOK, BASE_PAGES, 0), 'y');
    stop(&child);
    (void)close(files[0]);
    (void)close(files[1]);
}

/* Without its layers a machine would be another one: it does not start. */
Test(layers, that_are_not_told, .timeout = 60)
{
    struct target t;
    int base = base_of('b'), status = 0;
    start(&t, base, NULL, -1);
    cr_assert_eq(waitpid(t.pid, &status, 0), t.pid);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 127, "status %x", (unsigned)status);
    (void)close(t.ask);
    (void)close(base);
}

Test(layers, of_a_process_that_has_ended, .timeout = 60)
{
    struct target t;
    int base = base_of('b'), other = base_of('o'), out, fds[JAIL_LOOK_FDS];
    uint64_t bytes = 7;
    start(&t, base, NULL, 0);
    fill(&t, 3, 'x');
    cr_assert_eq(qemu_look(t.pid, fds, &err), 0, "%s", err.text);
    struct machine_look l = { .maps = fds[JAIL_LOOK_MAPS],
                              .pagemap = fds[JAIL_LOOK_PAGEMAP],
                              .mem = fds[JAIL_LOOK_MEM] };
    cr_assert_eq(dump_new(RAM_BYTES, &out, &err), 0, "%s", err.text);
    cr_expect_eq(dump_read(&l, &other, 1, RAM_BYTES, out, &bytes, &err), -ERR_INTERNAL);
    stop(&t);
    cr_expect_lt(dump_read(&l, &base, 1, RAM_BYTES, out, &bytes, &err), 0);
    cr_expect_eq(bytes, 7);
}
