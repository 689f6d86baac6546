#include "common/model/artifact.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/job_part.h"

static const char *const words[] = { "file", "link", "other" };

const char *artifact_kind_word(enum artifact_kind k)
{
    assert((int)k >= 0 && k <= ARTIFACT_KIND_OTHER);
    return words[k];
}

int artifact_kind_parse(const char *word)
{
    for (int i = 0; i <= ARTIFACT_KIND_OTHER; i++) {
        if (strcmp(words[i], word) == 0) {
            return i;
        }
    }
    return -1;
}

static struct bytes copy(const struct bytes *b)
{
    return (struct bytes){ .data = b->len ? jr_dup(b->data, b->len) : NULL, .len = b->len };
}

int artifact_add(struct artifact_list *l, const struct artifact *a, struct err *err)
{
    if (l->n >= JOB_NODE_ARTIFACTS_MAX) {
        return err_set(err, ERR_TOO_LARGE, "more than %d artifacts", JOB_NODE_ARTIFACTS_MAX);
    }
    if (a->path.len == 0 || a->path.len > ARTIFACT_PATH_MAX || a->target.len > ARTIFACT_PATH_MAX ||
        memchr(a->path.data, 0, a->path.len)) {
        return err_set(err, ERR_INVALID, "an artifact's path is 1 to %d bytes without NUL",
                       ARTIFACT_PATH_MAX);
    }
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 16;
        struct artifact *p = realloc(l->items, (size_t)cap * sizeof *p);
        if (!p) {
            abort();
        }
        l->items = p;
        l->cap = cap;
    }
    struct artifact *to = &l->items[l->n++];
    *to = *a;
    to->path = copy(&a->path);
    to->target = copy(&a->target);
    return 0;
}

void artifact_list_done(struct artifact_list *l)
{
    for (int i = 0; i < l->n; i++) {
        free(l->items[i].path.data);
        free(l->items[i].target.data);
    }
    free(l->items);
    *l = (struct artifact_list){ .n = 0 };
}

void artifact_count(const struct artifact_list *l, struct artifact_sums *sums)
{
    for (int i = 0; i < l->n; i++) {
        sums->listed++;
        sums->stored += l->items[i].stored;
        if (l->items[i].stored && l->items[i].kind == ARTIFACT_KIND_FILE) {
            sums->stored_bytes += l->items[i].size_bytes;
        }
    }
}
