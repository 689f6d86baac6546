/* The agent's loop: channel, signals and the one run, in one thread and one poll().
 *
 * poll() rather than epoll: a short run would pay four epoll_ctl calls for two wake-ups, and under
 * TCG each system call counts. Order of work in a turn: frames, ended children, data; then one
 * write of all that was queued meanwhile. */
#pragma once
#include "guest/boot.h"
#include "guest/channel.h"
#include "guest/collect.h"
#include "guest/files.h"
#include "guest/identity.h"
#include "guest/run.h"
#include "guest/session.h"

#define AGENT_ENV_BYTES_MAX 4096u /* of the template's /usr/lib/brood/env */

struct agent {
    struct boot boot;
    struct channel ch;
    enum session_state state, before_run;
    struct identity identity;
    struct job_file file;
    struct collect collect; /* large */
    struct warm warm;
    struct slots slots;
    struct disk disk;
    struct cell cell;
    struct exits exits;
    struct run run;
    struct run_env env;
    char env_text[AGENT_ENV_BYTES_MAX];
    char *env_defaults[STRS_DEFAULTS_MAX];
    guest_Run run_msg; /* large */
    int signal_fd;
    bool ignoring; /* the stream broke: dropped until the host comes anew */
};

/* After boot_machine: everything up to HELLO, which is queued. */
MUST_CHECK int agent_init(struct agent *a, const struct boot *boot, struct err *err);
/* Returns only when the loop itself is broken. */
MUST_CHECK int agent_loop(struct agent *a, struct err *err);
