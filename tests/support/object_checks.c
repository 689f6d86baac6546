#include "tests/support/object_checks.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"

static struct err err;

#define OK(call) cr_assert_eq((call), 0, "%s: %s", #call, err.text)

static void fill(unsigned char *p, size_t n, unsigned seed)
{
    uint64_t x = seed * 2654435761u + 88172645463325252u;
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        p[i] = (unsigned char)x;
    }
}

int object_empty_file(void)
{
    int fd = memfd_create("object-test", MFD_CLOEXEC);
    cr_assert_geq(fd, 0);
    return fd;
}

int object_file(size_t n, unsigned seed, struct object_id *ret_id)
{
    int fd = object_empty_file();
    unsigned char *p = malloc(n + 1), digest[crypto_hash_sha256_BYTES];
    cr_assert_not_null(p);
    fill(p, n, seed);
    for (size_t at = 0; at < n;) {
        ssize_t w = pwrite(fd, p + at, n - at, (off_t)at);
        cr_assert_gt(w, 0);
        at += (size_t)w;
    }
    (void)crypto_hash_sha256(digest, p, n);
    (void)sodium_bin2hex(ret_id->hex, sizeof ret_id->hex, digest, sizeof digest);
    free(p);
    return fd;
}

struct object_id object_put_seeded(struct object_store *s, size_t n, unsigned seed)
{
    struct object_id id;
    int fd = object_file(n, seed, &id);
    struct object_put put = { .fd = fd, .size_bytes = -1 };
    OK(object_put(s, &put, &err));
    cr_assert_str_eq(put.ret_id.hex, id.hex);
    cr_assert_eq(put.ret_size_bytes, (int64_t)n);
    (void)close(fd);
    return id;
}

void object_expect_file(int fd, const struct object_id *id, int64_t size)
{
    struct stat st;
    cr_assert_eq(fstat(fd, &st), 0);
    cr_assert_eq(st.st_size, size, "%lld bytes", (long long)st.st_size);
    OK(object_verify(id, fd, &err));
}

void object_check_round_trip(struct object_store *s, size_t n)
{
    struct object_id id;
    int fd = object_file(n, (unsigned)n, &id), out = object_empty_file(), copy = -1;
    struct object_put put = { .fd = fd, .size_bytes = (int64_t)n, .want = &id };
    int64_t size = -1;
    cr_assert_eq(object_exists(s, &id, &err), 0, "%s", err.text);
    OK(object_put(s, &put, &err));
    cr_assert_not(put.ret_existed);
    cr_assert_str_eq(put.ret_id.hex, id.hex);
    cr_assert_eq(put.ret_size_bytes, (int64_t)n);
    cr_assert_eq(lseek(fd, 0, SEEK_CUR), 0, "a regular file's position stays");
    cr_assert_eq(object_exists(s, &id, &err), 1);
    OK(object_size(s, &id, &size, &err));
    cr_assert_eq(size, (int64_t)n);
    OK(object_get(s, &id, out, &size, &err));
    cr_assert_eq(size, (int64_t)n);
    cr_assert_eq(lseek(out, 0, SEEK_CUR), (off_t)n);
    object_expect_file(out, &id, (int64_t)n);
    OK(object_open(s, &id, true, &copy, &err));
    object_expect_file(copy, &id, (int64_t)n);
    cr_assert_lt(write(copy, "x", 1), 0, "read only");
    /* once more, known and unknown digest: nothing is copied */
    OK(object_put(s, &put, &err));
    cr_assert(put.ret_existed);
    put.want = NULL;
    put.size_bytes = -1;
    OK(object_put(s, &put, &err));
    cr_assert(put.ret_existed);
    cr_assert_eq(put.ret_size_bytes, (int64_t)n);
    OK(object_delete(s, &id, &err));
    cr_assert_eq(object_exists(s, &id, &err), 0);
    (void)close(fd);
    (void)close(out);
    (void)close(copy);
}

struct feed {
    int from, to;
};

static void *feed(void *arg)
{
    struct feed *f = arg;
    char part[5000]; /* no power of two */
    ssize_t n;
    while ((n = read(f->from, part, sizeof part)) > 0) {
        if (write(f->to, part, (size_t)n) != n) {
            break;
        }
    }
    (void)close(f->to);
    return NULL;
}

/* From a pipe, size not known, then known and wrong. */
void object_check_stream(struct object_store *s)
{
    struct object_id id;
    const int64_t n = 700001;
    for (int round = 0; round < 3; round++) {
        int fd = object_file((size_t)n, 5, &id), ends[2];
        cr_assert_eq(lseek(fd, 0, SEEK_SET), 0);
        cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
        struct feed f = { fd, ends[1] };
        pthread_t thread;
        cr_assert_eq(pthread_create(&thread, NULL, feed, &f), 0);
        struct object_put put = { .fd = ends[0], .size_bytes = round == 0 ? -1 : n + (round == 2) };
        int rc = object_put(s, &put, &err);
        if (round < 2) {
            cr_assert_eq(rc, 0, "%s", err.text);
            cr_assert_str_eq(put.ret_id.hex, id.hex);
            cr_assert_eq(put.ret_size_bytes, n);
            cr_assert_eq(put.ret_existed, round == 1);
        } else {
            cr_assert_eq(rc, -ERR_INVALID);
            cr_assert(strstr(err.text, "700002 bytes announced, input ended after 700001"), "%s",
                      err.text);
        }
        (void)pthread_join(thread, NULL);
        (void)close(ends[0]);
        (void)close(fd);
    }
    cr_assert_eq(object_exists(s, &id, &err), 1);
}

void object_check_sink_is_a_pipe(struct object_store *s)
{
    struct object_id id = object_put_seeded(s, 500000, 9);
    int ends[2], out = object_empty_file();
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    struct feed f = { ends[0], dup(out) };
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, feed, &f), 0);
    OK(object_get(s, &id, ends[1], NULL, &err));
    (void)close(ends[1]);
    (void)pthread_join(thread, NULL);
    object_expect_file(out, &id, 500000);
    (void)close(ends[0]);
    (void)close(out);
}

void object_check_refusals(struct object_store *s)
{
    struct object_id id, other;
    int fd = object_file(1000, 1, &id);
    (void)close(object_file(1000, 2, &other));
    struct object_put put = { .fd = fd, .size_bytes = -1, .want = &other };
    cr_assert_eq(object_put(s, &put, &err), -ERR_CORRUPT);
    cr_assert(strstr(err.text, other.hex) && strstr(err.text, id.hex), "%s", err.text);
    put = (struct object_put){ .fd = fd, .size_bytes = -1, .max_bytes = 999 };
    cr_assert_eq(object_put(s, &put, &err), -ERR_TOO_LARGE);
    put.size_bytes = 1000;
    cr_assert_eq(object_put(s, &put, &err), -ERR_TOO_LARGE);
    put = (struct object_put){ .fd = fd, .size_bytes = 1001 };
    cr_assert_eq(object_put(s, &put, &err), -ERR_INVALID);
    cr_assert_eq(object_exists(s, &id, &err), 0);
    cr_assert_eq(object_exists(s, &other, &err), 0);
    put = (struct object_put){ .fd = fd, .size_bytes = 1000, .max_bytes = 1000 };
    OK(object_put(s, &put, &err));
    cr_assert_eq(object_exists(s, &id, &err), 1);
    /* a part of a file, from its position on */
    struct object_id head;
    put = (struct object_put){ .fd = fd, .size_bytes = 10 };
    cr_assert_eq(lseek(fd, 990, SEEK_SET), 990);
    OK(object_put(s, &put, &err));
    head = put.ret_id;
    int64_t size;
    OK(object_size(s, &head, &size, &err));
    cr_assert_eq(size, 10);
    (void)close(fd);
}

void object_check_absent(struct object_store *s)
{
    struct object_id id;
    (void)close(object_file(10, 77, &id));
    int out = object_empty_file(), fd = -1;
    int64_t size;
    cr_assert_eq(write(out, "head", 4), 4);
    cr_assert_eq(object_get(s, &id, out, NULL, &err), -ERR_NOT_FOUND, "%s", err.text);
    cr_assert(strstr(err.text, id.hex), "%s", err.text);
    cr_assert_eq(lseek(out, 0, SEEK_END), 4, "what was there before stays");
    cr_assert_eq(object_get_range(s, &id, 0, 1, out, 0, &err), -ERR_NOT_FOUND);
    cr_assert_eq(object_get_parallel(s, &id, out, 4, 1, -1, NULL, &err), -ERR_NOT_FOUND);
    cr_assert_eq(object_open(s, &id, false, &fd, &err), -ERR_NOT_FOUND);
    cr_assert_eq(fd, -1);
    cr_assert_eq(object_size(s, &id, &size, &err), -ERR_NOT_FOUND);
    cr_assert_eq(object_exists(s, &id, &err), 0);
    OK(object_delete(s, &id, &err));
    (void)close(out);
}

void object_check_ranges(struct object_store *s)
{
    const int64_t n = 10000;
    struct object_id id = object_put_seeded(s, (size_t)n, 3), again;
    int whole = object_file((size_t)n, 3, &again), out = object_empty_file();
    const struct {
        int64_t at, n;
    } good[] = { { 0, 1 }, { 0, n }, { n - 1, 1 }, { 1234, 4321 }, { 5000, 0 }, { n, 0 } };
    static char want[10000], is[10000];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        cr_assert_eq(ftruncate(out, 0), 0);
        OK(object_get_range(s, &id, good[i].at, good[i].n, out, 100, &err));
        cr_assert_eq(lseek(out, 0, SEEK_END), good[i].n ? good[i].n + 100 : 0);
        cr_assert_eq(pread(whole, want, (size_t)good[i].n, good[i].at), good[i].n);
        cr_assert_eq(pread(out, is, (size_t)good[i].n, 100), good[i].n);
        cr_assert_eq(memcmp(want, is, (size_t)good[i].n), 0);
    }
    const int64_t bad[][2] = { { 0, n + 1 }, { n - 1, 2 }, { n, 1 },
                               { n + 5, 1 }, { -1, 1 },    { 0, -1 } };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_assert_eq(object_get_range(s, &id, bad[i][0], bad[i][1], out, 0, &err), -ERR_INVALID,
                     "%lld+%lld: %s", (long long)bad[i][0], (long long)bad[i][1], err.text);
        cr_assert(strstr(err.text, id.hex), "%s", err.text);
    }
    (void)close(whole);
    (void)close(out);
}

void object_check_parallel(struct object_store *s)
{
    const int64_t n = 1000001;
    struct object_id id = object_put_seeded(s, (size_t)n, 4);
    const int ranges[] = { 1, 2, 5, OBJECT_RANGES_MAX };
    int out = object_empty_file();
    int64_t size;
    for (int i = 0; i < 4; i++) {
        cr_assert_gt(write(out, "old content", 11), 0);
        OK(object_get_parallel(s, &id, out, ranges[i], i % 2 ? 1 : 1 << 18, -1, &size, &err));
        cr_assert_eq(size, n);
        object_expect_file(out, &id, n);
    }
    struct object_id empty = object_put_seeded(s, 0, 0);
    OK(object_get_parallel(s, &empty, out, 4, 1, -1, &size, &err));
    cr_assert_eq(size, 0);
    (void)close(out);
}

static int by_hex(const void *a, const void *b)
{
    return strcmp(((const struct object_id *)a)->hex, ((const struct object_id *)b)->hex);
}

void object_check_list(struct object_store *s)
{
    enum { N = 23 };
    struct object_id ids[N];
    struct object_total total;
    static struct object_info rows[OBJECT_LIST_MAX];
    cr_assert_eq(object_list(s, NULL, rows, 10, &err), 0, "%s", err.text);
    OK(object_total(s, &total, &err));
    cr_assert_eq(total.objects, 0);
    int64_t bytes = 0;
    for (unsigned i = 0; i < N; i++) {
        ids[i] = object_put_seeded(s, 100 + i, i);
        bytes += 100 + i;
    }
    qsort(ids, N, sizeof ids[0], by_hex);
    for (int step = 1; step <= N + 1; step += step < 5 ? 1 : 9) {
        int n = 0, got;
        do {
            got = object_list(s, n ? &ids[n - 1] : NULL, rows, step, &err);
            cr_assert(got >= 0 && got <= step, "%s", err.text);
            for (int i = 0; i < got; i++, n++) {
                cr_assert_lt(n, N);
                cr_assert_str_eq(rows[i].id.hex, ids[n].hex);
                cr_assert(rows[i].size_bytes >= 100 && rows[i].size_bytes < 100 + N);
                cr_assert(llabs(rows[i].modified_ms - wall_ms()) < 600000, "%lld",
                          (long long)rows[i].modified_ms);
            }
        } while (got == step);
        cr_assert_eq(n, N, "%d of %d in steps of %d", n, N, step);
    }
    /* from between two */
    struct object_id mark = ids[3];
    mark.hex[OBJECT_HEX - 1] = mark.hex[OBJECT_HEX - 1] == 'f' ? 'e' : 'f';
    bool before = strcmp(mark.hex, ids[3].hex) < 0;
    cr_assert_eq(object_list(s, &mark, rows, 1, &err), 1);
    cr_assert_str_eq(rows[0].id.hex, ids[before ? 3 : 4].hex);
    OK(object_total(s, &total, &err));
    cr_assert_eq(total.objects, N);
    cr_assert_eq(total.bytes, bytes);
    OK(object_delete(s, &ids[7], &err));
    OK(object_total(s, &total, &err));
    cr_assert_eq(total.objects, N - 1);
}

static int64_t modified_ms(struct object_store *s, const struct object_id *id)
{
    struct object_info rows[OBJECT_LIST_MAX];
    int n = object_list(s, NULL, rows, OBJECT_LIST_MAX, &err);
    for (int i = 0; i < n; i++) {
        if (strcmp(rows[i].id.hex, id->hex) == 0) {
            return rows[i].modified_ms;
        }
    }
    cr_assert_fail("%s is not listed", id->hex);
    return -1;
}

void object_check_sweep(struct object_store *s)
{
    struct object_id one = object_put_seeded(s, 100, 1), two = object_put_seeded(s, 100, 2), none;
    (void)close(object_file(100, 3, &none));
    int64_t at_ms = modified_ms(s, &one);
    cr_expect_eq(object_sweep(s, &one, at_ms - 60000, &err), 0, "younger than that");
    cr_expect_eq(object_sweep(s, &one, at_ms, &err), 0, "exactly as old");
    cr_expect_eq(object_exists(s, &one, &err), 1);
    cr_expect_eq(object_sweep(s, &one, at_ms + 1000, &err), 1, "%s", err.text);
    cr_expect_eq(object_exists(s, &one, &err), 0);
    cr_expect_eq(object_sweep(s, &one, at_ms + 1000, &err), 0, "it is gone already");
    cr_expect_eq(object_sweep(s, &none, at_ms + 1000, &err), 0, "it never was");
    cr_expect_eq(object_exists(s, &two, &err), 1);
}

void object_check_renew(struct object_store *s)
{
    struct object_id id, again;
    int fd = object_file(5000, 4, &id);
    struct object_put put = { .fd = fd, .size_bytes = 5000, .want = &id };
    OK(object_put(s, &put, &err));
    int64_t at_ms = modified_ms(s, &id);
    OK(object_put(s, &put, &err));
    cr_expect(put.ret_existed, "young: it is left alone");
    sleep_ms(3000);
    OK(object_put(s, &put, &err));
    int64_t later_ms = modified_ms(s, &id);
    cr_expect_gt(later_ms, at_ms, "named by its digest");
    cr_expect_eq(object_sweep(s, &id, later_ms, &err), 0, "it counts as put now");
    again = object_put_seeded(s, 5000, 4);
    cr_expect_str_eq(again.hex, id.hex);
    cr_expect_eq(object_exists(s, &id, &err), 1);
    (void)close(fd);
}
