/* brood-worker-scripted: the worker with scripted outcomes in the place of sandboxes. Of the test
 * build only: it runs nothing, so that thousands of jobs a minute go through the real claim,
 * heartbeat, commit, spool and ledger.
 *
 * A job says what becomes of it by its command:
 *   ["scripted", VERDICT, MS, TEXT, BREAKS]
 * VERDICT is its verdict after MS milliseconds, TEXT its stdout (default ""); its first BREAKS
 * attempts (default 0) fail as by a fault of ours. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/clock.h"
#include "common/model/tree.h"
#include "worker/worker_main.h"

static enum verdict verdict_of(const char *word)
{
    for (int v = 0; v < VERDICT_COUNT; v++) {
        if (strcmp(verdict_word((enum verdict)v), word) == 0) {
            return (enum verdict)v;
        }
    }
    return VERDICT_JUDGE_ERROR;
}

static const char *word(const struct job_spec *spec, int i, const char *otherwise)
{
    return i < spec->tree->nodes[0].command.argc ? spec->tree->nodes[0].command.argv[i] : otherwise;
}

static int scripted(struct slot *s, const struct job_spec *spec, struct commit_entry *e,
                    struct err *err)
{
    struct job_result *r = &e->result;
    int ms = (int)strtol(word(spec, 2, "0"), NULL, 10);
    int64_t start_us = mono_us();
    r->leased_wall_ms = wall_ms();
    struct pollfd p = { .fd = s->abort_fd, .events = POLLIN };
    if (ms > 0 && poll(&p, 1, ms) > 0) {
        return err_set(err, ERR_STALE, "given up");
    }
    if (e->claim.attempt <= (int)strtol(word(spec, 4, "0"), NULL, 10)) {
        return err_set(err, ERR_PROTOCOL, "scripted: this attempt breaks");
    }
    r->verdict = verdict_of(word(spec, 1, "judge_error"));
    r->run.present = true;
    r->run.wall_us = mono_us() - start_us;
    r->measured_ms = (r->run.wall_us + 999) / 1000;
    r->ended_wall_ms = r->leased_wall_ms + r->measured_ms;
    r->vcpus = 1;
    r->memory_mib = 256;
    (void)snprintf(r->engine, sizeof r->engine, "scripted");
    (void)snprintf(r->worker, sizeof r->worker, "%s", s->shared->name);
    const char *text = word(spec, 3, "");
    if (*text) {
        r->run.out.head.data = strdup(text);
        r->run.out.head.len = strlen(text);
        r->run.out.total_bytes = strlen(text);
    }
    return 0;
}

int main(int argc, char **argv)
{
    return worker_main(argc, argv, scripted);
}
