/* Layers and kept states on disk: what is stored, what is not, and that damage is noticed. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <sodium.h>

#include "common/base/cleanup.h"
#include "vmpool/kept.h"
#include "vmpool/ram.h"
#include "vmpool/seed_wire.h"

#define MIB (1ull << 20)
#define RAM (4 * MIB)
#define PAGE LAYER_PAGE_BYTES

static int file(const char *name, uint64_t bytes)
{
    int fd;
    struct err err;
    cr_assert_eq(ram_memfd(name, bytes, &fd, &err), 0, "%s", err.text);
    return fd;
}

static void put(int fd, uint64_t page, char c)
{
    char data[PAGE];
    memset(data, c, sizeof data);
    cr_assert_eq(pwrite(fd, data, PAGE, (off_t)(page * PAGE)), (ssize_t)PAGE);
}

/* The first byte of a page, or '?' when its bytes differ. */
static char get(int fd, uint64_t page)
{
    char data[PAGE];
    cr_assert_eq(pread(fd, data, PAGE, (off_t)(page * PAGE)), (ssize_t)PAGE);
    for (size_t i = 1; i < PAGE; i++) {
        if (data[i] != data[0]) {
            return '?';
        }
    }
    return data[0];
}

static int state_file(const char *text)
{
    int fd = file("state", 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    return fd;
}

static int dump_file(void)
{
    return file("dump", SEED_DUMP_MAP(RAM) + RAM / PAGE / 8);
}

/* Page `page` was written by the guest, and holds c now. */
static void change(int dump, uint64_t page, char c)
{
    uint8_t bits;
    off_t at = (off_t)(SEED_DUMP_MAP(RAM) + page / 8);
    put(dump, page, c);
    cr_assert_eq(pread(dump, &bits, 1, at), 1);
    bits |= (uint8_t)(1u << page % 8);
    cr_assert_eq(pwrite(dump, &bits, 1, at), 1);
}

Test(layer, holds_the_pages_that_differ_and_nothing_else)
{
    struct err err = { 0 };
    struct layer_facts f;
    int base = file("base", RAM), dump = dump_file(), state = state_file("device state");
    int out = file("out", 0), ram = file("ram", RAM), got_state = file("got", 0);
    for (uint64_t p = 0; p < 8; p++) {
        put(base, p, 'b');
        put(ram, p, 'b'); /* the reader's copy of the parent */
    }
    change(dump, 2, 'x');
    change(dump, 3, 'b'); /* written, but as it was */
    change(dump, 4, 0);   /* written with zeros */
    change(dump, 900, 'y');
    change(dump, 1023, 'z');
    change(dump, 700, 0); /* zeros on zeros */
    struct layer_source from = {
        .ram_bytes = RAM, .base_fd = base, .dumps = { dump }, .n_dumps = 1, .state_fd = state
    };
    cr_assert_eq(layer_write(out, &from, &f, &err), 0, "%s", err.text);
    cr_assert_eq(f.pages, 3);
    cr_assert_eq(f.zero_pages, 1);
    cr_assert_eq(layer_read(out, f.sha256, RAM, ram, got_state, &err), 0, "%s", err.text);
    cr_assert_eq(get(ram, 1), 'b');
    cr_assert_eq(get(ram, 2), 'x');
    cr_assert_eq(get(ram, 3), 'b');
    cr_assert_eq(get(ram, 4), 0);
    cr_assert_eq(get(ram, 900), 'y');
    cr_assert_eq(get(ram, 1023), 'z');
    cr_assert_eq(get(ram, 700), 0);
    char text[32] = "";
    cr_assert_eq(pread(got_state, text, sizeof text, 0), 12);
    cr_assert_str_eq(text, "device state");
}

/* Of a line of states that were each written out: a page is as the last one has it. */
Test(layer, of_several_dumps_the_newest_counts)
{
    struct err err = { 0 };
    struct layer_facts f;
    int base = file("base", RAM), old = dump_file(), young = dump_file(), last = dump_file();
    int out = file("out", 0), ram = file("ram", RAM), state = state_file("s");
    for (uint64_t p = 0; p < 8; p++) {
        put(base, p, 'b');
        put(ram, p, 'b');
    }
    change(old, 1, 'o');
    change(old, 2, 'o');
    change(old, 3, 'o');
    change(old, 4, 'o');
    change(young, 2, 'y');
    change(young, 3, 0);
    change(young, 4, 'b'); /* as it was at first */
    change(last, 2, 'l');
    change(last, 900, 'l');
    struct layer_source from = { .ram_bytes = RAM,
                                 .base_fd = base,
                                 .dumps = { old, young, last },
                                 .n_dumps = 3,
                                 .state_fd = state };
    cr_assert_eq(layer_write(out, &from, &f, &err), 0, "%s", err.text);
    cr_assert_eq(f.pages, 3);
    cr_assert_eq(f.zero_pages, 1);
    cr_assert_eq(layer_read(out, f.sha256, RAM, ram, -1, &err), 0, "%s", err.text);
    static const char want[] = { 'b', 'o', 'l', 0, 'b', 'b' };
    for (uint64_t p = 0; p < sizeof want; p++) {
        cr_expect_eq(get(ram, p), want[p], "page %llu", (unsigned long long)p);
    }
    cr_expect_eq(get(ram, 900), 'l');
}

Test(layer, flat_needs_no_parent)
{
    struct err err = { 0 };
    struct layer_facts f;
    int base = file("base", RAM), dump = dump_file(), state = state_file("s");
    int out = file("out", 0), ram = file("ram", RAM);
    put(base, 0, 'b');
    put(base, 5, 'b');
    change(dump, 5, 0);
    change(dump, 6, 'x');
    struct layer_source from = { .ram_bytes = RAM,
                                 .base_fd = base,
                                 .dumps = { dump },
                                 .n_dumps = 1,
                                 .state_fd = state,
                                 .flat = true };
    cr_assert_eq(layer_write(out, &from, &f, &err), 0, "%s", err.text);
    cr_assert_eq(f.pages, 2);
    cr_assert_eq(f.zero_pages, 0);
    cr_assert_eq(layer_read(out, f.sha256, RAM, ram, -1, &err), 0, "%s", err.text);
    cr_assert_eq(get(ram, 0), 'b');
    cr_assert_eq(get(ram, 5), 0);
    cr_assert_eq(get(ram, 6), 'x');
}

/* QEMU may be in hostile hands. */
Test(layer, refuses_a_dump_that_is_short_and_a_state_that_is_empty)
{
    struct err err = { 0 };
    struct layer_facts f;
    int base = file("base", RAM), dump = dump_file(), out = file("out", 0);
    struct layer_source from = { .ram_bytes = RAM,
                                 .base_fd = base,
                                 .dumps = { dump },
                                 .n_dumps = 1,
                                 .state_fd = file("state", 0) };
    cr_assert_eq(layer_write(out, &from, &f, &err), -ERR_TOO_LARGE);
    from.state_fd = state_file("s");
    cr_assert_eq(ftruncate(dump, (off_t)RAM), 0);
    cr_assert_eq(layer_write(out, &from, &f, &err), -ERR_PROTOCOL);
}

Test(layer, damage_is_noticed)
{
    struct err err = { 0 };
    struct layer_facts f;
    char c = 'q', sum[LAYER_SHA_TEXT];
    int base = file("base", RAM), out = file("out", 0), ram = file("ram", RAM);
    put(base, 7, 'b');
    struct layer_source from = {
        .ram_bytes = RAM, .base_fd = base, .state_fd = state_file("s"), .flat = true
    };
    cr_assert_eq(layer_write(out, &from, &f, &err), 0, "%s", err.text);
    cr_assert_eq(layer_read(out, f.sha256, 2 * RAM, ram, -1, &err), -ERR_INVALID);
    cr_assert_eq(pwrite(out, &c, 1, (off_t)f.file_bytes / 2), 1);
    cr_assert_eq(layer_read(out, f.sha256, RAM, ram, -1, &err), -ERR_CORRUPT);
    /* no layer at all, but the sum is right */
    uint8_t digest[crypto_hash_sha256_BYTES];
    (void)crypto_hash_sha256(digest, (const uint8_t *)"junk", 4);
    (void)sodium_bin2hex(sum, sizeof sum, digest, sizeof digest);
    cr_assert_eq(layer_read(state_file("junk"), sum, RAM, ram, -1, &err), -ERR_INVALID);
}

/* ---- on disk ---- */

static struct kept_manifest of(const char *parent)
{
    struct kept_manifest m = { .machine = { .memory_mib = RAM / MIB, .vcpus = 1 } };
    (void)snprintf(m.machine.template_name, sizeof m.machine.template_name, "t");
    (void)snprintf(m.parent, sizeof m.parent, "%s", parent);
    return m;
}

/* Keep a state with page `page` = c over base; its id. */
static void keep(const char *home, int base, const char *parent, uint64_t page, char c,
                 char id[KEPT_ID_TEXT])
{
    struct err err = { 0 };
    struct kept_manifest m = of(parent);
    int dump = dump_file(), state = state_file("s");
    change(dump, page, c);
    struct layer_source from = { .ram_bytes = RAM,
                                 .base_fd = base,
                                 .dumps = { dump },
                                 .n_dumps = 1,
                                 .state_fd = state,
                                 .flat = !parent[0] };
    cr_assert_eq(kept_write(home, &from, &m, id, &err), 0, "%s", err.text);
    (void)close(dump);
    (void)close(state);
}

Test(kept, a_chain_is_loaded_from_its_first_layer_on)
{
    char home[] = "/tmp/brood-test-kept-XXXXXX", root[KEPT_ID_TEXT], child[KEPT_ID_TEXT];
    char again[KEPT_ID_TEXT], path[160];
    struct err err = { 0 };
    struct kept_manifest m;
    int ram, state, base = file("base", RAM);
    uint64_t used;
    cr_assert(mkdtemp(home));
    put(base, 0, 'b');
    keep(home, base, "", 1, 'r', root);
    keep(home, base, root, 2, 'c', child);
    keep(home, base, root, 2, 'c', again);
    cr_assert_str_eq(child, again, "the same state has the same name");
    cr_assert_eq(kept_read_manifest(home, child, &m, &err), 0, "%s", err.text);
    cr_assert_eq(m.depth, 2);
    cr_assert_str_eq(m.parent, root);
    cr_assert_gt(m.chain_bytes, m.layer_bytes);
    uint64_t room = 3 * LAYER_PAGE_BYTES;
    cr_expect_eq(kept_load(home, child, &m, room - 1, &ram, &state, &used, &err), -ERR_NO_CAPACITY);
    cr_expect_eq(used, room);
    cr_assert_eq(kept_load(home, child, &m, room, &ram, &state, &used, &err), 0, "%s", err.text);
    cr_assert_eq(get(ram, 0), 'b');
    cr_assert_eq(get(ram, 1), 'r');
    cr_assert_eq(get(ram, 2), 'c');
    cr_assert_eq(used, 3 * PAGE);
    cr_assert_lt(pwrite(ram, "x", 1, 0), 0, "it is sealed");

    (void)snprintf(path, sizeof path, "%s/kept/%s/manifest.json", home, root);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(kept_load(home, child, &m, room, &ram, &state, &used, &err), -ERR_NOT_FOUND);
    cr_assert(strstr(err.text, root), "%s", err.text);

    (void)snprintf(path, sizeof path, "%s/kept/%s/manifest.json", home, child);
    int fd = open(path, O_WRONLY | O_APPEND);
    cr_assert_eq(write(fd, " ", 1), 1);
    (void)close(fd);
    cr_assert_eq(kept_read_manifest(home, child, &m, &err), -ERR_CORRUPT);
    char command[200];
    (void)snprintf(command, sizeof command, "rm -rf %s", home);
    cr_assert_eq(system(command), 0);
}

static void cut(const char *home, const char *id, const char *name)
{
    char path[160];
    (void)snprintf(path, sizeof path, "%s/kept/%s/%s", home, id, name);
    cr_assert_eq(truncate(path, 0), 0);
}

static bool folder_there(const char *home, const char *id)
{
    char path[160];
    (void)snprintf(path, sizeof path, "%s/kept/%s", home, id);
    return access(path, F_OK) == 0;
}

/* What a crash of the host has cut short is not there: whoever wants it fetches it again. */
Test(kept, a_torn_state_is_put_away)
{
    char home[] = "/tmp/brood-test-kept-XXXXXX", root[KEPT_ID_TEXT], child[KEPT_ID_TEXT];
    char command[200];
    struct err err = { 0 };
    struct kept_manifest m;
    int ram, state, base = file("base", RAM);
    uint64_t used;
    cr_assert(mkdtemp(home));
    keep(home, base, "", 1, 'r', root);
    keep(home, base, root, 2, 'c', child);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(kept_find(home, child, &m, &err), 0, "%s", err.text);
        if (i == 2) {
            cut(home, child, "layer"); /* both at once */
        }
        cut(home, root, i == 1 ? "manifest.json" : "layer");
        cr_expect_eq(kept_load(home, child, &m, RAM, &ram, &state, &used, &err), -ERR_NOT_FOUND,
                     "%d: %s", i, err.text);
        cr_expect(strstr(err.text, root), "%s", err.text);
        cr_expect(!folder_there(home, root));
        cr_expect_eq(folder_there(home, child), i < 2);
        keep(home, base, "", 1, 'r', root);
        keep(home, base, root, 2, 'c', child);
        cr_assert_eq(kept_load(home, child, &m, RAM, &ram, &state, &used, &err), 0, "%s", err.text);
        (void)close(ram);
        (void)close(state);
    }
    cut(home, child, "manifest.json");
    cr_expect_eq(kept_find(home, child, &m, &err), -ERR_NOT_FOUND);
    cr_expect(!folder_there(home, child));
    /* and who keeps the same again does not take a torn one for it */
    cut(home, root, "layer");
    keep(home, base, "", 1, 'r', root);
    keep(home, base, root, 2, 'c', child);
    cut(home, child, "manifest.json");
    keep(home, base, root, 2, 'c', child);
    cr_assert_eq(kept_find(home, child, &m, &err), 0, "%s", err.text);
    cr_expect_eq(kept_load(home, child, &m, RAM, &ram, &state, &used, &err), 0, "%s", err.text);
    (void)snprintf(command, sizeof command, "rm -rf %s", home);
    cr_assert_eq(system(command), 0);
}

Test(kept, ids_are_digests)
{
    cr_assert(!kept_id_ok(""));
    cr_assert(!kept_id_ok("../../../../../../../../../../../../../../../../../../../etc/passw"));
    cr_assert(!kept_id_ok("0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef"));
    cr_assert(kept_id_ok("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"));
}
