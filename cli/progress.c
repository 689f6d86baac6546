#include "cli/progress.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "cli/money.h"

#define BAR_WIDTH_MAX 24

static void append(char *out, size_t room, const char *text)
{
    size_t used = strlen(out);
    if (used + 1 < room) {
        (void)snprintf(out + used, room - used, "%s", text);
    }
}

void progress_verdicts(const int by_verdict[VERDICT_COUNT], char *out, size_t room)
{
    assert(room > 0);
    int left[VERDICT_COUNT];
    memcpy(left, by_verdict, sizeof left);
    left[VERDICT_NONE] = 0;
    out[0] = 0;
    for (int k = 0; k < VERDICT_COUNT; k++) {
        int best = 0;
        for (int v = 1; v < VERDICT_COUNT; v++) {
            if (left[v] > left[best]) {
                best = v;
            }
        }
        if (left[best] == 0) {
            return;
        }
        char one[64];
        (void)snprintf(one, sizeof one, "%s%s %d", k ? ", " : "", verdict_word((enum verdict)best),
                       left[best]);
        append(out, room, one);
        left[best] = 0;
    }
}

static void bar(int done, int total, int width, char *out, size_t room)
{
    char text[BAR_WIDTH_MAX + 4];
    int full = total > 0 ? (int)((int64_t)done * width / total) : width;
    text[0] = '[';
    for (int i = 0; i < width; i++) {
        text[1 + i] = i < full ? '#' : '.';
    }
    text[1 + width] = ']';
    text[2 + width] = ' ';
    text[3 + width] = 0;
    append(out, room, text);
}

void progress_line(const struct progress *p, const struct batch_counts *counts, int64_t now_ms,
                   int width, char out[PROGRESS_LINE_MAX])
{
    assert(width == 0 || (width >= 20 && width < PROGRESS_LINE_MAX));
    const size_t room = PROGRESS_LINE_MAX;
    out[0] = 0;
    if (width > 0) {
        int bar_width = width / 4 < BAR_WIDTH_MAX ? width / 4 : BAR_WIDTH_MAX;
        bar(counts->done, counts->total, bar_width, out, room);
    }
    char part[128];
    (void)snprintf(part, sizeof part, "%d/%d", counts->done, counts->total);
    append(out, room, part);
    int64_t elapsed = now_ms - p->started_ms;
    int fresh = counts->done - p->first_done;
    if (elapsed > 0 && fresh > 0) {
        int64_t deci = (int64_t)fresh * 10000 / elapsed;
        (void)snprintf(part, sizeof part, "  %lld.%lld/s", (long long)(deci / 10),
                       (long long)(deci % 10));
        append(out, room, part);
        if (counts->done < counts->total) {
            char left[MONEY_TEXT_MAX];
            int64_t eta = (int64_t)(counts->total - counts->done) * elapsed / fresh;
            int64_t whole_s = (eta + 999) / 1000;
            duration_format(whole_s * 1000, left);
            if (whole_s < 60) {
                (void)snprintf(left, sizeof left, "%lld s", (long long)whole_s);
            }
            (void)snprintf(part, sizeof part, "  left %s", left);
            append(out, room, part);
        }
    }
    char verdicts[300];
    progress_verdicts(counts->by_verdict, verdicts, sizeof verdicts);
    if (verdicts[0]) {
        append(out, room, "  ");
        append(out, room, verdicts);
    }
    if (width > 0 && (int)strlen(out) > width) {
        out[width] = 0;
    }
}
