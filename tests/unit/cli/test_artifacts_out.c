/* Artifacts written out: content, links, names that must not lead away, and what is missing. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/artifacts_out.h"
#include "common/base/buf.h"

static char dir[40], at[80];
static struct object_store *store;
static struct artifacts_out *out;
static struct artifacts_out_sum sum;
static struct err err;

static void run(const char *command)
{
    char line[2048];
    (void)snprintf(line, sizeof line, "cd %s && %s", dir, command);
    cr_assert_eq(system(line), 0, "%s", line);
}

static void setup(void)
{
    struct object_options o = { .driver = OBJECT_DIR };
    (void)snprintf(dir, sizeof dir, "/tmp/artifacts-out-XXXXXX");
    cr_assert(mkdtemp(dir));
    (void)snprintf(at, sizeof at, "%s/got", dir);
    (void)snprintf(o.dir, sizeof o.dir, "%s/objects", dir);
    cr_assert_eq(object_store_open(&store, &o, &err), 0, "%s", err.text);
    out = artifacts_out_new();
}

static void done(void)
{
    artifacts_out_free(out);
    object_store_free(store);
    run("rm -rf ../${PWD##*/}");
}

TestSuite(artifacts_out, .init = setup, .fini = done, .timeout = 60);

static int add(const char *branch, struct artifact a, const char *path)
{
    a.path = (char *)(uintptr_t)path;
    a.path_len = strlen(path);
    return artifacts_out_add(out, branch, &a, &err);
}

static struct artifact file(const char *content, unsigned mode)
{
    struct object_id id;
    struct artifact a = {
        .type = ARTIFACT_FILE, .mode = mode, .size = strlen(content), .stored = true
    };
    cr_assert_eq(object_put_bytes(store, content, strlen(content), &id, &err), 0, "%s", err.text);
    memcpy(a.sha256, id.hex, sizeof a.sha256);
    return a;
}

static struct artifact link_to(char *target)
{
    return (struct artifact){ .type = ARTIFACT_LINK,
                              .mode = 0777,
                              .target = target,
                              .target_len = strlen(target),
                              .stored = true };
}

static void fill(void)
{
    cr_assert_eq(add("", file("three", 0640), "z"), 0);
    cr_assert_eq(add("", file("", 0600), "out/empty"), 0);
    cr_assert_eq(add("", file("one", 0755), "out/a\xff"), 0);
    cr_assert_eq(add("", link_to("/etc/passwd"), "out/link"), 0);
}

#define CHECK                                                                                      \
    "test \"$(cat z)\" = three && test \"$(stat -c %a z)\" = 640 && test -f out/empty && "         \
    "test ! -s out/empty && test \"$(cat out/a*)\" = one && test -x out/a* && "                    \
    "test \"$(readlink out/link)\" = /etc/passwd && test $(find . -mindepth 1 | wc -l) = 5"

Test(artifacts_out, into_a_folder_twice)
{
    fill();
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(artifacts_out_dir(out, store, at, &sum, &err), 0, "%s", err.text);
        cr_expect_eq(sum.written, 4);
        cr_expect_eq(sum.missing, 0);
        cr_expect_eq(sum.bytes, 8);
        run("cd got && " CHECK);
    }
}

Test(artifacts_out, as_an_archive)
{
    char tar[100];
    fill();
    (void)snprintf(tar, sizeof tar, "%s/a.tar.zst", dir);
    run("printf old > a.tar.zst");
    cr_assert_eq(artifacts_out_tar_file(out, store, tar, &sum, &err), 0, "%s", err.text);
    cr_expect_eq(sum.written, 4);
    run("mkdir got && cd got && tar --zstd -xf ../a.tar.zst && " CHECK);
    run("test $(ls | grep -c a.tar) = 1");
}

Test(artifacts_out, branches_have_folders_in_order)
{
    char tar[100];
    cr_assert_eq(add("b/x", file("1", 0644), "r.xml"), 0);
    cr_assert_eq(add("a", file("2", 0644), "r.xml"), 0);
    cr_assert_eq(add("..", file("3", 0644), "r.xml"), 0);
    cr_assert_eq(add("./..", file("4", 0644), "r.xml"), 0);
    (void)snprintf(tar, sizeof tar, "%s/a.tar.zst", dir);
    cr_assert_eq(artifacts_out_tar_file(out, store, tar, &sum, &err), 0, "%s", err.text);
    cr_assert_eq(artifacts_out_dir(out, store, at, &sum, &err), 0, "%s", err.text);
    run("mkdir t && cd t && tar --zstd -xf ../a.tar.zst && diff -r . ../got");
    run("cd got && test $(cat b/x/r.xml a/r.xml %2E%2E/r.xml %2E/%2E%2E/r.xml) = 1234");
}

Test(artifacts_out, no_name_leads_out)
{
    cr_expect_eq(add("", file("x", 0644), "../x"), -ERR_INVALID);
    cr_expect_eq(add("", file("x", 0644), "/x"), -ERR_INVALID);
    cr_expect_eq(add("a", file("x", 0644), "b/../../../x"), -ERR_INVALID);
    cr_expect_eq(add("a//b", file("x", 0644), "x"), -ERR_INVALID);
    cr_assert_eq(add("", file("x", 0644), "same"), 0);
    cr_assert_eq(add("", file("y", 0644), "same"), 0);
    cr_expect_eq(artifacts_out_dir(out, store, at, &sum, &err), -ERR_CONFLICT);
}

Test(artifacts_out, links_that_lie_there_are_not_followed)
{
    run("mkdir got elsewhere && ln -s ../elsewhere got/out && ln -s ../elsewhere/z got/z");
    cr_assert_eq(add("", file("three", 0640), "z"), 0);
    cr_assert_eq(artifacts_out_dir(out, store, at, &sum, &err), 0, "%s", err.text);
    run("test ! -L got/z && test -z \"$(ls elsewhere)\"");
    cr_assert_eq(add("", file("one", 0640), "out/a"), 0);
    cr_expect_eq(artifacts_out_dir(out, store, at, &sum, &err), -ERR_INVALID);
    cr_expect(strstr(err.text, "symbolic link"), "%s", err.text);
    run("test -z \"$(ls elsewhere)\" && test -z \"$(ls -A got | grep brood)\"");
}

Test(artifacts_out, what_is_missing_is_told_and_the_rest_written)
{
    char tar[100];
    struct artifact big = { .type = ARTIFACT_FILE, .size = 1, .reason = ARTIFACT_TOO_LARGE };
    struct artifact gone = file("gone", 0644), torn = file("torn", 0644), odd = file("odd", 0644);
    struct object_id id;
    cr_redirect_stderr();
    cr_assert_eq(object_id_parse(&id, gone.sha256, &err), 0);
    cr_assert_eq(object_delete(store, &id, &err), 0);
    run("f=$(grep -l torn -r objects) && chmod u+w $f && printf tron > $f");
    odd.size = 2;
    cr_assert_eq(add("", big, "big"), 0);
    cr_assert_eq(add("", gone, "gone"), 0);
    cr_assert_eq(add("", torn, "torn"), 0);
    cr_assert_eq(add("", odd, "odd"), 0);
    cr_assert_eq(add("", file("there", 0644), "there"), 0);
    cr_assert_eq(artifacts_out_dir(out, store, at, &sum, &err), 0, "%s", err.text);
    cr_expect_eq(sum.written, 1);
    cr_expect_eq(sum.missing, 4);
    run("test \"$(ls -A got)\" = there");
    (void)snprintf(tar, sizeof tar, "%s/a.tar.zst", dir);
    cr_assert_eq(artifacts_out_tar_file(out, store, tar, &sum, &err), 0, "%s", err.text);
    cr_expect_eq(sum.written, 1);
    cr_expect_eq(sum.missing, 4);
    run("test \"$(tar --zstd -tf a.tar.zst)\" = there");
    FILE *said = cr_get_redirected_stderr();
    char text[2000] = "";
    (void)!fread(text, 1, sizeof text - 1, said);
    cr_expect(strstr(text, "missing: big: not stored: too_large\n"), "%s", text);
    cr_expect(strstr(text, "missing: gone: "), "%s", text);
    cr_expect(strstr(text, "missing: torn: "), "%s", text);
}

Test(artifacts_out, trouble_leaves_nothing_half_done)
{
    char tar[100];
    run("mkdir -p got/z");
    cr_assert_eq(add("", file("three", 0640), "z"), 0);
    cr_expect_eq(artifacts_out_dir(out, store, at, &sum, &err), -ERR_SYS, "a folder is there");
    run("test -z \"$(ls -A got | grep brood)\"");
    (void)snprintf(tar, sizeof tar, "%s/no/a.tar.zst", dir);
    cr_expect_eq(artifacts_out_tar_file(out, store, tar, &sum, &err), -ERR_SYS);
    (void)snprintf(at, sizeof at, "%s/no/got", dir);
    cr_expect_eq(artifacts_out_dir(out, store, at, &sum, &err), -ERR_SYS);
}
