#include "tests/support/child_server.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void child(const char *script, const char *dir, int in, int out, pid_t parent)
{
    char path[600];
    (void)snprintf(path, sizeof path, "%s/%s", BROOD_SOURCE_DIR, script);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0) {
        _exit(126);
    }
    /* a sanitizer's library is not Python's business */
    (void)execl("/usr/bin/python3", "python3", path, dir, (char *)NULL);
    _exit(127);
}

int child_server_start(struct child_server *s, const char *script)
{
    int in[2], out[2];
    *s = (struct child_server){ .in = -1, .dir = "/tmp/brood-t-XXXXXX" };
    if (!mkdtemp(s->dir) || pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0) {
        perror("child_server");
        return -1;
    }
    pid_t parent = getpid();
    s->pid = fork();
    if (s->pid == 0) {
        child(script, s->dir, in[0], out[1], parent);
    }
    (void)close(in[0]);
    (void)close(out[1]);
    s->in = in[1];
    char line[600] = "";
    FILE *f = fdopen(out[0], "r");
    bool got = f && fgets(line, sizeof line, f);
    /* kept open: the server may print more */
    line[strcspn(line, "\n")] = 0;
    int rc = strncmp(line, "ready ", 6) == 0 ? 1 : strncmp(line, "skip ", 5) == 0 ? 0 : -1;
    if (!got || rc < 0) {
        (void)fprintf(stderr, "child_server: %s does not start: \"%s\"\n", script, line);
        child_server_end(s);
        return -1;
    }
    (void)snprintf(s->line, sizeof s->line, "%s", line + (rc == 1 ? 6 : 5));
    return rc;
}

void child_server_end(struct child_server *s)
{
    if (s->pid > 0) {
        (void)close(s->in);
        (void)kill(s->pid, SIGTERM);
        (void)waitpid(s->pid, NULL, 0);
        s->pid = 0;
    }
    if (s->dir[0]) {
        char command[128];
        (void)snprintf(command, sizeof command, "rm -rf -- %s", s->dir);
        if (system(command) != 0) {
            perror(command);
        }
        s->dir[0] = 0;
    }
}
