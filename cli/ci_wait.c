#include "cli/ci_wait.h"

#include <string.h>

#include "cli/ci_job.h"
#include "cli/money.h"
#include "common/base/clock.h"

#define PIECE_BYTES_MAX (4u << 20)
#define BLOCK_MS 500
#define POLL_MS 100
#define LOST_MS_MAX 30000
#define PROGRESS_MS 30000 /* between two lines that say nothing new */

/* 1: something came, 0: ask Postgres; *log_open becomes false at the end of the log. */
static int live_piece(struct ci_wait *w, struct buf *piece, char cursor[40], bool *log_open,
                      struct err *err)
{
    struct log_piece log = { 0 };
    buf_reset(piece);
    int got = queue_log_next(w->queue, w->job, cursor, BLOCK_MS, piece, &log, err);
    if (got > 0 && (log.stream == 1 || log.stream == 2)) {
        int shard = ci_shard_of_node(w->deal, log.node);
        const char *data = piece->data ? piece->data : "";
        size_t len = piece->len;
        if (shard >= 0 && (*log_open = log_piece_new(
                               &log, ci_out_taken(&w->outs[shard], log.stream), &data, &len))) {
            ci_out_add(&w->outs[shard], log.stream, data, len);
        }
        return cli_out_ok() ? 1 : err_set(err, ERR_CLOSED, "the reader of the output has gone");
    }
    *log_open = got == 0; /* the end, or Redis has gone: the result has the rest */
    return 0;
}

/* A line when the state has changed, or now and then. */
static void progress(enum job_state state, int64_t started_ms, int *last_state, int64_t *last_ms)
{
    int64_t now = mono_ms();
    if ((int)state == *last_state && now - *last_ms < PROGRESS_MS) {
        return;
    }
    char since[MONEY_TEXT_MAX];
    duration_format(now - started_ms, since);
    (void)fprintf(stderr, "brood: %s (%s)\n", job_state_word(state), since);
    *last_state = (int)state;
    *last_ms = now;
}

int ci_wait(struct ci_wait *w, struct result_row *ret_row, struct err *err)
{
    cleanup_buf struct buf piece = { 0 };
    buf_init(&piece, PIECE_BYTES_MAX);
    char cursor[40] = "0";
    bool log_open = w->outs != NULL;
    int64_t started_ms = mono_ms(), last_ms = started_ms, lost_ms = 0;
    int last_state = -1;
    for (;;) {
        if (w->broken && *w->broken) {
            return err_set(err, ERR_STALE, "interrupted");
        }
        int rc = log_open ? live_piece(w, &piece, cursor, &log_open, err) : 0;
        if (rc != 0) {
            if (rc < 0) {
                return rc;
            }
            continue;
        }
        rc = store_job(w->pg, w->job, ret_row, err);
        if (rc == -ERR_UNAVAILABLE) {
            int64_t now = mono_ms();
            lost_ms = lost_ms ? lost_ms : now;
            if (now - lost_ms < LOST_MS_MAX) {
                sleep_ms(BLOCK_MS);
                continue;
            }
        }
        if (rc < 0) {
            return rc;
        }
        lost_ms = 0;
        if (job_state_terminal(ret_row->state)) {
            return 0;
        }
        progress(ret_row->state, started_ms, &last_state, &last_ms);
        result_row_done(ret_row);
        if (!log_open) {
            sleep_ms(POLL_MS);
        }
    }
}
