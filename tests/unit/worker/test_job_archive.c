/* A job's archive as job files: each format, links, what is refused and whose fault it is. The
 * archives are made by tar and Python's zipfile. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/archive/source.h"
#include "common/base/buf.h"
#include "worker/job_archive.h"

static char dir[40];
static struct err err;

static void run(const char *command)
{
    char line[2048];
    (void)snprintf(line, sizeof line, "cd %s && %s", dir, command);
    cr_assert_eq(system(line), 0, "%s", line);
}

static void setup(void)
{
    (void)snprintf(dir, sizeof dir, "/tmp/job-archive-XXXXXX");
    cr_assert(mkdtemp(dir));
}

static void done(void)
{
    run("rm -rf ../${PWD##*/}");
}

TestSuite(job_archive, .init = setup, .fini = done, .timeout = 120);

static struct job_archive load(const char *name)
{
    char path[80];
    struct buf b;
    struct job_archive a = { .present = true };
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    buf_init(&b, 64 << 20);
    cr_assert_eq(buf_read_file(&b, path, &err), 0, "%s", err.text);
    a.content.data = buf_take(&b, &a.content.len);
    return a;
}

static const struct job_file *find(const struct job_file *files, int n, const char *path)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(files[i].path, path) == 0) {
            return &files[i];
        }
    }
    cr_assert_fail("%s is not there", path);
    return NULL;
}

#define TREE                                                                                       \
    "mkdir -p in/d in/empty && cd in && printf one > d/a && chmod 750 d/a && ln -s ../z d/l && "   \
    ": > z && printf two > \"$(printf 'l\\344')\" && head -c 300000 /dev/zero > big && "

static void check_tree(const char *name, bool links)
{
    struct job_archive a = load(name);
    struct job_file *files = NULL;
    int n = 0;
    cr_assert_eq(job_archive_files(&a, NULL, &files, &n, &err), 0, "%s: %s", name, err.text);
    const struct job_file *f = find(files, n, "d/a");
    cr_expect_eq(f->content.len, 3u);
    cr_expect_arr_eq(f->content.data, "one", 4);
    cr_expect_eq(f->mode, 0750u);
    cr_expect(!f->folder && !f->target);
    cr_expect_eq(find(files, n, "z")->content.len, 0u);
    cr_expect_eq(find(files, n, "big")->content.len, 300000u);
    cr_expect(find(files, n, "empty")->folder);
    if (links) {
        cr_expect_str_eq(find(files, n, "d/l")->target, "../z");
        cr_expect_eq(find(files, n, "l\xe4")->content.len, 3u);
        f = find(files, n, "same");
        cr_expect_eq(f->mode, 0750u);
        cr_expect_eq(f->content.len, 3u);
        cr_expect_arr_eq(f->content.data, "one", 3);
        cr_expect_neq(f->content.data, find(files, n, "d/a")->content.data);
    }
    job_files_free(files, n);
    free(a.content.data);
}

Test(job_archive, of_each_format)
{
    run(TREE "ln d/a same && tar --sort=name -cf ../a.tar . && tar --sort=name -czf ../a.tgz . && "
             "tar --sort=name --zstd -cf ../a.tzst .");
    run("python3 -c \"import shutil, os\nos.chdir('in')\nos.remove('same')\nos.remove('d/l')\n"
        "[os.remove(n) for n in os.listdir(b'.') if n[:1] == b'l']\n"
        "shutil.make_archive('../a', 'zip', '.')\"");
    check_tree("a.tar", true);
    check_tree("a.tgz", true);
    check_tree("a.tzst", true);
    check_tree("a.zip", false);
}

static void refused(const char *name, enum err_code code, const char *word)
{
    struct job_archive a = load(name);
    struct job_file *files = NULL;
    int n = 0;
    cr_expect_eq(job_archive_files(&a, NULL, &files, &n, &err), -(int)code, "%s: %s", name,
                 err.text);
    cr_expect_eq(err_fault(err.code), FAULT_USER);
    cr_expect(strstr(err.text, word), "%s: %s", name, err.text);
    cr_expect_null(files);
    free(a.content.data);
}

Test(job_archive, hostile_ones_are_the_users_fault)
{
    run("printf x > f && tar -P --transform 's,^f,../f,' -cf up.tar f && "
        "ln -s /etc/passwd l && tar -cf link.tar l && printf nothing > no.tar && "
        "tar -cf cut.tar f && truncate -s 513 cut.tar");
    refused("up.tar", ERR_INVALID, "f");
    refused("link.tar", ERR_INVALID, "l");
    refused("no.tar", ERR_INVALID, "");
    refused("cut.tar", ERR_INVALID, "");
}

Test(job_archive, maxima)
{
    run("truncate -s 256M all && tar --zstd -cf all.tzst all && printf x > more && "
        "tar --zstd -cf over.tzst all more");
    run("mkdir many && cd many && seq 50001 | xargs touch && tar -czf ../many.tgz * && "
        "seq 50000 | tar -czf ../most.tgz -T -");
    run("head -c 1000000 /dev/zero > m && for i in $(seq 300); do ln m h$i; done && "
        "tar -czf links.tgz m h*");
    run("python3 -c \"import sys, tarfile\nt = tarfile.TarInfo('d')\nt.type = tarfile.DIRTYPE\n"
        "sys.stdout.buffer.write(t.tobuf() * 60000 + bytes(1024))\" | zstd -q -o again.tzst");
    run("python3 -c \"import struct\nname = b'd/'\n"
        "head = struct.pack('<HHHHHIIIHH', 20, 0, 0, 0, 33, 0, 0, 0, 2, 0)\n"
        "local = b'PK\\3\\4' + head + name\n"
        "record = b'PK\\1\\2' + struct.pack('<H', 788) + head + struct.pack('<HHHII', 0, 0, 0, 16, "
        "0)"
        " + name\n"
        "open('again.zip', 'wb').write(local + record * 60000 + b'PK\\5\\6' + struct.pack("
        "'<HHHHIIH', 0, 0, 60000, 60000, 60000 * len(record), len(local), 0))\"");
    run("python3 -c \"import zipfile\nfor name, n in (('most.zip', 50000), ('more.zip', 50001)):\n"
        " z = zipfile.ZipFile(name, 'w')\n for i in range(n): z.writestr(str(i), '')\n"
        " z.close()\"");
    refused("again.zip", ERR_TOO_LARGE, "more than 50000 entries");
    refused("more.zip", ERR_TOO_LARGE, "more than 50000 entries");
    refused("over.tzst", ERR_TOO_LARGE, "");
    refused("again.tzst", ERR_TOO_LARGE, "more than 50000 entries");
    refused("many.tgz", ERR_TOO_LARGE, "");
    refused("links.tgz", ERR_TOO_LARGE, "bytes in all");
    struct job_archive a = load("most.tgz");
    struct job_file *files = NULL;
    int n = 0;
    cr_expect_eq(job_archive_files(&a, NULL, &files, &n, &err), 0, "%s", err.text);
    cr_expect_eq(n, 50000);
    job_files_free(files, n);
    free(a.content.data);
    a = load("most.zip");
    cr_expect_eq(job_archive_files(&a, NULL, &files, &n, &err), 0, "%s", err.text);
    cr_expect_eq(n, 50000);
    job_files_free(files, n);
    free(a.content.data);
    a = load("all.tzst");
    cr_expect_eq(job_archive_files(&a, NULL, &files, &n, &err), 0, "%s", err.text);
    cr_expect_eq(n, 1);
    cr_expect_eq(files[0].content.len, (size_t)JOB_ARCHIVE_BYTES_MAX);
    job_files_free(files, n);
    free(a.content.data);
}

Test(job_archive, from_the_store)
{
    run("printf x > f && tar -czf a.tgz f");
    struct job_archive inline_one = load("a.tgz"), a = { .present = true };
    struct object_options o = { .driver = OBJECT_DIR };
    struct object_store *s;
    struct object_id id;
    (void)snprintf(o.dir, sizeof o.dir, "%s/objects", dir);
    cr_assert_eq(object_store_open(&s, &o, &err), 0, "%s", err.text);
    cr_assert_eq(object_put_bytes(s, inline_one.content.data, inline_one.content.len, &id, &err),
                 0);
    memcpy(a.object, id.hex, sizeof id.hex);
    struct job_file *files = NULL;
    int n = 0;
    cr_assert_eq(job_archive_files(&a, s, &files, &n, &err), 0, "%s", err.text);
    cr_expect_eq(n, 1);
    cr_expect_str_eq(files[0].path, "f");
    job_files_free(files, n);

    cr_expect_eq(job_archive_files(&a, NULL, &files, &n, &err), -ERR_UNAVAILABLE);
    cr_expect_neq(err_fault(err.code), FAULT_USER);
    run("f=$(find objects -type f -size +0 | head -1) && chmod u+w $f && printf y >> $f");
    cr_expect_eq(job_archive_files(&a, s, &files, &n, &err), -ERR_CORRUPT, "%s", err.text);
    cr_expect_neq(err_fault(err.code), FAULT_USER);
    cr_assert_eq(object_delete(s, &id, &err), 0); /* it was there when the job was taken */
    cr_expect_eq(job_archive_files(&a, s, &files, &n, &err), -ERR_UNAVAILABLE, "%s", err.text);
    object_store_free(s);
    free(inline_one.content.data);
}

/* ---- a disk that does not give back what is on it ---- */

static ino_t bad_file; /* 0: none */
static off_t bad_from; /* reads that begin there or behind fail */
static int bad_errno;  /* 0: the file ends there */

/* In place of libc's. The store, which reads all of it before and finds it whole, reads more at a
 * time. */
ssize_t failing_pread(int fd, void *data, size_t n, off_t at) __asm__("pread");
ssize_t failing_pread(int fd, void *data, size_t n, off_t at)
{
    struct stat st;
    if (bad_file && n <= SOURCE_CHUNK_BYTES && at >= bad_from && fstat(fd, &st) == 0 &&
        st.st_ino == bad_file) {
        errno = bad_errno;
        return bad_errno ? -1 : 0;
    }
    return syscall(SYS_pread64, fd, data, n, at);
}

static struct object_store *stored(const char *name, struct job_archive *ret)
{
    struct object_options o = { .driver = OBJECT_DIR };
    struct object_store *s;
    struct object_id id;
    struct stat st;
    char path[200], part[OBJECT_PATH + 1];
    struct job_archive inline_one = load(name);
    (void)snprintf(o.dir, sizeof o.dir, "%s/objects", dir);
    cr_assert_eq(object_store_open(&s, &o, &err), 0, "%s", err.text);
    cr_assert_eq(object_put_bytes(s, inline_one.content.data, inline_one.content.len, &id, &err),
                 0);
    free(inline_one.content.data);
    *ret = (struct job_archive){ .present = true };
    memcpy(ret->object, id.hex, sizeof id.hex);
    object_id_path(&id, part);
    (void)snprintf(path, sizeof path, "%s/objects/%s", dir, part);
    cr_assert_eq(stat(path, &st), 0);
    bad_file = st.st_ino;
    return s;
}

static void not_the_users(struct object_store *s, const struct job_archive *a, const char *name,
                          const char *word)
{
    struct job_file *files = NULL;
    int n = 0;
    cr_expect_eq(job_archive_files(a, s, &files, &n, &err), -ERR_SYS, "%s", err.text);
    cr_expect_eq(err_fault(err.code), FAULT_OURS, "%s at %ld: %s", name, (long)bad_from, err.text);
    cr_expect(strstr(err.text, word), "%s", err.text);
    cr_expect_null(files);
}

Test(job_archive, a_read_that_fails_is_not_the_users_fault)
{
    run("head -c 400000 /dev/urandom > f && tar -cf a.tar f && tar -czf a.tgz f && "
        "tar --zstd -cf a.tzst f && python3 -c \"import zipfile\n"
        "z = zipfile.ZipFile('a.zip', 'w', zipfile.ZIP_DEFLATED)\nz.write('f')\nz.close()\"");
    static const char *const names[] = { "a.tar", "a.tgz", "a.tzst", "a.zip" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct job_archive a;
        struct object_store *s = stored(names[i], &a);
        for (off_t from = 0; from <= 300000; from += 100000) {
            bad_from = from;
            bad_errno = EIO;
            not_the_users(s, &a, names[i], "Input/output error");
            bad_errno = 0;
            not_the_users(s, &a, names[i], "became shorter");
        }
        bad_file = 0;
        object_store_free(s);
    }
}
