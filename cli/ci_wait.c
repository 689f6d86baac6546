#include "cli/ci_wait.h"

#include <string.h>

#include "cli/money.h"
#include "common/base/clock.h"

#define PIECE_BYTES_MAX (4u << 20)
#define BLOCK_MS 500
#define POLL_MS 100
#define LOST_MS_MAX 30000
#define PROGRESS_MS 30000 /* between two lines that say nothing new */

static void emit(struct ci_wait *w, int stream, const char *data, size_t len)
{
    if (len > 0 && !w->cli->json) {
        FILE *to = stream == 1 ? stdout : stderr;
        (void)fwrite(data, 1, len, to);
        (void)fflush(to);
    }
}

/* 1: something came, 0: ask Postgres; *log_open becomes false at the end of the log. */
static int live_piece(struct ci_wait *w, struct buf *piece, char cursor[40], bool *log_open,
                      struct err *err)
{
    int stream = 0;
    buf_reset(piece);
    int got = queue_log_next(w->queue, w->job, cursor, BLOCK_MS, piece, &stream, err);
    if (got > 0 && (stream == 1 || stream == 2)) {
        emit(w, stream, piece->data ? piece->data : "", piece->len);
        w->shown[stream] += piece->len;
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
    cleanup_buf struct buf piece;
    buf_init(&piece, PIECE_BYTES_MAX);
    char cursor[40] = "0";
    bool log_open = w->live;
    int64_t started_ms = mono_ms(), last_ms = started_ms, lost_ms = 0;
    int last_state = -1;
    for (;;) {
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

static void rest_of(struct ci_wait *w, int stream, const struct stream_result *r)
{
    uint64_t shown = w->shown[stream], tail_at = r->total_bytes - r->tail.len;
    if (shown < r->head.len) {
        emit(w, stream, r->head.data + shown, r->head.len - shown);
        shown = r->head.len;
    }
    if (r->tail.len > 0 && shown < r->total_bytes) {
        shown = shown < tail_at ? tail_at : shown;
        emit(w, stream, r->tail.data + (shown - tail_at), (size_t)(r->total_bytes - shown));
    }
}

void ci_wait_rest(struct ci_wait *w, const struct job_result *r)
{
    if (r->verdict == VERDICT_COMPILE_ERROR && r->setup.present) {
        emit(w, 1, r->setup.out.head.data, r->setup.out.head.len);
        emit(w, 2, r->setup.err_out.head.data, r->setup.err_out.head.len);
    } else if (w->live) {
        rest_of(w, 1, &r->run.out);
        rest_of(w, 2, &r->run.err_out);
    }
}

void ci_print_prefixed(FILE *to, const char *label, const char *data, size_t n)
{
    while (n > 0) {
        const char *end = memchr(data, '\n', n);
        size_t len = end ? (size_t)(end - data) : n;
        (void)fprintf(to, "[%s] ", label);
        (void)fwrite(data, 1, len, to);
        (void)fputc('\n', to);
        len += end ? 1 : 0;
        data += len;
        n -= len;
    }
}

static void print_stream(FILE *to, const char *label, const struct stream_result *s)
{
    ci_print_prefixed(to, label, s->head.data, s->head.len);
    uint64_t kept = s->head.len + s->tail.len;
    if (s->total_bytes > kept) {
        (void)fprintf(to, "[%s] ... %llu bytes are left out here ...\n", label,
                      (unsigned long long)(s->total_bytes - kept));
    }
    ci_print_prefixed(to, label, s->tail.data, s->tail.len);
    (void)fflush(to);
}

void ci_print_shard(const char *label, const struct run_result *run)
{
    print_stream(stdout, label, &run->out);
    print_stream(stderr, label, &run->err_out);
}
