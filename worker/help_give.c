#include "worker/help_give.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/model/tree.h"
#include "worker/spool_entry.h"

#define HELP_LOOK_MS 500 /* between looks for free places elsewhere */
#define RENEW_MS 1000
#define RESULT_BYTES_MAX (64u << 20)

enum state_is { STATE_HERE, STATE_WRITING, STATE_LENT, STATE_KEPT, STATE_UNFIT };

struct state { /* of an inner node */
    enum state_is is;
    bool kept;                /* the job keeps the same bytes: they stay when it ends */
    struct snapshot_row *row; /* LENT, KEPT */
};

struct offer { /* of a leaf */
    bool away, never;
    int tries;
    int64_t missing_ms; /* since when it is nowhere; 0: it is somewhere */
};

struct help {
    struct slot *slot;
    const struct claim *claim;
    const struct tree *tree;
    const struct snapshot_row *from;
    struct queue queue;
    struct state *states; /* tree->n */
    struct offer *offers; /* tree->n */
    int n_away;
    int64_t looked_ms, renewed_ms;
    int places; /* free elsewhere, at the last look */

    pthread_t writer; /* of one state at a time */
    bool writing;
    atomic_bool written;
    int writing_node, write_rc, abort_fd;
    struct lease frozen;
    struct pool_client pool;
    struct snapshot_row row;
    struct err err;
};

struct help *help_new(struct slot *s, const struct claim *claim, const struct tree *tree,
                      const struct snapshot_row *from)
{
    struct help *h = calloc(1, sizeof *h);
    if (!h) {
        abort();
    }
    struct err err;
    h->slot = s;
    h->claim = claim;
    h->tree = tree;
    h->from = from;
    h->states = calloc((size_t)tree->n, sizeof *h->states);
    h->offers = calloc((size_t)tree->n, sizeof *h->offers);
    h->abort_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!h->states || !h->offers) {
        abort();
    }
    (void)snprintf(h->queue.url, sizeof h->queue.url, "%s", s->queue.url);
    if (h->abort_fd < 0 || pool_client_init(&h->pool, s->shared->config->vmpool_socket, &err) < 0) {
        h->pool.fd = -1;
        for (int i = 0; i < tree->n; i++) {
            h->states[i].is = STATE_UNFIT;
        }
    }
    return h;
}

static void ticket_of(const struct help *h, int node, struct help_ticket *t)
{
    const struct snapshot_row *row = h->states[h->tree->nodes[node].parent].row;
    *t = (struct help_ticket){ .attempt = h->claim->attempt,
                               .node = node,
                               .tries = h->offers[node].tries };
    (void)snprintf(t->job_id, sizeof t->job_id, "%s", h->claim->job_id);
    (void)snprintf(t->tenant, sizeof t->tenant, "%s", h->claim->tenant);
    (void)snprintf(t->claim, sizeof t->claim, "%s", h->claim->stream_id);
    for (int i = 0; row && i < row->n_layers && i < HELP_LAYERS_MAX; i++) {
        (void)snprintf(t->layers[i], sizeof t->layers[i], "%s", row->layers[i]);
        t->n_layers = i + 1;
    }
}

static void set_row(struct help *h, int node, enum state_is is, const struct snapshot_row *row)
{
    struct state *s = &h->states[node];
    s->row = s->row ? s->row : malloc(sizeof *s->row);
    if (!s->row) {
        abort();
    }
    *s->row = *row;
    s->is = is;
}

void help_has_state(struct help *h, int node, const struct snapshot_row *row)
{
    h->states[node].kept = true;
    if (h->states[node].is == STATE_HERE) {
        set_row(h, node, STATE_KEPT, row);
    }
}

/* ---- a state is written ---- */

static void *writer_main(void *arg)
{
    struct help *h = arg;
    h->write_rc = pool_client_connect(&h->pool, &h->err);
    if (h->write_rc == 0) {
        h->write_rc = kept_lend(h->slot->shared->kept, &h->pool, &h->frozen, h->abort_fd, h->from,
                                &h->row, &h->err);
    }
    atomic_store(&h->written, true);
    return NULL;
}

static void write_state(struct help *h, int node, const struct lease *frozen)
{
    if (h->writing) {
        return;
    }
    h->frozen = *frozen;
    h->writing_node = node;
    h->err = (struct err){ 0 };
    atomic_store(&h->written, false);
    if (pthread_create(&h->writer, NULL, writer_main, h) != 0) {
        h->states[node].is = STATE_UNFIT;
        return;
    }
    h->writing = true;
    h->states[node].is = STATE_WRITING;
}

static void collect_state(struct help *h, bool wait)
{
    if (!h->writing || (!wait && !atomic_load(&h->written))) {
        return;
    }
    (void)pthread_join(h->writer, NULL);
    h->writing = false;
    if (h->write_rc == 0) {
        set_row(h, h->writing_node, STATE_LENT, &h->row);
    } else {
        h->states[h->writing_node].is = STATE_UNFIT;
        log_info("branches stay on this worker", "job", h->claim->job_id, "error", h->err.text);
    }
}

/* ---- offers ---- */

int help_wanted(struct help *h, int waiting, int64_t mean_us)
{
    struct err err = { 0 };
    const struct config *config = h->slot->shared->config;
    int64_t now_ms = mono_ms();
    collect_state(h, false);
    if (waiting <= 0 || mean_us / 1000 * waiting / h->slot->shared->slots <
                            config->worker_help_after_ms + (mean_us == 0)) {
        return 0;
    }
    if (h->looked_ms == 0 || now_ms - h->looked_ms >= HELP_LOOK_MS) {
        h->looked_ms = now_ms;
        if (queue_help_places(&h->queue, h->slot->shared->name, &h->places, &err) < 0) {
            h->places = 0;
        }
    }
    /* Two for each place: the second is at hand when the first has ended. */
    int more = 2 * h->places - h->n_away;
    return more < waiting ? more : waiting;
}

bool help_offer(struct help *h, int node, int tries, const struct lease *parent)
{
    struct err err = { 0 };
    struct offer *o = &h->offers[node];
    int from = h->tree->nodes[node].parent;
    assert(!o->away);
    if (h->states[from].is == STATE_HERE && !o->never) {
        write_state(h, from, parent);
    }
    if (o->never || (h->states[from].is != STATE_LENT && h->states[from].is != STATE_KEPT)) {
        return false;
    }
    struct help_ticket t;
    *o = (struct offer){ .tries = tries };
    ticket_of(h, node, &t);
    if (queue_help_offer(&h->queue, &t, &err) < 0) {
        log_debug("branch not offered", "job", t.job_id, "error", err.text);
        return false;
    }
    o->away = true;
    if (h->n_away++ == 0) {
        h->renewed_ms = mono_ms();
    }
    return true;
}

static void back(struct help *h, int node)
{
    assert(h->offers[node].away);
    h->offers[node].away = false;
    h->n_away--;
}

int help_take_back(struct help *h)
{
    struct err err = { 0 };
    struct help_ticket t;
    for (int i = 1; h->n_away > 0 && i < h->tree->n; i++) {
        if (!h->offers[i].away) {
            continue;
        }
        ticket_of(h, i, &t);
        int rc = queue_help_withdraw(&h->queue, &t, &err);
        if (rc != 0) {
            if (rc == 1) {
                back(h, i);
            }
            return rc == 1 ? i : -1;
        }
    }
    return -1;
}

void help_drop(struct help *h, int node)
{
    struct err err = { 0 };
    struct help_ticket t;
    if (h->offers[node].away) {
        ticket_of(h, node, &t);
        if (queue_help_unwant(&h->queue, &t, &err) < 0) {
            log_debug("a branch elsewhere ends by itself", "error", err.text);
        }
        back(h, node);
    }
}

int help_away(const struct help *h)
{
    return h->n_away;
}

bool help_is_away(const struct help *h, int node)
{
    return h->offers[node].away;
}

/* ---- what came of them ---- */

static enum help_end take_result(struct help *h, int node, const struct buf *b, help_room room,
                                 void *user)
{
    struct job_result *r;
    struct manifest *artifacts;
    struct err err = { 0 };
    back(h, node);
    room(user, node, &r, &artifacts);
    int rc = branch_bytes_read(b->data ? b->data : "", b->len, r, artifacts, &err);
    if (rc < 0) { /* a helper says why it could not: text instead of a result */
        h->offers[node].never = true;
        log_info("branch comes back from another worker", "job", h->claim->job_id, "error",
                 b->len > 0 && b->len < ERR_TEXT_MAX ? b->data : err.text);
        return HELP_FAILED;
    }
    return HELP_RESULT;
}

/* Offers that are neither on the list nor with anybody. */
static int find_lost(struct help *h, int64_t now_ms)
{
    struct err err = { 0 };
    struct help_ticket t;
    for (int i = 1; i < h->tree->n; i++) {
        struct offer *o = &h->offers[i];
        if (!o->away) {
            continue;
        }
        ticket_of(h, i, &t);
        int rc = queue_help_alive(&h->queue, &t, &err);
        if (rc > 0) {
            o->missing_ms = 0;
        } else if (rc == 0 && o->missing_ms == 0) {
            o->missing_ms = now_ms;
        } else if (rc == 0 && now_ms - o->missing_ms >= HELP_LOST_MS &&
                   queue_help_unwant(&h->queue, &t, &err) >= 0) {
            log_info("branch lost with another worker", "job", t.job_id, "node",
                     h->tree->nodes[i].path);
            o->never = true;
            back(h, i);
            return i;
        }
    }
    return -1;
}

enum help_end help_turn(struct help *h, help_room room, void *user, int *ret_node)
{
    struct help_ticket any = { .attempt = h->claim->attempt };
    cleanup_buf struct buf b = { 0 };
    struct err err = { 0 };
    int64_t now_ms = mono_ms();
    int tries;
    collect_state(h, false);
    if (h->n_away == 0) {
        return HELP_NONE;
    }
    (void)snprintf(any.job_id, sizeof any.job_id, "%s", h->claim->job_id);
    if (now_ms - h->renewed_ms >= RENEW_MS) {
        h->renewed_ms = now_ms;
        if (queue_help_renew(&h->queue, &any, &err) >= 0 &&
            (*ret_node = find_lost(h, now_ms)) > 0) {
            return HELP_FAILED;
        }
    }
    for (;;) {
        buf_init(&b, RESULT_BYTES_MAX);
        int rc = queue_help_result(&h->queue, &any, ret_node, &tries, &b, &err);
        if (rc <= 0) {
            return HELP_NONE;
        }
        if (*ret_node > 0 && *ret_node < h->tree->n && h->offers[*ret_node].away &&
            h->offers[*ret_node].tries == tries) {
            return take_result(h, *ret_node, &b, room, user);
        }
        buf_done(&b); /* of one that is needed no more */
    }
}

void help_free(struct help *h)
{
    if (!h) {
        return;
    }
    struct err err = { 0 };
    if (h->writing) {
        uint64_t one = 1;
        ssize_t n = write(h->abort_fd, &one, sizeof one);
        assert(n == sizeof one);
        (void)n;
        collect_state(h, true);
    }
    if (h->queue.ctx) {
        struct help_ticket any = { .attempt = h->claim->attempt };
        (void)snprintf(any.job_id, sizeof any.job_id, "%s", h->claim->job_id);
        if (queue_help_end(&h->queue, &any, &err) < 0) {
            log_debug("offers end by themselves", "error", err.text);
        }
        queue_close(&h->queue);
    }
    for (int i = 0; i < h->tree->n; i++) {
        if (h->states[i].is == STATE_LENT && !h->states[i].kept) {
            kept_lend_end(h->slot->shared->kept, h->states[i].row);
        }
        free(h->states[i].row);
    }
    if (h->pool.fd >= 0) {
        pool_client_done(&h->pool);
    }
    if (h->abort_fd >= 0) {
        (void)close(h->abort_fd);
    }
    free(h->states);
    free(h->offers);
    free(h);
}
