/* tar.zst archives: the same bytes for the same content, read back by us and by other programs. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/archive/pack.h"
#include "common/base/buf.h"

static char dir[32];
static int dir_fd;
static struct err err;

static void run(const char *command)
{
    char line[1024];
    (void)snprintf(line, sizeof line, "cd %s && %s", dir, command);
    cr_assert_eq(system(line), 0, "%s", line);
}

static void setup(void)
{
    (void)snprintf(dir, sizeof dir, "/tmp/pack-XXXXXX");
    cr_assert(mkdtemp(dir));
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void done(void)
{
    run("rm -rf ../${PWD##*/}");
    (void)close(dir_fd);
}

TestSuite(pack, .init = setup, .fini = done, .timeout = 60);

static int to_buf(void *arg, const void *data, size_t n, struct err *e)
{
    return buf_add(arg, data, n, e);
}

static void pack_all(struct buf *out, const char *const *paths, size_t n)
{
    struct pack *p;
    buf_init(out, 64 << 20);
    cr_assert_eq(pack_new(&p, to_buf, out, &err), 0, "%s", err.text);
    cr_assert_eq(pack_files(p, dir_fd, paths, n, &err), 0, "%s", err.text);
    cr_assert_eq(pack_finish(p, &err), 0, "%s", err.text);
    pack_free(p);
}

static void save(const struct buf *b, const char *name)
{
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    cr_assert_eq(write(fd, b->data, b->len), (ssize_t)b->len);
    (void)close(fd);
}

#define TREE                                                                                       \
    "mkdir -p in/d in/empty && cd in && printf one > d/a && printf two > \"$(printf 'l\\344')\" "  \
    "&& ln -s ../../out d/l && : > zero && chmod 700 d/a && head -c 3000000 /dev/urandom > big "   \
    "&& mkdir -p $(printf 'x%.0s' $(seq 150))/$(printf 'y%.0s' $(seq 150)) && "                    \
    "(cd x*/y* && printf deep > f)"

static const char *const tree[] = { "in/zero",  "in/d/l", "in/d/a", "in/l\xe4",
                                    "in/empty", "in/big", "in/d/a" };

Test(pack, the_same_bytes_whatever_surrounds_them)
{
    cleanup_buf struct buf a = { 0 }, b = { 0 };
    run(TREE);
    pack_all(&a, tree, 7);
    run("find in -type f | xargs -d '\\n' touch -h -d 1999-01-01 && chmod 755 in/d/a && "
        "chmod 600 in/zero && chmod 500 in/d");
    static const char *const turned[] = { "in/big",  "in/d/a",  "in/empty", "in/d/l",
                                          "in/zero", "in/zero", "in/l\xe4" };
    pack_all(&b, turned, 7);
    cr_assert_eq(a.len, b.len);
    cr_expect_eq(memcmp(a.data, b.data, a.len), 0);
    run("chmod 755 in/d && printf 2 > in/d/a");
    cleanup_buf struct buf c = { 0 };
    pack_all(&c, tree, 7);
    cr_expect(c.len != a.len || memcmp(a.data, c.data, a.len) != 0);
}

Test(pack, other_programs_read_it)
{
    cleanup_buf struct buf a = { 0 };
    char deep[400] = "in/", *at = deep + 3;
    run(TREE);
    memset(at, 'x', 150);
    at[150] = '/';
    memset(at + 151, 'y', 150);
    memcpy(at + 301, "/f", 3);
    const char *paths[8];
    memcpy(paths, tree, sizeof tree);
    paths[7] = deep;
    pack_all(&a, paths, 8);
    save(&a, "t.tar.zst");
    run("for p in 'tar --zstd' bsdtar; do rm -rf o && mkdir o && $p -xf t.tar.zst -C o && "
        "diff -r --no-dereference in o/in && test -x o/in/d/a && test -L o/in/d/l && "
        "test -d o/in/empty || exit 1; done");
    run("zstd -qdc t.tar.zst > t.tar && python3 -c 'import tarfile\n"
        "for t in tarfile.open(\"t.tar\"):\n"
        " assert (t.uid, t.gid, t.uname, t.gname, t.mtime) == (0, 0, \"\", \"\", 946684800), t\n"
        " assert t.mode in (0o755, 0o644, 0o777), t'");
}

struct back {
    int entries;
    uint64_t bytes;
};

static int on_entry(void *arg, const struct unpack_entry *e, struct err *why)
{
    struct back *b = arg;
    (void)why;
    b->entries++;
    cr_expect(e->type != UNPACK_LINK || strcmp(e->target, "anywhere") == 0);
    return 0;
}

static int on_data(void *arg, const void *data, size_t n, struct err *why)
{
    (void)data;
    (void)why;
    ((struct back *)arg)->bytes += n;
    return 0;
}

Test(pack, entries_from_callbacks_and_back)
{
    cleanup_buf struct buf out = { 0 };
    struct pack *p;
    buf_init(&out, 1 << 20);
    cr_assert_eq(pack_new(&p, to_buf, &out, &err), 0);
    struct unpack_entry a = { .path = "a", .path_len = 1, .mode = 0640, .size = 6 };
    struct unpack_entry l = {
        .path = "b/l", .path_len = 3, .type = UNPACK_LINK, .target = "anywhere", .target_len = 8
    };
    struct unpack_entry zero = { .path = "b/z", .path_len = 3 };
    cr_assert_eq(pack_entry(p, &a, &err), 0);
    cr_assert_eq(pack_data(p, "abc", 3, &err), 0);
    cr_assert_eq(pack_data(p, "def", 3, &err), 0);
    cr_assert_eq(pack_entry(p, &l, &err), 0);
    cr_assert_eq(pack_entry(p, &zero, &err), 0);
    cr_assert_eq(pack_finish(p, &err), 0);
    pack_free(p);
    struct back back = { 0 };
    struct unpack_limits limits = {
        .entries_max = 10, .file_bytes_max = 10, .total_bytes_max = 10, .path_bytes_max = 10
    };
    struct unpack_sink sink = { .entry = on_entry, .data = on_data, .arg = &back };
    cr_expect_eq(unpack_memory(out.data, out.len, &limits, &sink, &err), 3, "%s", err.text);
    cr_expect_eq(back.entries, 3);
    cr_expect_eq(back.bytes, 6);
}

Test(pack, what_is_refused)
{
    cleanup_buf struct buf out = { 0 };
    struct pack *p;
    buf_init(&out, 1 << 20);
    cr_assert_eq(pack_new(&p, to_buf, &out, &err), 0);
    struct unpack_entry m = { .path = "m", .path_len = 1, .mode = 0640, .size = 2 };
    cr_assert_eq(pack_entry(p, &m, &err), 0);
    cr_expect_eq(pack_data(p, "abc", 3, &err), -ERR_INVALID);
    struct unpack_entry next = { .path = "n", .path_len = 1 };
    cr_expect_eq(pack_entry(p, &next, &err), -ERR_INVALID);
    cr_expect(strstr(err.text, "not complete"), "%s", err.text);
    cr_expect_eq(pack_finish(p, &err), -ERR_INVALID);
    cr_assert_eq(pack_data(p, "ab", 2, &err), 0);
    static const char *const bad[] = { "m", "a", "m/x", "/n", "n/../o", "n//o", "" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct unpack_entry e = { .path = bad[i], .path_len = strlen(bad[i]) };
        cr_expect_eq(pack_entry(p, &e, &err), -ERR_INVALID, "%s", bad[i]);
    }
    pack_free(p);

    run("mkfifo f && : > a");
    static const char *const paths[] = { "f", "nothing", "a/b", "../x", "/etc/passwd" };
    static const int codes[] = { -ERR_INVALID, -ERR_NOT_FOUND, -ERR_NOT_FOUND, -ERR_INVALID,
                                 -ERR_INVALID };
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(pack_new(&p, to_buf, &out, &err), 0);
        cr_expect_eq(pack_files(p, dir_fd, &paths[i], 1, &err), codes[i], "%s", err.text);
        cr_expect(strstr(err.text, paths[i]), "%s", err.text);
        pack_free(p);
    }
}

static int full(void *arg, const void *data, size_t n, struct err *e)
{
    size_t *left = arg;
    (void)data;
    if (n > *left) {
        return err_set(e, ERR_TOO_LARGE, "the disk is full");
    }
    *left -= n;
    return 0;
}

Test(pack, a_writer_that_fails)
{
    run("head -c 2000000 /dev/urandom > r");
    static const char *const paths[] = { "r" };
    for (size_t room = 0; room < 2000000; room += 300000) {
        size_t left = room;
        struct pack *p;
        int rc = pack_new(&p, full, &left, &err);
        if (rc == 0) {
            rc = pack_files(p, dir_fd, paths, 1, &err);
            rc = rc ? rc : pack_finish(p, &err);
            pack_free(p);
        }
        cr_expect_eq(rc, -ERR_TOO_LARGE, "room %zu: %d %s", room, rc, err.text);
        cr_expect_str_eq(err.text, "the disk is full");
    }
}

Test(pack, shorter_than_it_was)
{
    run("printf 12345 > s");
    cleanup_buf struct buf out = { 0 };
    struct pack *p;
    buf_init(&out, 1 << 20);
    int fd = openat(dir_fd, "s", O_RDWR | O_CLOEXEC);
    cr_assert_eq(pack_new_fd(&p, openat(dir_fd, "o", O_WRONLY | O_CREAT | O_CLOEXEC, 0644), &err),
                 0);
    struct unpack_entry e = { .path = "s", .path_len = 1, .size = 5 };
    cr_assert_eq(pack_entry(p, &e, &err), 0);
    cr_assert_eq(ftruncate(fd, 2), 0);
    cr_expect_eq(pack_data_fd(p, fd, 5, &err), -ERR_CONFLICT);
    cr_expect(strstr(err.text, "became shorter"), "%s", err.text);
    pack_free(p);
    (void)close(fd);
}
