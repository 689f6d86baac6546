#include "common/model/branch_result.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/job_part.h"
#include "common/model/tree.h"

#define STREAMS 4

void branch_result_init(struct branch_result *b, const struct tree_node *n)
{
    *b = (struct branch_result){ .node = n->index,
                                 .parent = n->parent,
                                 .leaf = n->leaf,
                                 .path = jr_dup(n->path, strlen(n->path)),
                                 .name_path = jr_dup(n->name_path, strlen(n->name_path)),
                                 .weight = n->weight };
    job_result_init(&b->result);
}

void branch_result_done(struct branch_result *b)
{
    free(b->path);
    free(b->name_path);
    job_result_done(&b->result);
    manifest_done(&b->artifacts);
    b->path = b->name_path = NULL;
}

struct branch_result *branch_results_new(const struct tree *t)
{
    struct branch_result *b = job_new_array((size_t)t->n - 1, sizeof *b);
    for (int i = 1; i < t->n; i++) {
        branch_result_init(&b[i - 1], &t->nodes[i]);
    }
    return b;
}

void branch_results_free(struct branch_result *b, int n)
{
    for (int i = 0; b && i < n; i++) {
        branch_result_done(&b[i]);
    }
    free(b);
}

void job_result_take_manifest(struct job_result *r, const struct manifest *m)
{
    for (size_t i = 0; i < m->n; i++) {
        const struct artifact *a = &m->files[i];
        r->artifacts.listed++;
        r->artifacts.stored += a->stored;
        r->artifacts.stored_bytes += a->stored && a->type == ARTIFACT_FILE ? (int64_t)a->size : 0;
    }
    for (size_t i = 0; i < m->unmatched_len; i += strlen(m->unmatched + i) + 1) {
        job_result_warn(r, "artifacts: %s matched nothing", m->unmatched + i);
    }
    if (m->truncated) {
        r->artifacts.truncated = true;
        job_result_warn(r, "artifacts: not everything that matches is listed");
    }
    if (m->left_out > 0) {
        job_result_warn(r, "artifacts: %u could not be listed: too deep, or the path too long",
                        m->left_out);
    }
}

static int64_t stream_bytes(const struct stream_result *s)
{
    return (int64_t)(s->head.len + s->tail.len);
}

static void streams_of(const struct branch_result *b, struct stream_result *out[STREAMS])
{
    struct job_result *r = (struct job_result *)(uintptr_t)&b->result;
    out[0] = &r->run.out;
    out[1] = &r->run.err_out;
    out[2] = &r->setup.out;
    out[3] = &r->setup.err_out;
}

int64_t branch_result_bytes(const struct branch_result *b)
{
    struct stream_result *s[STREAMS];
    int64_t n = 0;
    streams_of(b, s);
    for (int i = 0; i < STREAMS; i++) {
        n += stream_bytes(s[i]);
    }
    return n;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* The most that one of n amounts may be so that together they are at most max: those below it stay
 * whole, what they leave is for the others. Sorts sizes. */
static int64_t level(int64_t *sizes, int n, int64_t max)
{
    qsort(sizes, (size_t)n, sizeof *sizes, by_size);
    for (int i = 0; i < n; i++) {
        if (sizes[i] > max / (n - i)) {
            return max / (n - i);
        }
        max -= sizes[i];
    }
    return INT64_MAX;
}

/* Amounts become what is kept of each. What is left of the division goes to the first of those that
 * are cut, a byte each: so together they are max, and who comes later finds what he would have
 * found at once. */
static void share(int64_t *sizes, int n, int64_t max)
{
    cleanup_free int64_t *sorted = job_new_array((size_t)n, sizeof *sorted);
    memcpy(sorted, sizes, (size_t)n * sizeof *sorted);
    int64_t each = level(sorted, n, max), left = max;
    for (int i = 0; i < n; i++) {
        left -= sizes[i] < each ? sizes[i] : each;
    }
    for (int i = 0; i < n; i++) {
        if (sizes[i] > each) {
            sizes[i] = each + (left > 0);
            left -= left > 0;
        }
    }
}

/* Keep `keep` bytes: the first half of them and the last. */
static int64_t cut_stream(struct stream_result *s, int64_t keep)
{
    int64_t have = stream_bytes(s);
    if (have <= keep) {
        return 0;
    }
    size_t n = (size_t)have, head = (size_t)(keep + 1) / 2, tail = (size_t)keep / 2;
    char *all = job_new_array(n, 1);
    if (s->head.len) {
        memcpy(all, s->head.data, s->head.len);
    }
    if (s->tail.len) {
        memcpy(all + s->head.len, s->tail.data, s->tail.len);
    }
    free(s->head.data);
    free(s->tail.data);
    s->head = (struct bytes){ .data = jr_dup(all, head), .len = head };
    s->tail = (struct bytes){ .data = jr_dup(all + n - tail, tail), .len = tail };
    free(all);
    s->cut_bytes += have - keep;
    return have - keep;
}

static int64_t cut_branch(struct branch_result *b, int64_t max)
{
    struct stream_result *s[STREAMS];
    int64_t keep[STREAMS], cut = 0;
    streams_of(b, s);
    for (int i = 0; i < STREAMS; i++) {
        keep[i] = stream_bytes(s[i]);
    }
    share(keep, STREAMS, max);
    for (int i = 0; i < STREAMS; i++) {
        cut += cut_stream(s[i], keep[i]);
    }
    return cut;
}

int64_t branch_results_cap(struct branch_result *const *b, int n, int64_t max_bytes)
{
    assert(n >= 0 && max_bytes >= 0);
    int64_t cut = 0;
    cleanup_free int64_t *keep = job_new_array((size_t)n, sizeof *keep);
    for (int i = 0; i < n; i++) {
        keep[i] = branch_result_bytes(b[i]);
    }
    share(keep, n, max_bytes);
    for (int i = 0; i < n; i++) {
        if (branch_result_bytes(b[i]) > keep[i]) {
            cut += cut_branch(b[i], keep[i]);
        }
    }
    return cut;
}

bool branch_result_billed(const struct branch_result *b, const struct job_result *job)
{
    const struct job_result *r = &b->result;
    bool used = r->measured_ms > 0 && r->vcpus > 0;
    bool counts = verdict_billed(r->verdict) || r->verdict == VERDICT_CANCELLED;
    return used && counts && job_result_billed(job);
}
