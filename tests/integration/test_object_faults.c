/* The S3 driver against a server that does wrong on purpose (tests/support/hostile_s3.py): the
 * bucket's name is the fault. Back-off is a few milliseconds, the stall time-out one second. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/store/object_s3.h"
#include "tests/support/child_server.h"
#include "tests/support/names.h"
#include "tests/support/object_checks.h"

#define ATTEMPTS 4

static char top[] = "/tmp/brood-t-objects-XXXXXX";
#define ENV "BROOD_TEST_HOSTILE"

static struct object_options options;
static struct object_store *store;
static struct err err;

#define OK(call) cr_assert_eq((call), 0, "%s: %s", #call, err.text)

/* The fault's bucket, this test's own: its requests are counted apart. */
static void reopen(const char *bucket)
{
    object_store_free(store);
    (void)snprintf(options.s3.bucket, sizeof options.s3.bucket, "%s%d", bucket, (int)getpid());
    OK(object_store_open(&store, &options, &err));
}

static void setup(void)
{
    cr_assert_not_null(mkdtemp(top));
    cr_assert_not_null(getenv(ENV));
    options.driver = OBJECT_S3;
    (void)snprintf(options.dir, sizeof options.dir, "%s/objects", top);
    options.s3 = (struct object_s3_options){ .region = "us-east-1",
                                             .access_key = "key",
                                             .secret_key = "top-secret",
                                             .part_bytes = 1000,
                                             .connect_timeout_ms = 5000,
                                             .stall_timeout_s = 1,
                                             .attempts_max = ATTEMPTS,
                                             .retry_base_ms = 1,
                                             .retry_max_ms = 5 };
    (void)snprintf(options.s3.endpoint, sizeof options.s3.endpoint, "%s", getenv(ENV));
}

static void teardown(void)
{
    char command[128];
    object_store_free(store);
    (void)snprintf(command, sizeof command, "rm -rf -- %s", top);
    cr_assert_eq(system(command), 0);
}

static int run(int argc, char **argv)
{
    struct criterion_test_set *tests = criterion_initialize();
    struct child_server server = { .pid = 0 };
    int result = 1;
    if (!criterion_handle_args(argc, argv, true)) {
        result = 0;
    } else if (child_server_start(&server, "tests/support/hostile_s3.py") == 1) {
        (void)setenv(ENV, server.line, 1);
        result = !criterion_run_all_tests(tests);
    }
    criterion_finalize(tests);
    child_server_end(&server);
    return result;
}

int main(int argc, char **argv)
{
    __asm__ volatile(".skip 256, 0x90"); /* BoxFort overwrites this much: tests/support/fixture.h */
    return run(argc, argv);
}

TestSuite(object_faults, .init = setup, .fini = teardown);

static size_t collect(char *data, size_t size, size_t n, void *arg)
{
    return buf_add(arg, data, size * n, NULL) < 0 ? 0 : n;
}

/* The lines of requests that the server saw for the bucket, and how many begin with `start`. */
static int seen(const char *start)
{
    static struct buf log;
    char url[700];
    (void)snprintf(url, sizeof url, "%s/_log/%s", options.s3.endpoint, options.s3.bucket);
    buf_done(&log);
    buf_init(&log, 1 << 20);
    CURL *c = curl_easy_init();
    (void)curl_easy_setopt(c, CURLOPT_URL, url);
    (void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, collect);
    (void)curl_easy_setopt(c, CURLOPT_WRITEDATA, &log);
    cr_assert_eq(curl_easy_perform(c), CURLE_OK);
    curl_easy_cleanup(c);
    int n = 0;
    for (const char *line = log.data; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        n += strncmp(line, start, strlen(start)) == 0;
    }
    buf_done(&log);
    return n;
}

static int seen_list(void)
{
    char start[80];
    (void)snprintf(start, sizeof start, "GET /%s/?", options.s3.bucket);
    return seen(start);
}

/* Put a body of n bytes under its name into the bucket. */
static struct object_id put(const char *bucket, size_t n)
{
    reopen(bucket);
    return object_put_seeded(store, n, 1);
}

Test(object_faults, server_errors_then_right)
{
    reopen("first-fails");
    object_check_round_trip(store, 500);
    cr_assert_eq(seen("PUT"), 3);
    object_check_round_trip(store, 5000); /* in parts */
    reopen("too-many");
    object_check_round_trip(store, 500);
    cr_assert_eq(seen("PUT"), 2, "429 is tried again");
}

Test(object_faults, always_busy)
{
    struct object_id id;
    int fd = object_file(10, 1, &id), out = object_empty_file();
    reopen("always-busy");
    cr_assert_eq(object_get(store, &id, out, NULL, &err), -ERR_UNAVAILABLE);
    cr_assert_eq(seen("GET"), ATTEMPTS);
    const char *words[] = { "after 4 attempts", "bucket always-busy", id.hex, "HTTP 503 SlowDown",
                            "reduce your request rate & wait" };
    for (int i = 0; i < 5; i++) {
        cr_assert(strstr(err.text, words[i]), "\"%s\" not in: %s", words[i], err.text);
    }
    struct object_put p = { .fd = fd, .size_bytes = -1 };
    cr_assert_eq(object_put(store, &p, &err), -ERR_UNAVAILABLE);
    cr_assert_eq(seen("HEAD"), ATTEMPTS);
    cr_assert_eq(seen("PUT"), 0, "what cannot be asked is not sent either");
    (void)close(fd);
    (void)close(out);
}

Test(object_faults, bad_credentials_are_final)
{
    struct object_id id;
    int fd = object_file(10, 1, &id), out = object_empty_file();
    reopen("forbidden");
    cr_assert_eq(object_get(store, &id, out, NULL, &err), -ERR_REFUSED);
    cr_assert_eq(seen("GET"), 1);
    cr_assert(strstr(err.text, "HTTP 403 InvalidAccessKeyId") &&
                  strstr(err.text, "bucket forbidden") && strstr(err.text, "s3.access_key") &&
                  !strstr(err.text, "top-secret"),
              "%s", err.text);
    struct object_put p = { .fd = fd, .size_bytes = -1 };
    cr_assert_eq(object_put(store, &p, &err), -ERR_REFUSED);
    cr_assert_eq(seen("PUT"), 1);
    cr_assert_eq(object_exists(store, &id, &err), -ERR_REFUSED);
    cr_assert(strstr(err.text, "HTTP 403"), "%s", err.text);
    (void)close(fd);
    (void)close(out);
}

Test(object_faults, absent_bucket_says_what_to_create)
{
    struct object_id id;
    int fd = object_file(10, 1, &id), out = object_empty_file();
    struct object_put p = { .fd = fd, .size_bytes = -1 };
    reopen("absent");
    for (int i = 0; i < 3; i++) {
        int rc = i == 0   ? object_get(store, &id, out, NULL, &err)
                 : i == 1 ? object_put(store, &p, &err)
                          : object_exists(store, &id, &err);
        cr_assert_eq(rc, -ERR_REFUSED, "%d: %s", i, err.text);
        cr_assert(strstr(err.text, "HTTP 404 NoSuchBucket") &&
                      strstr(err.text, "; create the bucket \"absent") &&
                      strstr(err.text, "\" at 127.0.0.1"),
                  "%s", err.text);
    }
    cr_assert_eq(seen("PUT"), 1);
    (void)close(fd);
    (void)close(out);
}

Test(object_faults, bucket_in_another_region)
{
    struct object_id id;
    int out = object_empty_file();
    (void)close(object_file(10, 1, &id));
    reopen("elsewhere");
    cr_assert_eq(object_get(store, &id, out, NULL, &err), -ERR_REFUSED);
    cr_assert(strstr(err.text, "HTTP 301") && strstr(err.text, "s3.region = eu-west-3"), "%s",
              err.text);
    cr_assert_eq(seen("GET"), 1, "a redirect is not followed");
    (void)close(out);
}

Test(object_faults, slow_body_is_broken_off)
{
    struct object_id id;
    int out = object_empty_file();
    (void)close(object_file(1000, 1, &id));
    options.s3.attempts_max = 2;
    reopen("slow");
    cr_assert_eq(object_get(store, &id, out, NULL, &err), -ERR_TIMEOUT, "%s", err.text);
    cr_assert(strstr(err.text, id.hex) && strstr(err.text, "no byte moved for 1 s"), "%s",
              err.text);
    cr_assert_eq(seen("GET"), 2);
    cr_assert_eq(lseek(out, 0, SEEK_END), 0);
    (void)close(out);
}

Test(object_faults, truncated_body_is_continued)
{
    struct object_id id = put("truncated", 900);
    int out = object_empty_file();
    int64_t size;
    OK(object_get(store, &id, out, &size, &err));
    cr_assert_eq(size, 900);
    object_expect_file(out, &id, 900);
    cr_assert_eq(seen("GET /") - seen_list(), 3);
    object_check_sink_is_a_pipe(store); /* what went to a pipe cannot be sent again */
    cr_assert_eq(ftruncate(out, 0), 0);
    OK(object_get_range(store, &id, 100, 700, out, 0, &err));
    options.s3.attempts_max = 2; /* the third piece is one too many */
    reopen("truncated");
    cr_assert_eq(lseek(out, 0, SEEK_SET), 0);
    cr_assert_eq(ftruncate(out, 0), 0);
    cr_assert_eq(object_get(store, &id, out, NULL, &err), -ERR_UNAVAILABLE);
    cr_assert_eq(lseek(out, 0, SEEK_END), 0);
    (void)close(out);
}

Test(object_faults, progress_gives_new_attempts)
{
    options.s3.part_bytes = 16 << 20;
    struct object_id id = put("truncated", 4 << 20);
    int out = object_empty_file();
    options.s3.attempts_max = 2;
    reopen("truncated");
    OK(object_get(store, &id, out, NULL, &err));
    object_expect_file(out, &id, 4 << 20);
    (void)close(out);
}

Test(object_faults, short_body_without_a_length)
{
    struct object_id id = put("short-quietly", 900);
    int out = object_empty_file();
    cr_assert_eq(object_get(store, &id, out, NULL, &err), -ERR_CORRUPT);
    cr_assert(strstr(err.text, id.hex), "%s", err.text);
    cr_assert_eq(lseek(out, 0, SEEK_END), 0);
    (void)close(out);
}

Test(object_faults, wrong_bytes)
{
    struct object_id id = put("wrong-bytes", 900);
    int out = object_empty_file(), fd = -1;
    cr_assert_eq(object_get(store, &id, out, NULL, &err), -ERR_CORRUPT);
    cr_assert(strstr(err.text, id.hex), "%s", err.text);
    cr_assert_eq(lseek(out, 0, SEEK_END), 0);
    cr_assert_eq(object_get_parallel(store, &id, out, 3, 1, -1, NULL, &err), -ERR_CORRUPT);
    cr_assert_eq(lseek(out, 0, SEEK_END), 0);
    cr_assert_eq(object_open(store, &id, false, &fd, &err), -ERR_CORRUPT);
    cr_assert_eq(fd, -1);
    (void)close(out);
}

Test(object_faults, server_that_ignores_ranges)
{
    struct object_id id = put("ignores-range", 900);
    int out = object_empty_file();
    cr_assert_eq(object_get_range(store, &id, 10, 20, out, 0, &err), -ERR_PROTOCOL);
    cr_assert(strstr(err.text, "asked for bytes from 10, the server sends from 0"), "%s", err.text);
    cr_assert_eq(object_get_range(store, &id, 0, 20, out, 0, &err), -ERR_PROTOCOL);
    cr_assert(strstr(err.text, "more bytes than asked for"), "%s", err.text);
    (void)close(out);
}

/* A file that somebody writes to between its digest and the end of its parts. */
Test(object_faults, input_that_changes)
{
    char path[64];
    (void)snprintf(path, sizeof path, "%s/input", top);
    FILE *f = fopen(path, "w+e");
    cr_assert_not_null(f);
    for (int i = 0; i < 2500; i++) {
        (void)fputc('a', f);
    }
    (void)fflush(f);
    (void)rewind(f);
    reopen("changes-input");
    struct s3_response r;
    s3_response_init(&r);
    struct s3_request q = S3_REQUEST(.method = "POST", .key = path, .query = "path=", .text = "");
    OK(s3_send((struct object_s3 *)(void *)store, &q, &r, &err));
    cleanup_s3_response_fn(&r);
    struct object_put p = { .fd = fileno(f), .size_bytes = -1 };
    cr_assert_eq(object_put(store, &p, &err), -ERR_INVALID);
    cr_assert(strstr(err.text, "the input changed"), "%s", err.text);
    cr_assert_eq(seen("DELETE"), 1);
    (void)fclose(f);
}

Test(object_faults, connection_reset)
{
    reopen("resets");
    object_check_round_trip(store, 500);
    object_check_round_trip(store, 5000);
    struct object_id id;
    int out = object_empty_file();
    (void)close(object_file(10, 1, &id));
    reopen("always-resets");
    cr_assert_eq(object_get(store, &id, out, NULL, &err), -ERR_UNAVAILABLE);
    cr_assert_eq(seen("GET"), ATTEMPTS);
    (void)close(out);
}

Test(object_faults, nobody_listens)
{
    struct object_id id;
    int out = object_empty_file();
    (void)close(object_file(10, 1, &id));
    (void)snprintf(options.s3.endpoint, sizeof options.s3.endpoint, "http://127.0.0.1:9");
    reopen("some-bucket");
    cr_assert_eq(object_get(store, &id, out, NULL, &err), -ERR_UNAVAILABLE);
    cr_assert(strstr(err.text, "127.0.0.1:9") && strstr(err.text, "after 4 attempts"), "%s",
              err.text);
    (void)close(out);
}

Test(object_faults, upload_that_fails_is_aborted)
{
    struct object_id id;
    int fd = object_file(2500, 1, &id);
    struct object_put p = { .fd = fd, .size_bytes = -1 };
    reopen("second-part-fails");
    cr_assert_eq(object_put(store, &p, &err), -ERR_REFUSED);
    cr_assert(strstr(err.text, "HTTP 400 InvalidPart: no"), "%s", err.text);
    cr_assert_eq(seen("DELETE"), 1);
    cr_assert_eq(seen("PUT"), 2, "no third part after the second was refused");
    cr_assert_eq(object_exists(store, &id, &err), 0);
    (void)close(fd);
}

/* 200 with an error inside; and an answer that was lost after the upload was completed. */
Test(object_faults, completing_an_upload)
{
    struct object_id id = put("late-error", 2500);
    cr_assert_eq(seen("POST"), 3, "begin, complete, complete");
    int out = object_empty_file();
    OK(object_get(store, &id, out, NULL, &err));
    id = put("lost-answer", 2500);
    cr_assert_eq(ftruncate(out, 0), 0);
    cr_assert_eq(lseek(out, 0, SEEK_SET), 0);
    OK(object_get(store, &id, out, NULL, &err));
    object_expect_file(out, &id, 2500);
    cr_assert_eq(seen("DELETE"), 0);
    (void)close(out);
}

Test(object_faults, odd_error_documents)
{
    struct object_id id;
    int out = object_empty_file();
    (void)close(object_file(10, 1, &id));
    reopen("big-error");
    cr_assert_eq(object_get(store, &id, out, NULL, &err), -ERR_REFUSED);
    cr_assert(strstr(err.text, "HTTP 400 Odd"), "%s", err.text);
    reopen("not-xml");
    cr_assert_eq(object_get(store, &id, out, NULL, &err), -ERR_REFUSED);
    cr_assert(strstr(err.text, "HTTP 400"), "%s", err.text);
    (void)close(out);
}

Test(object_faults, sixteen_threads_one_store)
{
    struct object_id id = put("plain", 500000);
    int out = object_empty_file();
    for (int i = 0; i < 5; i++) {
        OK(object_get_parallel(store, &id, out, OBJECT_RANGES_MAX, 1000, -1, NULL, &err));
        object_expect_file(out, &id, 500000);
    }
    (void)close(out);
}

/* Each try asks for the name anew. */
Test(object_faults, a_name_that_does_not_resolve)
{
    struct object_id id;
    int64_t size = 0;
    if (!names_begin(top)) {
        cr_skip_test("no mount namespace");
    }
    char port[16];
    (void)snprintf(port, sizeof port, "%s", strrchr(options.s3.endpoint, ':'));
    (void)snprintf(options.s3.endpoint, sizeof options.s3.endpoint, "http://objects.brood.test%s",
                   port);
    reopen("good");
    cr_expect_eq(object_put_bytes(store, "hello", 5, &id, &err), -ERR_UNAVAILABLE);
    cr_expect(strstr(err.text, "objects.brood.test"), "%s", err.text);
    names_set("127.0.0.1 objects.brood.test\n");
    OK(object_put_bytes(store, "hello", 5, &id, &err));
    OK(object_size(store, &id, &size, &err));
    cr_expect_eq(size, 5);
}
