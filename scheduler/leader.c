#include "scheduler/leader.h"

#include "common/base/log.h"

int leader_stand(struct leader *l, struct pg *pg, struct err *err)
{
    bool led = l->leads;
    int rc = store_lead(pg, err);
    if (rc < 0) {
        return rc;
    }
    l->leads = rc == 1;
    l->generation = pg->generation;
    if (!l->leads && !l->told) {
        log_info("another scheduler leads: waiting to take its place");
        l->told = true;
    } else if (l->leads && (!led || l->told)) {
        log_info("leads");
        l->told = false;
    }
    return 0;
}

bool leader_holds(const struct leader *l, const struct pg *pg)
{
    return l->leads && pg->conn && pg->generation == l->generation;
}
