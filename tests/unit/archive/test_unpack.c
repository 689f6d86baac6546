/* Every archive that tests/support/make_archives.py makes, from memory, from a file and through a
 * pipe: what is given out, or the rule that is named. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/archive/unpack.h"
#include "common/base/buf.h"

static const struct unpack_limits limits = { .entries_max = 200,
                                             .file_bytes_max = 1 << 20,
                                             .total_bytes_max = 2 << 20,
                                             .path_bytes_max = 1000 };

/* ---- a sink that writes down what it is given, as the index does ---- */

#define SHOWN_MAX 4096 /* larger contents are written as @SIZE:SUM-OF-BYTES */

struct heard {
    struct buf rows[512];
    int n;
    uint64_t left; /* announced and not come */
    uint64_t bytes;
    uint64_t file, sum; /* of the file in hand */
    char content[SHOWN_MAX];
};

static void put_escaped(struct buf *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        int rc = c > ' ' && c < 127 && c != '\\' ? buf_add(b, s + i, 1, NULL)
                                                 : buf_addf(b, NULL, "\\x%02x", c);
        cr_assert_eq(rc, 0);
    }
}

static void end_file(struct heard *h)
{
    if (h->n == 0 || h->rows[h->n - 1].data[0] != 'f') {
        return;
    }
    struct buf *b = &h->rows[h->n - 1];
    if (h->file <= SHOWN_MAX) {
        put_escaped(b, h->content, h->file);
    } else {
        cr_assert_eq(buf_addf(b, NULL, "@%llu:%llu", (unsigned long long)h->file,
                              (unsigned long long)h->sum),
                     0);
    }
}

static int on_entry(void *arg, const struct unpack_entry *e, struct err *err)
{
    struct heard *h = arg;
    (void)err;
    cr_assert_eq(h->left, 0, "the file before is whole");
    cr_assert_lt(h->n, 512);
    cr_assert_eq(e->path[e->path_len], '\0');
    end_file(h);
    struct buf *b = &h->rows[h->n++];
    buf_init(b, 1 << 20);
    h->file = h->sum = 0;
    cr_assert_eq(buf_addf(b, NULL, "%c:", "fdlh"[e->type]), 0);
    put_escaped(b, e->path, e->path_len);
    if (e->type == UNPACK_FILE) {
        cr_assert_eq(buf_addf(b, NULL, ":%o:", e->mode), 0);
        h->left = e->size > 0 ? (uint64_t)e->size : 0;
    } else if (e->type != UNPACK_DIR) {
        cr_assert_eq(buf_add(b, ":", 1, NULL), 0);
        put_escaped(b, e->target, e->target_len);
    }
    return 0;
}

static int on_data(void *arg, const void *data, size_t n, struct err *err)
{
    struct heard *h = arg;
    const unsigned char *bytes = data;
    (void)err;
    cr_assert_leq(n, h->left);
    h->left -= n;
    h->bytes += n;
    for (size_t i = 0; i < n; i++, h->file++) {
        h->sum += bytes[i];
        if (h->file < SHOWN_MAX) {
            h->content[h->file] = (char)bytes[i];
        }
    }
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct buf *)a)->data, ((const struct buf *)b)->data);
}

static void take_listing(struct heard *h, struct buf *out)
{
    end_file(h);
    qsort(h->rows, (size_t)h->n, sizeof h->rows[0], by_text);
    for (int i = 0; i < h->n; i++) {
        cr_assert_eq(buf_addf(out, NULL, "%s%s", i ? " " : "", h->rows[i].data), 0);
    }
}

/* ---- running one ---- */

enum way { FROM_MEMORY, FROM_FILE, FROM_PIPE, WAYS };

struct feeder {
    const struct buf *data;
    int fd;
};

static void *feed(void *arg)
{
    struct feeder *f = arg;
    for (size_t at = 0; at < f->data->len;) {
        ssize_t n =
            write(f->fd, f->data->data + at, f->data->len - at < 1000 ? f->data->len - at : 1000);
        if (n <= 0) {
            break;
        }
        at += (size_t)n;
    }
    (void)close(f->fd);
    return NULL;
}

static int unpack_way(enum way way, const char *path, const struct buf *data,
                      const struct unpack_sink *sink, struct err *err)
{
    if (way == FROM_MEMORY) {
        char *exact = malloc(data->len ? data->len : 1); /* AddressSanitizer sees its end */
        memcpy(exact, data->data ? data->data : "", data->len);
        int rc = unpack_memory(exact, data->len, &limits, sink, err);
        free(exact);
        return rc;
    }
    if (way == FROM_FILE) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        int rc = unpack_fd(fd, &limits, sink, err);
        (void)close(fd);
        return rc;
    }
    int ends[2];
    (void)signal(SIGPIPE, SIG_IGN); /* it may stop reading before the end */
    pthread_t thread;
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    struct feeder f = { data, ends[1] };
    cr_assert_eq(pthread_create(&thread, NULL, feed, &f), 0);
    int rc = unpack_fd(ends[0], &limits, sink, err);
    (void)close(ends[0]);
    (void)pthread_join(thread, NULL);
    return rc;
}

static void check(const char *dir, const char *name, const char *want, enum way way)
{
    static struct heard h;
    char path[512];
    struct err err = { 0 };
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    cleanup_buf struct buf data = { 0 }, listing = { 0 };
    buf_init(&data, 64 << 20);
    buf_init(&listing, 1 << 20);
    cr_assert_eq(buf_read_file(&data, path, &err), 0, "%s", err.text);
    bool zip = data.len > 22 && memcmp(data.data, "PK\3\4", 4) == 0;
    h.n = 0;
    h.left = h.bytes = 0;
    struct unpack_sink sink = { .entry = on_entry, .data = on_data, .arg = &h };
    int rc = unpack_way(way, path, &data, &sink, &err);
    cr_expect_leq(h.bytes, limits.total_bytes_max);
    if (zip && way == FROM_PIPE) {
        cr_expect_eq(rc, -ERR_INVALID);
        cr_expect(strstr(err.text, "must come as a file"), "%s: %s", name, err.text);
    } else if (strncmp(want, "ok ", 3) == 0) {
        cr_expect_eq(rc, h.n, "%s way %d: %d %s", name, way, rc, err.text);
        cr_expect_eq(h.left, 0);
        take_listing(&h, &listing);
        cr_expect_str_eq(h.n ? listing.data : "", want + 3, "%s way %d", name, way);
    } else {
        size_t code = strcspn(want, " ");
        const char *words = want[code] ? want + code + 1 : "";
        cr_expect(rc < 0 && strncmp(err_word(-rc), want, code) == 0 &&
                      strlen(err_word(-rc)) == code,
                  "%s way %d: %d %s", name, way, rc, err.text);
        cr_expect(strstr(err.text, words), "%s way %d: %s", name, way, err.text);
        cr_expect_eq(strncmp(err.text, "archive: ", 9), 0, "%s", err.text);
    }
    for (int i = 0; i < h.n; i++) {
        buf_done(&h.rows[i]);
    }
}

/* A line for the shell, in which $D is dir. */
static void run(const char *line, const char *dir)
{
    cr_assert_eq(setenv("D", dir, 1), 0);
    cr_assert_eq(system(line), 0, "%s", line);
}

Test(unpack, every_archive, .timeout = 300)
{
    char dir[] = "/tmp/archives-XXXXXX", path[64];
    cr_assert(mkdtemp(dir));
    run("python3 " BROOD_SOURCE_DIR "/tests/support/make_archives.py \"$D\"", dir);
    (void)snprintf(path, sizeof path, "%s/index", dir);
    FILE *f = fopen(path, "re");
    cr_assert(f);
    char *line = NULL;
    size_t room = 0;
    int n = 0;
    while (getline(&line, &room, f) > 0) {
        line[strcspn(line, "\n")] = '\0';
        char *want = strchr(line, '\t');
        cr_assert(want);
        *want++ = '\0';
        for (enum way way = 0; way < WAYS; way++) {
            check(dir, line, want, way);
        }
        n++;
    }
    cr_expect_gt(n, 80);
    free(line);
    (void)fclose(f);
    run("rm -rf \"$D\"", dir);
}

/* ---- a bomb ends early, in constant memory ---- */

static int count_entry(void *arg, const struct unpack_entry *e, struct err *err)
{
    (void)arg;
    (void)e;
    (void)err;
    return 0;
}

static int count_data(void *arg, const void *data, size_t n, struct err *err)
{
    (void)data;
    (void)err;
    *(uint64_t *)arg += n;
    return 0;
}

static long peak_kib(void)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

Test(unpack, four_gigabytes_from_a_small_file, .timeout = 300)
{
    char dir[] = "/tmp/bomb-XXXXXX", path[64];
    cr_assert(mkdtemp(dir));
    run("python3 " BROOD_SOURCE_DIR "/tests/support/make_archives.py \"$D\" bomb", dir);
    (void)snprintf(path, sizeof path, "%s/bomb", dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = lseek(fd, 0, SEEK_END);
    cr_expect_lt(size, 170000, "%lld", (long long)size);
    uint64_t bytes = 0;
    struct err err = { 0 };
    struct unpack_sink sink = { .entry = count_entry, .data = count_data, .arg = &bytes };
    long before = peak_kib();
    cr_expect_eq(unpack_fd(fd, &limits, &sink, &err), -ERR_TOO_LARGE);
    cr_expect(strstr(err.text, "a file may have"), "%s", err.text);
    cr_expect_eq(bytes, 0); /* by its first header */
    struct unpack_limits wide = { .entries_max = 5000,
                                  .file_bytes_max = 64 << 20,
                                  .total_bytes_max = 256 << 20,
                                  .path_bytes_max = 1000 };
    bytes = 0;
    cr_expect_eq(unpack_fd(fd, &wide, &sink, &err), -ERR_TOO_LARGE);
    cr_expect(strstr(err.text, "in all"), "%s", err.text);
    cr_expect_eq(bytes, 256 << 20);
    cr_expect_lt(peak_kib() - before, 64 << 10);
    (void)close(fd);
    run("rm -rf \"$D\"", dir);
}

/* ---- the sink has the last word ---- */

static int refuse(void *arg, const struct unpack_entry *e, struct err *err)
{
    (void)arg;
    return err_set(err, ERR_LIMIT, "not %s", e->path);
}

Test(unpack, what_the_sink_says)
{
    char dir[] = "/tmp/sink-XXXXXX", path[64];
    cr_assert(mkdtemp(dir));
    run("cd \"$D\" && printf 1 > a && tar -cf t.tar a", dir);
    (void)snprintf(path, sizeof path, "%s/t.tar", dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct err err = { 0 };
    struct unpack_sink sink = { .entry = refuse, .data = count_data };
    cr_expect_eq(unpack_fd(fd, &limits, &sink, &err), -ERR_LIMIT);
    cr_expect_str_eq(err.text, "not a");
    (void)close(fd);
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_expect_eq(unpack_fd(fd, &limits, &sink, &err), -ERR_INVALID);
    (void)close(fd);
    run("rm -rf \"$D\"", dir);
}
