#include "cli/ci_deal.h"

#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "common/model/glob.h"
#include "common/report/shard.h"

static bool matches(const struct string_list *globs, const char *path)
{
    for (int i = 0; i < globs->n; i++) {
        if (glob_match(globs->items[i], strlen(globs->items[i]), path, strlen(path))) {
            return true;
        }
    }
    return false;
}

static bool is_utf8(const char *s)
{
    json_t *v = json_string(s);
    json_decref(v);
    return v != NULL;
}

static int pick(const struct checkout *c, const struct string_list *globs, struct ci_deal *d,
                struct shard_file *timed, struct err *err)
{
    for (size_t i = 0; i < c->n; i++) {
        const char *path = c->files[i].path;
        if (!matches(globs, path)) {
            continue;
        }
        if (!is_utf8(path)) {
            return err_set(err, ERR_INVALID, "test_files: a name that matches is not UTF-8");
        }
        if (d->n == SHARD_FILES_MAX) {
            return err_set(err, ERR_TOO_LARGE, "test_files: more than %u files", SHARD_FILES_MAX);
        }
        timed[d->n] = (struct shard_file){ .name = path, .time_us = -1 };
        d->files[d->n++] = path;
    }
    return d->n > 0
               ? 0
               : err_set(err, ERR_INVALID, "test_files: no file of the checkout matches \"%s\"",
                         globs->items[0]);
}

int ci_deal_make(const struct checkout *c, const struct string_list *globs, unsigned shards,
                 const struct report *past, struct ci_deal *ret_deal, struct err *err)
{
    struct ci_deal d = { .shards = shards };
    if (globs->n == 0) {
        *ret_deal = d;
        return 0;
    }
    size_t room = c->n + 1;
    cleanup_free struct shard_file *timed = calloc(room, sizeof *timed);
    d.files = calloc(room, sizeof *d.files);
    d.shard = calloc(room, sizeof *d.shard);
    if (!timed || !d.files || !d.shard) {
        abort();
    }
    int rc = pick(c, globs, &d, timed, err);
    if (rc == 0 && past) {
        rc = shard_times(timed, d.n, past, err);
        d.timed = rc > 0 ? (size_t)rc : 0;
    }
    if (rc >= 0) {
        d.shards = d.n < shards ? (unsigned)d.n : shards;
        for (size_t i = 0; i < d.n; i++) {
            /* A file of no time at all would leave its shard the emptiest: it could get them all.
             */
            timed[i].time_us = timed[i].time_us == 0 ? 1 : timed[i].time_us;
        }
        rc = shard_balance(timed, d.n, d.shards, d.shard, NULL, err);
    }
    if (rc < 0) {
        ci_deal_done(&d);
        return rc;
    }
    *ret_deal = d;
    return 0;
}

void ci_deal_done(struct ci_deal *d)
{
    free(d->files);
    free(d->shard);
    *d = (struct ci_deal){ 0 };
}
