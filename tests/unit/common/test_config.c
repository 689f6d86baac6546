#include <criterion/criterion.h>
#include <grp.h>
#include <stdio.h>
#include <sys/wait.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/config.h"

extern char **environ;

static char home[] = "/tmp/brood-test-config-XXXXXX";
static struct config c;
static struct err err;

static void setup(void)
{
    cr_assert_not_null(mkdtemp(home));
    /* what the machine has set must not decide */
    for (char **e = environ; *e;) {
        if (strncmp(*e, "BROOD_", 6) == 0) {
            char name[128];
            (void)snprintf(name, sizeof name, "%.*s", (int)(strchr(*e, '=') - *e), *e);
            (void)unsetenv(name);
            e = environ;
        } else {
            e++;
        }
    }
}

static void ini(const char *text)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/brood.ini", home);
    FILE *f = fopen(path, "we");
    cr_assert_not_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
}

static void teardown(void)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/brood.ini", home);
    (void)unlink(path);
    (void)rmdir(home);
}

TestSuite(config, .init = setup, .fini = teardown);

Test(config, defaults)
{
    cr_assert_eq(config_load(&c, home, NULL, &err), 0, "%s", err.text);
    cr_assert_str_eq(c.home, home);
    cr_assert_eq(c.rate_minimum_ms, 1000);
    cr_assert_str_eq(c.log_level, "info");
    cr_assert(c.worker_slots >= 1 && c.pool_memory_mib_max >= 1);
    cr_assert(strncmp(c.redis_url, "unix:///", 8) == 0);
    cr_assert(strstr(c.postgres_url, c.run_dir));
    cr_assert(strlen(c.run_dir) < 60, "a socket below it must fit sun_path");
    struct config same;
    cr_assert_eq(config_load(&same, home, NULL, &err), 0);
    cr_assert_str_eq(same.run_dir, c.run_dir);
}

Test(config, file_then_environment)
{
    ini("[worker]\nslots = 3\nname = w1\n[scheduler]\nlease_ms = 100\n");
    cr_assert_eq(config_load(&c, home, NULL, &err), 0, "%s", err.text);
    cr_assert_eq(c.worker_slots, 3);
    cr_assert_str_eq(c.worker_name, "w1");
    cr_assert_eq(c.sched_lease_ms, 100);
    (void)setenv("BROOD_WORKER_SLOTS", "5", 1);
    (void)setenv("BROOD_POOL_WARM_MAX", "7", 1);
    (void)setenv("BROOD_TEST_ANYTHING", "ignored", 1);
    (void)setenv("BROOD_TEMPLATES", "/nowhere", 1); /* the CLI's, no setting */
    (void)setenv("BROOD_LOGS", "/nowhere", 1);      /* the scripts' */
    cr_assert_eq(config_load(&c, home, NULL, &err), 0, "%s", err.text);
    cr_assert_eq(c.worker_slots, 5);
    cr_assert_eq(c.pool_warm_max, 7);
}

Test(config, unknown_keys_are_refused)
{
    ini("[worker]\nslot = 3\n");
    cr_assert_eq(config_load(&c, home, NULL, &err), -ERR_INVALID);
    cr_assert(strstr(err.text, "unknown key worker.slot") && strstr(err.text, "brood.ini"), "%s",
              err.text);
    ini("");
    (void)setenv("BROOD_WORKER_SLOT", "3", 1);
    cr_assert_eq(config_load(&c, home, NULL, &err), -ERR_INVALID);
    cr_assert(strstr(err.text, "BROOD_WORKER_SLOT: unknown key worker.slot"), "%s", err.text);
}

Test(config, not_an_ini_line)
{
    ini("[worker]\nslots = 3\nwhat is this\n");
    cr_assert_eq(config_load(&c, home, NULL, &err), -ERR_INVALID);
    cr_assert(strstr(err.text, "brood.ini:3"), "%s", err.text);
}

Test(config, a_named_file_must_exist)
{
    cr_assert_lt(config_load(&c, home, "/nonexistent/brood.ini", &err), 0);
    cr_assert(strstr(err.text, "/nonexistent/brood.ini"));
}

static void edge(const char *key, long long min, long long max)
{
    const long long values[] = { min, max, min - 1, max + 1 };
    for (int i = 0; i < 4; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "%lld", values[i]);
        int want = i < 2 ? 0 : -ERR_INVALID;
        cr_assert_eq(config_set(&c, key, text, "here", &err), want, "%s = %s", key, text);
    }
    cr_assert(strncmp(err.text, "here: ", 6) == 0 && strstr(err.text, key));
    const char *bad[] = { "", "x", "1x", "1.5", "0x10", "99999999999999999999" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_assert_eq(config_set(&c, key, bad[i], "here", &err), -ERR_INVALID, "%s = %s", key,
                     bad[i]);
    }
}

Test(config, every_number_at_its_edges)
{
    cr_assert_eq(config_load(&c, home, NULL, &err), 0);
#define CONF_STR(field, key, def, help)
#define CONF_INT(field, key, def, min, max, help) edge(key, min, max);
#include "common/base/config.def"
#undef CONF_STR
#undef CONF_INT
}

Test(config, long_strings)
{
    char text[CONFIG_STR_MAX + 1];
    memset(text, 'u', sizeof text);
    text[CONFIG_STR_MAX - 1] = 0;
    cr_assert_eq(config_set(&c, "redis.url", text, "here", &err), 0);
    text[CONFIG_STR_MAX - 1] = 'u';
    text[CONFIG_STR_MAX] = 0;
    cr_assert_eq(config_set(&c, "redis.url", text, "here", &err), -ERR_TOO_LARGE);
}

Test(config, printed_file_is_read_back)
{
    (void)setenv("BROOD_WORKER_SLOTS", "9", 1);
    cr_assert_eq(config_load(&c, home, NULL, &err), 0);
    char path[128];
    (void)snprintf(path, sizeof path, "%s/brood.ini", home);
    FILE *f = fopen(path, "we");
    cr_assert_not_null(f);
    config_print(&c, f);
    (void)fclose(f);
    (void)unsetenv("BROOD_WORKER_SLOTS");
    struct config back;
    cr_assert_eq(config_load(&back, home, NULL, &err), 0, "%s", err.text);
    cr_assert_eq(back.worker_slots, 9);
    cr_assert_str_eq(back.redis_url, c.redis_url);
}

/* As the worker of brood up does it: its user, the services' group, stores and states. */
static int make_kept_as(const char *kept_home, uid_t uid, int n, const gid_t *groups)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        struct err mine;
        _exit(setgroups((size_t)n, groups) < 0 || setgid(uid - 1) < 0 || setuid(uid) < 0 ||
                      config_make_kept(kept_home, &mine) < 0
                  ? 1
                  : 0);
    }
    return waitpid(pid, &status, 0) == pid ? status : -1;
}

Test(config, the_folder_of_kept_states_is_shared_by_its_group)
{
    char dir[] = "/tmp/brood-test-kept-XXXXXX", path[64];
    const gid_t groups[] = { 0x70000010, 0x70000011 };
    struct stat st;
    if (geteuid() != 0) {
        cr_skip("only root becomes another user");
    }
    cr_assert(mkdtemp(dir) && chmod(dir, 0777) == 0);
    (void)snprintf(path, sizeof path, "%s/kept", dir);
    for (int i = 0; i < 2; i++) { /* made; then there already */
        cr_assert_eq(make_kept_as(dir, 0x70000004, 2, groups), 0);
        cr_assert_eq(stat(path, &st), 0);
        cr_expect(st.st_gid == 0x70000011 && (st.st_mode & 07777) == 02770, "%u %o", st.st_gid,
                  st.st_mode & 07777);
    }
    cr_assert_eq(rmdir(path), 0);
    cr_assert_eq(make_kept_as(dir, 1000, 0, NULL), 0);
    cr_assert_eq(stat(path, &st), 0);
    cr_expect(st.st_gid == 999 && st.st_uid == 1000, "nobody's home: its first group");
    cr_assert(rmdir(path) == 0 && rmdir(dir) == 0);
}
