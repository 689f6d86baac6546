#include "common/base/outage.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"

int64_t outage_failed(struct outage *o, int64_t now_ms, const struct err *err)
{
    if (!o->on) {
        o->on = true;
        o->since_ms = now_ms;
        o->wait_ms = OUTAGE_WAIT_FIRST_MS;
        o->text[0] = 0;
    } else if (o->wait_ms < OUTAGE_WAIT_MAX_MS) {
        o->wait_ms = o->wait_ms * 2 > OUTAGE_WAIT_MAX_MS ? OUTAGE_WAIT_MAX_MS : o->wait_ms * 2;
    }
    /* "Postgres not reachable", "Redis not reachable": what follows (refused, no such file,
     * starting up) may change meanwhile */
    size_t same = strcspn(err->text, " ") + 1;
    if (strncmp(o->text, err->text, same) != 0) {
        log_warn("cannot work, trying again", "error", err_word(err->code), "reason", err->text);
        (void)snprintf(o->text, sizeof o->text, "%s", err->text);
    }
    return o->wait_ms;
}

void outage_over(struct outage *o, int64_t now_ms)
{
    if (!o->on) {
        return;
    }
    char ms[24];
    (void)snprintf(ms, sizeof ms, "%lld", (long long)(now_ms - o->since_ms));
    log_info("working again", "after_ms", ms);
    o->on = false;
}
