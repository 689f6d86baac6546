/* Host names of a test's own: in a mount namespace of this process, /etc/hosts is a file that the
 * test writes, and the name server is one that nobody runs, so that nothing else resolves. And TCP
 * in front of a server's Unix socket, for what finds its servers by name.
 *
 * For the process of one test: there is no way back. What it starts afterwards sees the same. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

/* What this process mounts from now on is seen by nobody else, and gone with it. false: this host
 * does not allow it. */
bool own_mounts(void);

/* false: this host allows no mount namespace (the caller skips). dir: a folder of the test's own,
 * outlives the test. */
bool names_begin(const char *dir);
/* From now on this and nothing else: "127.0.0.1 one\n". Aborts when it cannot be written. */
void names_set(const char *hosts);

/* From now on the name server is there and never answers. false: it cannot be had here. Stays until
 * names_begin's files go. */
bool names_silence(void);

/* A process that takes connections at 127.0.0.1 and passes on to the socket at path, until it is
 * killed, at the latest with us. Returns its port; aborts when it cannot. */
int tcp_front(const char *path, pid_t *ret_pid);
