/* Which run folders `brood up` sweeps away: only those that are surely nobody's. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/leftovers.h"

static char top[] = "/tmp/brood-sweep-XXXXXX";

static const char *at(const char *name)
{
    static char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", top, name);
    return path;
}

static void folder(const char *name, long age_s)
{
    struct timespec t[2] = { { .tv_sec = time(NULL) - age_s }, { .tv_sec = time(NULL) - age_s } };
    cr_assert_eq(mkdir(at(name), 0711), 0);
    cr_assert_eq(utimensat(AT_FDCWD, at(name), t, 0), 0);
}

static bool there(const char *name)
{
    return access(at(name), F_OK) == 0;
}

Test(leftovers, sweep_takes_only_old_empty_run_folders_of_others)
{
    static struct config c;
    cr_assert(mkdtemp(top));
    (void)snprintf(c.run_dir, sizeof c.run_dir, "%s/0a0b0c0d", top);
    folder("0a0b0c0d", 3600); /* our own */
    folder("11111111", 3600);
    folder("2222222f", 61 + 30);
    folder("33333333", 0);    /* somebody is starting */
    folder("4444444G", 3600); /* not a name of ours */
    folder("555555555", 3600);
    folder("66666666", 3600); /* in use */
    cr_assert_eq(mkdir(at("66666666/pids"), 0711), 0);
    struct timespec old[2] = { { .tv_sec = time(NULL) - 3600 }, { .tv_sec = time(NULL) - 3600 } };
    cr_assert_eq(utimensat(AT_FDCWD, at("66666666"), old, 0), 0);
    cr_assert_eq(symlink("/", at("77777777")), 0);

    cr_expect_eq(leftovers_sweep(&c), 2);
    cr_expect(there("0a0b0c0d"));
    cr_expect_not(there("11111111"));
    cr_expect_not(there("2222222f"));
    cr_expect(there("33333333"));
    cr_expect(there("4444444G"));
    cr_expect(there("555555555"));
    cr_expect(there("66666666/pids"));
    cr_expect(there("77777777"));

    /* Making the folders again makes an old one young: the next sweep leaves it alone. */
    struct err err;
    (void)snprintf(c.home, sizeof c.home, "%s/home", top);
    folder("88888888", 3600);
    (void)snprintf(c.run_dir, sizeof c.run_dir, "%s/88888888", top);
    cr_assert_eq(config_make_dirs(&c, &err), 0);
    (void)snprintf(c.run_dir, sizeof c.run_dir, "%s/0a0b0c0d", top);
    cr_expect_eq(leftovers_sweep(&c), 0);
    cr_expect(there("88888888"));

    (void)unlink(at("77777777"));
    static const char *const names[] = { "0a0b0c0d", "33333333", "4444444G",      "555555555",
                                         "88888888", "home",     "66666666/pids", "66666666" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)rmdir(at(names[i]));
    }
    cr_expect_eq(rmdir(top), 0);
}
