#include "scheduler/sweeper.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/store/snapshots.h"
#include "scheduler/ticker.h"

#define AWAY_MS 5000 /* a server is not there: look again after this */

struct sweeper {
    const struct config *config;
    struct pg pg;
    struct object_store *objects;
    bool connected, told; /* told: that it cannot work */
    struct ticker ticker;
};

static bool stops(const struct sweep_what *w)
{
    return w->stop && w->stop(w->arg);
}

/* Those of rows[0..n) (n at most SWEEP_ASK_MAX, all old) that nobody wants go. */
static int remove_unwanted(const struct sweep_what *w, const struct object_info *rows, int n,
                           int64_t before_ms, struct sweep_pass *pass, struct err *err)
{
    const char *digests[SWEEP_ASK_MAX];
    bool wanted[SWEEP_ASK_MAX];
    for (int i = 0; i < n; i++) {
        digests[i] = rows[i].id.hex;
        wanted[i] = true;
    }
    int rc = n > 0 ? store_objects_wanted(w->pg, digests, n, wanted, err) : 0;
    for (int i = 0; i < n && rc >= 0 && !stops(w); i++) {
        if (wanted[i]) {
            continue;
        }
        rc = object_sweep(w->objects, &rows[i].id, before_ms, err);
        if (rc > 0) {
            pass->removed++;
            pass->removed_bytes += rows[i].size_bytes;
            rc = store_upload_forget(w->pg, digests[i], err);
        }
    }
    return rc < 0 ? rc : 0;
}

/* The old ones of a list, in groups. */
static int sweep_rows(const struct sweep_what *w, const struct object_info *rows, int n,
                      struct sweep_pass *pass, struct err *err)
{
    struct object_info old[SWEEP_ASK_MAX];
    int64_t before_ms = wall_ms() - w->after_s * 1000;
    int n_old = 0, rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        if (rows[i].modified_ms >= 0 && rows[i].modified_ms < before_ms) {
            old[n_old++] = rows[i];
        }
        if (n_old == SWEEP_ASK_MAX || i == n - 1) {
            rc = remove_unwanted(w, old, n_old, before_ms, pass, err);
            n_old = 0;
        }
    }
    return rc;
}

static int walk(const struct sweep_what *w, struct object_info *rows, struct sweep_pass *pass,
                struct err *err)
{
    while (pass->looked < SWEEP_OBJECTS_MAX && pass->removed < SWEEP_REMOVED_MAX && !stops(w)) {
        struct object_id after;
        bool begun = object_id_parse(&after, pass->after, NULL) == 0;
        int n = object_list(w->objects, begun ? &after : NULL, rows, OBJECT_LIST_MAX, err);
        int rc = n < 0 ? n : sweep_rows(w, rows, n, pass, err);
        if (rc < 0) {
            return rc;
        }
        if (stops(w)) {
            break; /* the mark stays: the rest of this list is looked at again */
        }
        pass->looked += n;
        if (n < OBJECT_LIST_MAX) {
            pass->after[0] = 0;
            break;
        }
        memcpy(pass->after, rows[n - 1].id.hex, sizeof pass->after);
    }
    return 0;
}

int sweep_pass(const struct sweep_what *w, struct sweep_pass *ret_pass, struct err *err)
{
    struct sweep_view view;
    struct sweep_pass pass = { .looked = 0 };
    assert(w->after_s > 0);
    int rc = store_sweep_begin(w->pg, &view, err);
    if (rc <= 0) {
        ret_pass->looked = -1;
        return rc;
    }
    cleanup_free struct object_info *rows = calloc(OBJECT_LIST_MAX, sizeof *rows);
    if (!rows) {
        abort();
    }
    memcpy(pass.after, view.after, sizeof pass.after);
    rc = walk(w, rows, &pass, err);
    struct err end_err;
    int end = store_sweep_end(w->pg, &pass, &end_err); /* also what a broken pass has done */
    if (rc == 0 && end < 0) {
        *err = end_err;
        rc = end;
    }
    *ret_pass = pass;
    return rc;
}

/* ---- the thread ---- */

static bool is_stopping(void *arg)
{
    return ticker_stopping(arg);
}

static int sweeper_connect(struct sweeper *s, struct err *err)
{
    struct object_options options;
    int rc = pg_open(&s->pg, s->config->postgres_url, err);
    rc = rc < 0 ? rc : pg_schema_version(&s->pg, err);
    if (rc == 0) {
        return err_set(err, ERR_UNAVAILABLE, "Postgres has no schema of brood's yet");
    }
    if (rc > 0 && !s->objects) {
        rc = object_options_from(&options, s->config, err);
        rc = rc < 0 ? rc : object_store_open(&s->objects, &options, err);
    }
    return rc < 0 ? rc : 0;
}

static void log_pass(const struct sweep_pass *pass)
{
    char n[3][24];
    const int64_t v[3] = { pass->removed, pass->removed_bytes, pass->looked };
    for (int i = 0; i < 3; i++) {
        (void)snprintf(n[i], sizeof n[i], "%lld", (long long)v[i]);
    }
    log_info("objects that nobody wants are deleted", "objects", n[0], "bytes", n[1], "looked",
             n[2]);
}

static int turn(struct sweeper *s, struct err *err)
{
    const struct sweep_what what = { .pg = &s->pg,
                                     .objects = s->objects,
                                     .after_s = s->config->object_sweep_after_s,
                                     .stop = is_stopping,
                                     .arg = &s->ticker };
    struct sweep_pass pass = { .looked = 0 };
    int rc = sweep_pass(&what, &pass, err);
    if (pass.removed > 0) {
        log_pass(&pass);
    }
    return rc;
}

static int64_t run(void *arg)
{
    struct sweeper *s = arg;
    struct err err;
    bool was = s->connected;
    int rc = was ? turn(s, &err) : sweeper_connect(s, &err);
    if (rc < 0 && !s->told) {
        log_warn("the object store is not swept", "reason", err.text);
    } else if (rc == 0 && s->told && was) {
        log_info("the object store is swept again");
    }
    s->told = was || rc < 0 ? rc < 0 : s->told;
    s->connected = rc == 0;
    if (rc < 0) {
        pg_close(&s->pg);
        return AWAY_MS;
    }
    return s->config->object_sweep_every_s * 1000;
}

int sweeper_start(const struct config *config, struct sweeper **ret_sweeper, struct err *err)
{
    *ret_sweeper = NULL;
    if (config->object_sweep_after_s == 0) {
        return 0;
    }
    struct sweeper *s = calloc(1, sizeof *s);
    if (!s) {
        abort();
    }
    s->config = config;
    int rc = ticker_start(&s->ticker, run, s, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    *ret_sweeper = s;
    return 0;
}

void sweeper_stop(struct sweeper *s)
{
    if (!s) {
        return;
    }
    ticker_stop(&s->ticker);
    pg_close(&s->pg);
    object_store_free(s->objects);
    free(s);
}
