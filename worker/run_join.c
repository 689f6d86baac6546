/* Several runs of one sandbox, told as one (session.h, run_result_join). */
#include <stdlib.h>
#include <string.h>

#include "worker/session.h"

#define JOINED_OUTPUT_MAX (1u << 20) /* of several steps of set-up together; longer: the last's */

static void join_stream(struct stream_result *a, struct stream_result *b)
{
    uint64_t total = a->total_bytes + b->total_bytes;
    size_t len = a->head.len + b->head.len;
    bool whole = !a->truncated && !b->truncated && len <= JOINED_OUTPUT_MAX;
    if (whole && a->head.len > 0) {
        char *both = malloc(len + 1);
        if (!both) {
            abort();
        }
        memcpy(both, a->head.data, a->head.len);
        if (b->head.len > 0) {
            memcpy(both + a->head.len, b->head.data, b->head.len);
        }
        both[len] = 0;
        free(b->head.data);
        b->head = (struct bytes){ both, len };
    }
    b->truncated = !whole;
    b->total_bytes = total;
    free(a->head.data);
    free(a->tail.data);
}

void run_result_join(struct run_result *run, struct run_result *more)
{
    if (run->present && more->present) {
        more->cpu_us += run->cpu_us;
        more->wall_us += run->wall_us;
        more->host_wait_us += run->host_wait_us;
        more->guest_cpu_us += run->guest_cpu_us;
        more->oom_kills += run->oom_kills;
        more->process_refusals += run->process_refusals;
        more->disk_refusals += run->disk_refusals;
        more->open_file_refusals += run->open_file_refusals;
        more->leftover_processes += run->leftover_processes;
        if (more->memory_peak_bytes < run->memory_peak_bytes) {
            more->memory_peak_bytes = run->memory_peak_bytes;
        }
        join_stream(&run->out, &more->out);
        join_stream(&run->err_out, &more->err_out);
    }
    if (more->present) {
        *run = *more;
    }
    *more = (struct run_result){ .present = false };
}
