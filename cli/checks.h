/* Is this host fit? The rows of `brood doctor`, also asked by `brood up` before anything starts. */
#pragma once
#include <stdbool.h>
#include "common/base/config.h"

#define CHECKS_MAX 48

enum check_need {
    NEED_UP,    /* brood up does not work without it */
    NEED_BUILD, /* building a template does not; needed while there is none */
    NEED_NONE,  /* told for information */
};

struct check {
    char name[32];
    bool ok;
    enum check_need need;
    char result[256];
    char fix[256]; /* what to do; "" when ok */
};

/* probe: also ask brood-vmpool for the engine (about a second). have_template: are there built
 * templates? Returns the count of rows. */
int checks_run(const struct config *c, bool probe, struct check ret_rows[CHECKS_MAX],
               bool *ret_have_template);
/* Does this row make the host unfit? */
bool check_blocks(const struct check *row, bool for_up, bool have_template);
