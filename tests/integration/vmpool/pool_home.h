/* A vmpool of a test's own, on a home of its own under /tmp whose folders are links to that of
 * BROOD_TEST_HOME; without one the test is skipped. For Criterion: setup and teardown. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>
#include "tests/integration/vmpool/pool_client.h"

#define TIMEOUT_MS 240000 /* the first lease may have to boot the template on a busy host */
#define GONE_MS 20000

struct pool_home {
    char home[64], socket[96], log[96];
    pid_t pid;        /* 0: ended, and waited for */
    const char *user; /* option of the user that it becomes; then it ends with who started it */
};
extern struct pool_home pool;

const char *template_name(void);
pid_t start_pool(const char *log);
void setup_home(void); /* without a vmpool */
void setup(void);
void teardown(void);
int connect_pool(void);
/* A lease waits 30 s at most; making the first snapshot may take longer. */
void lease(int fd, struct pool_lease *l);
bool process_there(int pid);
void expect_gone(int pid);
/* Descendants of a process by /proc; n of at most max. */
int descendants(int pid, int *out, int max);
