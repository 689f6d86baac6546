/* Archives of any bytes: whatever is given out is clean, within the maxima and announced; nothing
 * crashes, hangs or grows. */
#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/archive/unpack.h"
#include "common/base/path.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct unpack_limits limits = {
    .entries_max = 64, .file_bytes_max = 1 << 16, .total_bytes_max = 1 << 18, .path_bytes_max = 300
};

struct state {
    uint32_t entries;
    uint64_t file, total;
    int64_t announced;
    bool is_file;
};

static void check_target(const struct unpack_entry *e)
{
    int depth = 0, up = 0;
    assert(e->target_len > 0 && e->target_len <= limits.path_bytes_max);
    assert(strlen(e->target) == e->target_len);
    if (e->type == UNPACK_HARDLINK) {
        assert(path_clean(e->target, e->target_len));
        return;
    }
    for (size_t i = 0; i < e->path_len; i++) {
        depth += e->path[i] == '/';
    }
    assert(e->target[0] != '/');
    for (const char *p = e->target; *p;) { /* no more ".." than the folder is deep, in all */
        size_t n = strcspn(p, "/");
        up += n == 2 && p[0] == '.' && p[1] == '.';
        p += n + (p[n] == '/');
    }
    assert(up <= depth);
}

static int on_entry(void *arg, const struct unpack_entry *e, struct err *err)
{
    struct state *s = arg;
    (void)err;
    assert(!s->is_file || s->announced < 0 || s->file == (uint64_t)s->announced);
    assert(++s->entries <= limits.entries_max);
    assert(path_clean(e->path, e->path_len) && e->path_len <= limits.path_bytes_max);
    assert(strlen(e->path) == e->path_len && e->mode <= 0777);
    s->is_file = e->type == UNPACK_FILE;
    s->file = 0;
    s->announced = s->is_file ? e->size : 0;
    assert(s->announced <= (int64_t)limits.file_bytes_max);
    if (e->type == UNPACK_LINK || e->type == UNPACK_HARDLINK) {
        check_target(e);
    }
    return 0;
}

static int on_data(void *arg, const void *data, size_t n, struct err *err)
{
    struct state *s = arg;
    (void)err;
    assert(s->is_file && n > 0 && data);
    s->file += n;
    s->total += n;
    assert(s->file <= limits.file_bytes_max && s->total <= limits.total_bytes_max);
    assert(s->announced < 0 || s->file <= (uint64_t)s->announced);
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum = (uint8_t)(sum + ((const uint8_t *)data)[i]);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct state s = { 0 };
    struct err err = { 0 };
    struct unpack_sink sink = { .entry = on_entry, .data = on_data, .arg = &s };
    int rc = unpack_memory(data, size, &limits, &sink, &err);
    assert(rc < 0 ? rc == -err.code && err.text[0] : (uint32_t)rc == s.entries);
    return 0;
}
