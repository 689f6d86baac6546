#include "tests/integration/vmpool/pool_home.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"

struct pool_home pool;

const char *template_name(void)
{
    const char *name = getenv("BROOD_TEST_TEMPLATE");
    return name ? name : "python";
}

pid_t start_pool(const char *log)
{
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        (void)dup2(fd, 2);
        (void)setenv("BROOD_VMPOOL_SOCKET", pool.socket, 1);
        (void)setenv("BROOD_POOL_WARM_MIN", "1", 1);
        if (pool.user) { /* as the supervisor starts it */
            (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        }
        (void)execl(BROOD_BINARY_DIR "/brood-vmpool", "brood-vmpool", "--home", pool.home, "serve",
                    pool.user, (char *)NULL);
        _exit(127);
    }
    return pid;
}

void setup_home(void)
{
    const char *from = getenv("BROOD_TEST_HOME");
    static const char *const dirs[] = { "kernel", "templates", "snapshots" };
    if (!from || !*from) {
        cr_skip_test("BROOD_TEST_HOME is not set");
    }
    (void)snprintf(pool.home, sizeof pool.home, "/tmp/brood-test-vmpool-XXXXXX");
    cr_assert(mkdtemp(pool.home));
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
        char target[512], link[128];
        (void)snprintf(target, sizeof target, "%s/%s", from, dirs[i]);
        (void)snprintf(link, sizeof link, "%s/%s", pool.home, dirs[i]);
        (void)mkdir(target, 0711);
        cr_assert_eq(symlink(target, link), 0);
    }
    (void)snprintf(pool.socket, sizeof pool.socket, "%s/sock", pool.home);
    (void)snprintf(pool.log, sizeof pool.log, "%s/log", pool.home);
}

void setup(void)
{
    setup_home();
    pool.pid = start_pool(pool.log);
}

void teardown(void)
{
    char command[128];
    if (pool.pid > 0) {
        (void)kill(pool.pid, SIGTERM);
        (void)waitpid(pool.pid, NULL, 0);
    }
    (void)snprintf(command, sizeof command, "rm -rf %s", pool.home);
    if (pool.home[0]) {
        (void)!system(command);
    }
}

int connect_pool(void)
{
    struct err err = { 0 };
    int fd = pool_client_connect(pool.socket, 30000, &err);
    cr_assert_geq(fd, 0, "%s", err.text);
    return fd;
}

/* A lease waits 30 s at most; making the first snapshot may take longer. */
void lease(int fd, struct pool_lease *l)
{
    struct err err = { 0 };
    int rc;
    int64_t until_ms = mono_ms() + TIMEOUT_MS;
    while ((rc = pool_client_lease(fd, template_name(), false, l, &err)) == -ERR_NO_CAPACITY &&
           mono_ms() < until_ms) {
    }
    cr_assert_eq(rc, 0, "%s", err.text);
    cr_assert_gt(pool_lease_pid(l), 0);
}

bool process_there(int pid)
{
    return pid > 0 && kill(pid, 0) == 0;
}

void expect_gone(int pid)
{
    int64_t until_ms = mono_ms() + GONE_MS;
    while (process_there(pid) && mono_ms() < until_ms) {
        sleep_ms(5);
    }
    cr_assert(!process_there(pid), "process %d is still there", pid);
}

/* Descendants of a process by /proc; n of at most max. */
int descendants(int pid, int *out, int max)
{
    char path[64];
    int n = 0, child;
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
    FILE *f = fopen(path, "re");
    while (f && n < max && fscanf(f, "%d", &child) == 1) {
        out[n++] = child;
        n += descendants(child, out + n, max - n);
    }
    if (f) {
        (void)fclose(f);
    }
    return n;
}
