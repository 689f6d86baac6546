#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/checkout.h"
#include "common/base/buf.h"

static char dir[64];

static void sh(const char *script)
{
    cleanup_buf struct buf b = { 0 };
    struct err err;
    buf_init(&b, 1 << 16);
    int rc = buf_addf(
        &b, &err,
        "cd '%s' && export HOME='%s' GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b "
        "GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b && { %s; } >/dev/null 2>&1",
        dir, dir, script);
    cr_assert_eq(rc, 0);
    cr_assert_eq(system(b.data), 0, "%s", script);
}

static void set_up(void)
{
    /* 50000 files are quick in memory */
    (void)snprintf(dir, sizeof dir, "%s/brood-checkout-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    cr_assert_not_null(mkdtemp(dir));
}

static void tear_down(void)
{
    char cmd[128];
    (void)snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    cr_assert_eq(system(cmd), 0);
}

TestSuite(checkout, .init = set_up, .fini = tear_down);

static bool no_git(void)
{
    if (system("git --version >/dev/null 2>&1") == 0) {
        return false;
    }
    cr_skip_test("no program git here");
    return true;
}

/* "mode path" a line */
static void expect(const char *below, const char *const *includes, size_t n, bool git,
                   const char *lines)
{
    char path[128];
    struct err err = { 0 };
    struct checkout c;
    (void)snprintf(path, sizeof path, "%s%s", dir, below);
    cr_assert_eq(checkout_list(path, includes, n, &c, &err), 0, "%s", err.text);
    cleanup_buf struct buf b = { 0 };
    buf_init(&b, 1 << 20);
    cr_assert_eq(buf_add_str(&b, "", &err), 0);
    for (size_t i = 0; i < c.n; i++) {
        cr_assert_eq(buf_addf(&b, &err, "%o %s\n", (unsigned)c.files[i].mode, c.files[i].path), 0);
    }
    cr_expect_str_eq(b.data, lines);
    cr_expect_eq(c.used_git, git);
    checkout_done(&c);
}

#define REPOSITORY                                                                                 \
    "git init -q .; printf 'ignored\\n*.log\\nbuild/\\n' > .gitignore; echo a > a.txt; "           \
    "echo x > run.sh; chmod 755 run.sh; mkdir -p sub build/out; echo b > sub/b.txt; "              \
    "ln -s /etc/passwd link; ln -s sub dirlink; git add -A; git commit -qm one; echo new > "       \
    "new.txt; "                                                                                    \
    "echo no > ignored; echo no > sub/x.log; echo o > build/out/o"

Test(checkout, what_git_sees)
{
    if (no_git()) {
        return;
    }
    sh(REPOSITORY
       "; echo gone > gone; git add gone; rm gone; chmod 600 a.txt; echo changed >> sub/b.txt");
    expect("", NULL, 0, true,
           "100644 .gitignore\n100644 a.txt\n120777 dirlink\n100644 new.txt\n100755 "
           "run.sh\n"
           "100644 sub/b.txt\n");
    expect("/sub", NULL, 0, true, "100644 b.txt\n");
}

Test(checkout, includes_bring_back_what_is_ignored)
{
    if (no_git()) {
        return;
    }
    sh(REPOSITORY);
    static const char *const globs[] = { "build/", "**/*.log", "a.txt", ".git/**" };
    expect("", globs, 4, true,
           "100644 .gitignore\n100644 a.txt\n100644 build/out/o\n120777 dirlink\n"
           "100644 new.txt\n"
           "100755 run.sh\n100644 sub/b.txt\n100644 sub/x.log\n");
}

Test(checkout, a_repository_inside_is_taken_without_its_git)
{
    if (no_git()) {
        return;
    }
    sh("git init -q .; echo a > a; mkdir in; cd in; git init -q .; echo b > b; git add b; git "
       "commit -qm in");
    expect("", NULL, 0, true, "100644 a\n100644 in/b\n");
}

Test(checkout, a_conflict_is_listed_once)
{
    if (no_git()) {
        return;
    }
    sh("git init -q -b m .; echo 1 > f; git add f; git commit -qm 1; git checkout -q -b o; echo 2 "
       "> f; git commit -qam 2; "
       "git checkout -q m; echo 3 > f; git commit -qam 3; ! git merge o");
    expect("", NULL, 0, true, "100644 f\n");
}

Test(checkout, the_environment_of_a_hook_does_not_matter)
{
    if (no_git()) {
        return;
    }
    sh(REPOSITORY);
    (void)setenv("GIT_DIR", "/nowhere/.git", 1);
    (void)setenv("GIT_INDEX_FILE", "/nowhere/index", 1);
    expect("/sub", NULL, 0, true, "100644 b.txt\n");
    (void)unsetenv("GIT_DIR");
    (void)unsetenv("GIT_INDEX_FILE");
}

Test(checkout, a_git_that_fails_is_not_passed_over)
{
    if (no_git()) {
        return;
    }
    sh("mkdir .git; echo secret > .env");
    struct checkout c;
    struct err err;
    /* not a repository for git, but there is a .git: taking everything would be wrong */
    cr_assert_eq(checkout_list(dir, NULL, 0, &c, &err), -ERR_INVALID);
    cr_assert(strstr(err.text, "git ls-files failed: fatal: not a git repository"), "%s", err.text);
}

Test(checkout, without_git_everything)
{
    sh("mkdir -p a/b node_modules/.git; echo 1 > a/b/c; echo 2 > a-b; echo 3 > .hidden; echo 4 > "
       "node_modules/.git/x; "
       "mkfifo pipe; ln -s nowhere broken; printf x > \"$(printf 'odd\\377\\nname')\"");
    expect("", NULL, 0, false,
           "100644 .hidden\n100644 a/b/c\n100644 a-b\n120777 broken\n100644 odd\xff\nname\n");
    struct checkout c;
    struct err err;
    cr_assert_eq(checkout_list(dir, NULL, 0, &c, &err), 0);
    cr_assert_eq(c.n_special, 1);
    cr_assert_eq(c.size_bytes, 2 + 2 + 2 + strlen("nowhere") + 1);
    checkout_done(&c);
}

Test(checkout, refused)
{
    struct checkout c;
    struct err err;
    static const char *const bad[] = { "../x" };
    cr_assert_eq(checkout_list("/nonexistent", NULL, 0, &c, &err), -ERR_NOT_FOUND);
    cr_assert_eq(checkout_list(dir, bad, 1, &c, &err), -ERR_INVALID);
    cr_assert(strstr(err.text, "include 1"));
    static const char *many[CHECKOUT_INCLUDES_MAX + 1];
    for (size_t i = 0; i <= CHECKOUT_INCLUDES_MAX; i++) {
        many[i] = "x";
    }
    cr_assert_eq(checkout_list(dir, many, CHECKOUT_INCLUDES_MAX + 1, &c, &err), -ERR_TOO_LARGE);
    cr_assert_eq(checkout_list(dir, many, CHECKOUT_INCLUDES_MAX, &c, &err), 0);
    checkout_done(&c);
}

Test(checkout, depth_at_the_maximum_and_one_above)
{
    char script[200];
    (void)snprintf(
        script, sizeof script,
        "p=.; i=0; while [ $i -lt %d ]; do p=$p/d; i=$((i+1)); done; mkdir -p $p; echo x > $p/f",
        CHECKOUT_DEPTH_MAX);
    sh(script);
    struct checkout c;
    struct err err = { 0 };
    cr_assert_eq(checkout_list(dir, NULL, 0, &c, &err), 0, "%s", err.text);
    cr_assert_eq(c.n, 1);
    checkout_done(&c);
    sh("mv d e; mkdir d; mv e d/e");
    cr_assert_eq(checkout_list(dir, NULL, 0, &c, &err), -ERR_TOO_LARGE);
    cr_assert(strstr(err.text, "nested deeper than 128"));
}

/* What the worker unpacks is what is taken: worker/job_archive.h. */
Test(checkout, links_that_leave_are_left_out_and_named)
{
    sh("mkdir -p d/e; ln -s ../../x d/e/in; ln -s ../../../x d/e/up; ln -s /etc/passwd abs; "
       "ln -s d/../.. back; echo 1 > x");
    expect("", NULL, 0, false, "120777 d/e/in\n100644 x\n");
    struct checkout c;
    struct err err = { 0 };
    cr_assert_eq(checkout_list(dir, NULL, 0, &c, &err), 0, "%s", err.text);
    cr_assert_eq(c.n_left_out, 3);
    cr_expect_str_eq(c.left_out[0], "abs: a link to an absolute path");
    cr_expect_str_eq(c.left_out[1], "back: a link with \"..\" behind a name");
    cr_expect_str_eq(c.left_out[2], "d/e/up: a link that leaves the work folder");
    cr_expect_eq(c.size_bytes, 2 + strlen("../../x"));
    checkout_done(&c);
    sh("i=0; while [ $i -lt 20 ]; do ln -s / l$i; i=$((i+1)); done");
    cr_assert_eq(checkout_list(dir, NULL, 0, &c, &err), 0, "%s", err.text);
    cr_expect_eq(c.n_left_out, 23);
    checkout_done(&c);
}

static void expect_too_large(const char *words)
{
    struct checkout c;
    struct err err = { 0 };
    cr_assert_eq(checkout_list(dir, NULL, 0, &c, &err), -ERR_TOO_LARGE);
    cr_expect(strstr(err.text, words), "%s", err.text);
}

Test(checkout, the_workers_maxima)
{
    struct checkout c;
    struct err err = { 0 };
    sh("truncate -s 256M all");
    cr_assert_eq(checkout_list(dir, NULL, 0, &c, &err), 0, "%s", err.text);
    checkout_done(&c);
    sh("echo 1 > one");
    expect_too_large("the checkout has 257 MiB; at most 256");
    sh("rm all one");
    /* 200 + 1 + 199 bytes, then one more */
    sh("d=$(printf '%0200d' 0); mkdir $d; echo 1 > $d/$(printf '%0199d' 0)");
    cr_assert_eq(checkout_list(dir, NULL, 0, &c, &err), 0, "%s", err.text);
    checkout_done(&c);
    sh("cd 0*; mv 0* $(printf '%0200d' 0)");
    expect_too_large(": a path of more than 400 bytes");
    sh("rm -r 0*; mkdir d; cd d; seq 49999 | xargs touch"); /* and their folder: 50000 */
    cr_assert_eq(checkout_list(dir, NULL, 0, &c, &err), 0, "%s", err.text);
    checkout_done(&c);
    sh("touch one");
    expect_too_large("more than 50000 files and folders");
}
