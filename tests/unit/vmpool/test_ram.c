#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmpool/ram.h"

#define MIB (1u << 20)

/* 4 MiB with one page of data at 1 MiB, one written page of zeros at 2 MiB, and data in the last
 * page. */
static int make_ram(void)
{
    int fd;
    char page[4096];
    cr_assert_eq(ram_memfd("test", 4 * MIB, &fd, NULL), 0);
    memset(page, 'a', sizeof page);
    cr_assert_eq(pwrite(fd, page, sizeof page, MIB), 4096);
    cr_assert_eq(pwrite(fd, page, sizeof page, 4 * MIB - 4096), 4096);
    memset(page, 0, sizeof page);
    cr_assert_eq(pwrite(fd, page, sizeof page, 2 * MIB), 4096);
    return fd;
}

Test(ram, seal_gives_zero_pages_back_and_forbids_writing)
{
    uint64_t used;
    struct stat st;
    int fd = make_ram();
    cr_assert_eq(ram_seal(fd, 4 * MIB, &used, NULL), 0);
    cr_assert_eq(used, 8192);
    cr_assert_eq(fstat(fd, &st), 0);
    cr_assert_eq(st.st_blocks * 512, 8192);
    cr_assert_lt(pwrite(fd, "x", 1, 0), 0);
    cr_assert_lt(ftruncate(fd, MIB), 0);
    cr_assert_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    char *copy = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    cr_assert_neq(copy, MAP_FAILED);
    copy[MIB] = 'b'; /* a clone's write stays its own */
    char c;
    cr_assert_eq(pread(fd, &c, 1, MIB), 1);
    cr_assert_eq(c, 'a');
    (void)close(fd);
}

Test(ram, store_and_load_agree_and_notice_damage)
{
    char top[] = "/tmp/brood-test-ram-XXXXXX", dir[128], path[160];
    struct manifest m = { .memory_mib = 4, .vcpus = 1 }, back;
    struct err err = { 0 };
    int state, ram2, state2;
    cr_assert(mkdtemp(top));
    (void)snprintf(dir, sizeof dir, "%s/snapshots/t/d", top);
    int ram = make_ram();
    cr_assert_eq(ram_memfd("state", 0, &state, NULL), 0);
    cr_assert_eq(write(state, "state", 5), 5);
    for (int round = 0; round < 2; round++) { /* the second replaces the first */
        cr_assert_eq(ram_store(dir, ram, state, &m, &err), 0, "%s", err.text);
    }
    cr_assert_eq(ram_read_manifest(dir, &back, &err), 0, "%s", err.text);
    cr_assert_eq(back.ram_bytes_used, 8192);
    cr_assert_eq(back.state_bytes, 5);
    cr_assert_eq(ram_load(dir, &back, &ram2, &state2, &err), 0, "%s", err.text);
    char c;
    cr_assert_eq(pread(ram2, &c, 1, 4 * MIB - 1), 1);
    cr_assert_eq(c, 'a');
    cr_assert_lt(pwrite(ram2, "x", 1, 0), 0);
    (void)close(ram2);
    (void)close(state2);

    (void)snprintf(path, sizeof path, "%s/ram", dir);
    int fd = open(path, O_WRONLY);
    cr_assert_eq(pwrite(fd, "b", 1, MIB + 7), 1);
    (void)close(fd);
    cr_assert_eq(ram_load(dir, &back, &ram2, &state2, &err), -ERR_MISMATCH);
    cr_assert(strstr(err.text, "ram"), "%s", err.text);
    cr_assert_eq(truncate(path, MIB), 0);
    cr_assert_eq(ram_load(dir, &back, &ram2, &state2, &err), -ERR_MISMATCH);
    char command[200];
    (void)snprintf(command, sizeof command, "rm -r %s", top);
    cr_assert_eq(system(command), 0);
    (void)close(ram);
    (void)close(state);
}

Test(ram, an_empty_state_is_refused)
{
    int fd;
    cr_assert_eq(ram_memfd("state", 0, &fd, NULL), 0);
    cr_assert_eq(ram_seal_whole(fd, NULL), -ERR_INTERNAL);
    (void)close(fd);
}
