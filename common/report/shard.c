/* Shards: a table of variables, and longest processing time first over a heap of shards. */
#include "common/report/shard.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/report/report.h"

#define UNKNOWN_TIME_US                                                                            \
    1000000 /* when no file has a time: any number, all files weigh the same                       \
             */
#define LOAD_US_MAX (INT64_MAX / 4)

enum kind { INDEX0, INDEX1, TOTAL, STATUS, XML, TMP };

static const struct {
    const char *name;
    enum kind kind;
} vars[] = {
#define SHARD_VAR(name, kind, who) { name, kind },
#include "common/report/shard.def"
#undef SHARD_VAR
};
static_assert(sizeof vars / sizeof *vars <= SHARD_VARS_MAX, "the table has outgrown its maximum");

static int check_where(const struct shard_where *w, struct err *err)
{
    if (w->total < 1 || w->total > SHARDS_MAX) {
        return err_set(err, ERR_INVALID, "shards: must be from 1 to %u", SHARDS_MAX);
    }
    if (w->index >= w->total) {
        return err_set(err, ERR_INVALID, "shard %u of %u: there is none", w->index + 1, w->total);
    }
    return 0;
}

int shard_env(const struct shard_where *where, struct shard_var ret_vars[SHARD_VARS_MAX],
              struct err *err)
{
    int rc = check_where(where, err);
    if (rc < 0) {
        return rc;
    }
    int n = 0;
    for (size_t i = 0; i < sizeof vars / sizeof *vars; i++) {
        struct shard_var *v = &ret_vars[n];
        const char *path = vars[i].kind == STATUS ? where->status_file
                           : vars[i].kind == XML  ? where->xml_file
                           : vars[i].kind == TMP  ? where->tmp_dir
                                                  : "";
        if (!path) {
            continue;
        }
        unsigned number =
            vars[i].kind == TOTAL ? where->total : where->index + (vars[i].kind == INDEX1);
        bool numeric = vars[i].kind == INDEX0 || vars[i].kind == INDEX1 || vars[i].kind == TOTAL;
        if (strlen(path) > SHARD_VALUE_BYTES_MAX) {
            return err_set(err, ERR_INVALID, "%s: longer than %u bytes", vars[i].name,
                           SHARD_VALUE_BYTES_MAX);
        }
        v->name = vars[i].name;
        if (numeric) {
            (void)snprintf(v->value, sizeof v->value, "%u", number);
        } else {
            (void)snprintf(v->value, sizeof v->value, "%s", path);
        }
        n++;
    }
    return n;
}

int shard_expand(const struct shard_where *where, const char *arg, struct buf *out, struct err *err)
{
    int rc = check_where(where, err);
    const struct {
        const char *word;
        unsigned value;
    } words[] = {
        { "{shard}", where->index + 1 },
        { "{shard0}", where->index },
        { "{shards}", where->total },
    };
    while (rc == 0 && *arg) {
        size_t i = 0;
        while (i < 3 && strncmp(arg, words[i].word, strlen(words[i].word)) != 0) {
            i++;
        }
        if (i < 3) {
            rc = buf_addf(out, err, "%u", words[i].value);
            arg += strlen(words[i].word);
        } else {
            size_t n = strcspn(arg + 1, "{") + 1;
            rc = buf_add(out, arg, n, err);
            arg += n;
        }
    }
    return rc;
}

struct item {
    const char *name;
    int64_t time_us;
    size_t index; /* in the caller's list */
};

/* Longest first; equal times by name, so that the caller's order does not matter. */
static int by_time(const void *pa, const void *pb)
{
    const struct item *a = pa, *b = pb;
    if (a->time_us != b->time_us) {
        return a->time_us < b->time_us ? 1 : -1;
    }
    int order = strcmp(a->name, b->name);
    return order ? order : (a->index > b->index) - (a->index < b->index);
}

static int by_value(const void *pa, const void *pb)
{
    const int64_t *a = pa, *b = pb;
    return (*a > *b) - (*a < *b);
}

static int64_t median(const struct shard_file *files, size_t n)
{
    cleanup_free int64_t *known = calloc(n ? n : 1, sizeof *known);
    if (!known) {
        abort();
    }
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (files[i].time_us >= 0) {
            known[k++] = files[i].time_us;
        }
    }
    qsort(known, k, sizeof *known, by_value);
    return k ? known[(k - 1) / 2] : UNKNOWN_TIME_US;
}

struct load {
    int64_t time_us;
    size_t files;
    unsigned shard;
};

/* Less to do; then fewer files, which deals out files of no time evenly; then the lower shard. */
static bool lighter(const struct load *a, const struct load *b)
{
    if (a->time_us != b->time_us) {
        return a->time_us < b->time_us;
    }
    return a->files != b->files ? a->files < b->files : a->shard < b->shard;
}

/* The root has become heavier: let it sink. */
static void sink(struct load *heap, size_t n)
{
    for (size_t i = 0;;) {
        size_t least = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++) {
            least = lighter(&heap[child], &heap[least]) ? child : least;
        }
        if (least == i) {
            return;
        }
        struct load swap = heap[i];
        heap[i] = heap[least];
        heap[least] = swap;
        i = least;
    }
}

int shard_balance(const struct shard_file *files, size_t n, unsigned shards, unsigned *ret_shard,
                  int64_t *ret_load_us, struct err *err)
{
    if (shards < 1 || shards > SHARDS_MAX) {
        return err_set(err, ERR_INVALID, "shards: must be from 1 to %u", SHARDS_MAX);
    }
    if (n > SHARD_FILES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "%zu test files; at most %u", n, SHARD_FILES_MAX);
    }
    int64_t unknown_us = median(files, n);
    cleanup_free struct item *items = calloc(n ? n : 1, sizeof *items);
    if (!items) {
        abort();
    }
    for (size_t i = 0; i < n; i++) {
        int64_t time_us = files[i].time_us >= 0 ? files[i].time_us : unknown_us;
        time_us = time_us < REPORT_TIME_US_MAX ? time_us : REPORT_TIME_US_MAX;
        items[i] = (struct item){ files[i].name, time_us, i };
    }
    qsort(items, n, sizeof *items, by_time);
    struct load heap[SHARDS_MAX];
    for (unsigned s = 0; s < shards; s++) {
        heap[s] = (struct load){ .shard = s };
    }
    for (size_t i = 0; i < n; i++) {
        ret_shard[items[i].index] = heap[0].shard;
        heap[0].files++;
        heap[0].time_us += items[i].time_us;
        heap[0].time_us = heap[0].time_us < LOAD_US_MAX ? heap[0].time_us : LOAD_US_MAX;
        sink(heap, shards);
    }
    for (unsigned s = 0; s < shards && ret_load_us; s++) {
        ret_load_us[heap[s].shard] = heap[s].time_us;
    }
    return 0;
}

/* A name under which a case may ask for a file. */
struct alias {
    char *name;
    size_t file;
};

static int by_alias(const void *pa, const void *pb)
{
    const struct alias *a = pa, *b = pb;
    int order = strcmp(a->name, b->name);
    return order ? order : (a->file > b->file) - (a->file < b->file);
}

static char *dotted(const char *path)
{
    char *p = strdup(path);
    if (!p) {
        abort();
    }
    char *slash = strrchr(p, '/'), *dot = strrchr(p, '.');
    if (dot && dot > (slash ? slash + 1 : p)) {
        *dot = 0;
    }
    for (char *c = p; *c; c++) {
        *c = *c == '/' ? '.' : *c;
    }
    return p;
}

static const struct alias *find_alias(const struct alias *all, size_t n, const char *name)
{
    size_t from = 0, to = n;
    while (from < to) {
        size_t mid = from + (to - from) / 2;
        if (strcmp(all[mid].name, name) < 0) {
            from = mid + 1;
        } else {
            to = mid;
        }
    }
    return from < n && strcmp(all[from].name, name) == 0 ? &all[from] : NULL;
}

/* name as it is, then with what follows its last dots taken off ("tests.test_a.TestX"). */
static const struct alias *find_class(const struct alias *all, size_t n, const char *name)
{
    char part[REPORT_NAME_BYTES_MAX + 1];
    (void)snprintf(part, sizeof part, "%s", name);
    for (;;) {
        const struct alias *a = part[0] ? find_alias(all, n, part) : NULL;
        char *dot = strrchr(part, '.');
        if (a || !dot) {
            return a;
        }
        *dot = 0;
    }
}

int shard_times(struct shard_file *files, size_t n, const struct report *past, struct err *err)
{
    if (n > SHARD_FILES_MAX) {
        return err_set(err, ERR_TOO_LARGE, "%zu test files; at most %u", n, SHARD_FILES_MAX);
    }
    cleanup_free struct alias *all = calloc(2 * n + 1, sizeof *all);
    cleanup_free int64_t *sums = calloc(n + 1, sizeof *sums);
    if (!all || !sums) {
        abort();
    }
    for (size_t i = 0; i < n; i++) {
        sums[i] = -1;
        all[2 * i] = (struct alias){ strdup(files[i].name), i };
        all[2 * i + 1] = (struct alias){ dotted(files[i].name), i };
        if (!all[2 * i].name) {
            abort();
        }
    }
    qsort(all, 2 * n, sizeof *all, by_alias);
    for (size_t i = 0; i < past->n_cases; i++) {
        const struct report_case *c = &past->cases[i];
        const struct alias *a = c->file[0] ? find_alias(all, 2 * n, c->file) : NULL;
        a = a ? a : find_class(all, 2 * n, c->classname);
        a = a ? a : find_class(all, 2 * n, c->suite);
        if (a && c->time_us >= 0) {
            int64_t sum = (sums[a->file] > 0 ? sums[a->file] : 0) + c->time_us;
            sums[a->file] = sum < REPORT_TIME_US_MAX ? sum : REPORT_TIME_US_MAX;
        }
    }
    int found = 0;
    for (size_t i = 0; i < n; i++) {
        files[i].time_us = sums[i] >= 0 ? sums[i] : files[i].time_us;
        found += sums[i] >= 0;
        free(all[2 * i].name);
        free(all[2 * i + 1].name);
    }
    return found;
}
