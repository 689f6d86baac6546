/* A server for tests that is a Python program of tests/support: it prints "ready ARG..." (or "skip
 * WHY") on its first line and ends when its standard input does, so it never outlives the test. */
#pragma once
#include <sys/types.h>

struct child_server {
    pid_t pid;      /* 0: not running */
    int in;         /* its standard input: closing it ends it */
    char dir[64];   /* a folder of its own under /tmp, its only argument */
    char line[512]; /* what it said behind "ready " or "skip " */
};
/* script: path below the repository. 1 ready, 0 skip, -1 failed (a line on stderr). */
int child_server_start(struct child_server *s, const char *script);
/* Ends it and removes its folder. */
void child_server_end(struct child_server *s);
