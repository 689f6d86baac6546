#include "cli/ci_out.h"

#include <assert.h>
#include <string.h>

void ci_out_init(struct ci_out *o, const char *label, bool quiet)
{
    *o = (struct ci_out){ .label = label, .quiet = quiet };
    for (int i = 1; i <= 2; i++) {
        o->streams[i].to = i == 1 ? stdout : stderr;
        buf_init(&o->streams[i].line, CI_OUT_LINE_MAX);
    }
}

void ci_out_done(struct ci_out *o)
{
    buf_done(&o->streams[1].line);
    buf_done(&o->streams[2].line);
}

static void end_line(struct ci_out *o, int stream)
{
    struct buf *line = &o->streams[stream].line;
    if (line->len > 0) {
        (void)fprintf(o->streams[stream].to, "[%s] ", o->label);
        (void)fwrite(line->data, 1, line->len, o->streams[stream].to);
        (void)fputc('\n', o->streams[stream].to);
        buf_reset(line);
    }
}

static void put_lines(struct ci_out *o, int stream, const char *data, size_t n)
{
    struct buf *line = &o->streams[stream].line;
    struct err err;
    while (n > 0) {
        const char *end = memchr(data, '\n', n);
        size_t len = end ? (size_t)(end - data) : n, room = CI_OUT_LINE_MAX - line->len;
        size_t part = len < room ? len : room;
        int rc = buf_add(line, data, part, &err);
        assert(rc == 0);
        (void)rc;
        data += part;
        n -= part;
        if (part < len) {
            end_line(o, stream);
        } else if (end) {
            if (line->len == 0) {
                (void)fprintf(o->streams[stream].to, "[%s] \n", o->label);
            }
            end_line(o, stream);
            data++;
            n--;
        }
    }
}

static void put(struct ci_out *o, int stream, const char *data, size_t n)
{
    if (o->quiet || n == 0) {
        return;
    }
    if (o->label[0]) {
        put_lines(o, stream, data, n);
    } else {
        (void)fwrite(data, 1, n, o->streams[stream].to);
    }
    (void)fflush(o->streams[stream].to);
}

uint64_t ci_out_taken(const struct ci_out *o, int stream)
{
    return o->streams[stream].taken;
}

void ci_out_add(struct ci_out *o, int stream, const char *data, size_t n)
{
    assert(stream == 1 || stream == 2);
    o->streams[stream].taken += n;
    put(o, stream, data, n);
}

static void rest_of(struct ci_out *o, int stream, const struct stream_result *r)
{
    uint64_t taken = o->streams[stream].taken, tail_at = r->total_bytes - r->tail.len;
    if (taken < r->head.len) {
        put(o, stream, r->head.data + taken, r->head.len - (size_t)taken);
        taken = r->head.len;
    }
    if (r->tail.len > 0 && taken < tail_at) {
        char gap[80];
        int n = snprintf(gap, sizeof gap, "\n... %llu bytes are left out here ...\n",
                         (unsigned long long)(tail_at - taken));
        put(o, stream, gap, (size_t)n);
        taken = tail_at;
    }
    if (r->tail.len > 0 && taken < r->total_bytes) {
        put(o, stream, r->tail.data + (taken - tail_at), (size_t)(r->total_bytes - taken));
    }
    end_line(o, stream);
    (void)fflush(o->streams[stream].to);
}

void ci_out_rest(struct ci_out *o, const struct run_result *run)
{
    rest_of(o, 1, &run->out);
    rest_of(o, 2, &run->err_out);
}
