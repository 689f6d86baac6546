/* The S3 driver against a server that nobody here wrote: Swift with its S3 layer, started once by
 * main, or any other by the environment:
 *
 *   BROOD_TEST_S3="ENDPOINT ACCESS_KEY SECRET_KEY" build/tests/bin/integration_object_s3
 *
 * The bucket is made here and left behind; each test has a prefix of its own. */
#include <criterion/criterion.h>
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/store/object_s3.h"
#include "tests/support/child_server.h"
#include "tests/support/object_checks.h"

#define ENV "BROOD_TEST_S3"
#define ENV_BUCKET "BROOD_TEST_S3_BUCKET"
#define PART_BYTES 65536
#define EXIT_SKIPPED 77 /* tests/CMakeLists.txt: SKIP_RETURN_CODE */

static char top[] = "/tmp/brood-t-objects-XXXXXX";
static struct object_options options;
static struct object_store *store;
static struct err err;

#define OK(call) cr_assert_eq((call), 0, "%s: %s", #call, err.text)

static int options_of_server(void)
{
    const char *env = getenv(ENV), *bucket = getenv(ENV_BUCKET);
    struct object_s3_options *o = &options.s3;
    options.driver = OBJECT_S3;
    *o = (struct object_s3_options){ .region = "us-east-1",
                                     .style = OBJECT_S3_PATH,
                                     .part_bytes = PART_BYTES,
                                     .connect_timeout_ms = 5000,
                                     .stall_timeout_s = 60,
                                     .attempts_max = 3,
                                     .retry_base_ms = 10,
                                     .retry_max_ms = 100 };
    (void)snprintf(o->bucket, sizeof o->bucket, "%s", bucket ? bucket : "");
    return env && sscanf(env, "%511s %255s %255s", o->endpoint, o->access_key, o->secret_key) == 3
               ? 0
               : -1;
}

/* A bucket that is new at this server. */
static int make_bucket(void)
{
    char dir[] = "/tmp/brood-t-bucket-XXXXXX", bucket[64], command[64];
    (void)snprintf(bucket, sizeof bucket, "brood-%d-%08x", (int)getpid(), (unsigned)mono_us());
    (void)setenv(ENV_BUCKET, bucket, 1);
    if (options_of_server() < 0 || !mkdtemp(dir)) {
        return -1;
    }
    (void)snprintf(options.dir, sizeof options.dir, "%s", dir);
    struct object_store *s;
    int rc = object_store_open(&s, &options, &err);
    if (rc == 0) {
        struct s3_response r;
        s3_response_init(&r);
        struct s3_request q = S3_REQUEST(.method = "PUT");
        rc = s3_send((struct object_s3 *)(void *)s, &q, &r, &err);
        cleanup_s3_response_fn(&r);
        object_store_free(s);
    }
    (void)snprintf(command, sizeof command, "rm -rf -- %s", dir);
    if (system(command) != 0 || rc < 0) {
        (void)fprintf(stderr, "bucket %s: %s\n", bucket, err.text);
        return -1;
    }
    return 0;
}

static int run(int argc, char **argv)
{
    struct criterion_test_set *tests = criterion_initialize();
    struct child_server swift = { .pid = 0 };
    int result = 1, up = 1;
    if (!criterion_handle_args(argc, argv, true)) {
        result = 0;
    } else {
        if (!getenv(ENV)) {
            up = child_server_start(&swift, "tests/support/swift_s3.py");
            (void)setenv(ENV, swift.line, 1);
        }
        if (up == 0) {
            (void)fprintf(stderr, "skipped: %s\n", swift.line);
            result = EXIT_SKIPPED;
        } else if (up > 0 && make_bucket() == 0) {
            result = !criterion_run_all_tests(tests);
        }
    }
    criterion_finalize(tests);
    child_server_end(&swift);
    return result;
}

int main(int argc, char **argv)
{
    __asm__ volatile(".skip 256, 0x90"); /* BoxFort overwrites this much: tests/support/fixture.h */
    return run(argc, argv);
}

static void setup(void)
{
    cr_assert_eq(options_of_server(), 0);
    cr_assert_not_null(mkdtemp(top));
    (void)snprintf(options.dir, sizeof options.dir, "%s/objects", top);
    (void)snprintf(options.s3.prefix, sizeof options.s3.prefix, "t%d/%s/", (int)getpid(),
                   top + sizeof top - 7);
    OK(object_store_open(&store, &options, &err));
}

static void teardown(void)
{
    char command[128];
    object_store_free(store);
    (void)snprintf(command, sizeof command, "rm -rf -- %s", top);
    cr_assert_eq(system(command), 0);
}

TestSuite(object_s3, .init = setup, .fini = teardown);

/* One PUT, and parts: around one part, a multiple of parts, one more. */
Test(object_s3, round_trip)
{
    const size_t sizes[] = { 0,
                             1,
                             PART_BYTES - 1,
                             PART_BYTES,
                             PART_BYTES + 1,
                             4 * PART_BYTES - 1,
                             4 * PART_BYTES,
                             4 * PART_BYTES + 1 };
    for (int i = 0; i < 8; i++) {
        object_check_round_trip(store, sizes[i]);
    }
}

Test(object_s3, one_put_of_a_few_megabytes)
{
    object_store_free(store);
    options.s3.part_bytes = 16 << 20;
    OK(object_store_open(&store, &options, &err));
    object_check_round_trip(store, 6000001);
}

Test(object_s3, stream)
{
    object_check_stream(store);
}

Test(object_s3, sink_is_a_pipe)
{
    object_check_sink_is_a_pipe(store);
}

Test(object_s3, refusals)
{
    object_check_refusals(store);
}

Test(object_s3, absent)
{
    object_check_absent(store);
}

Test(object_s3, ranges)
{
    object_check_ranges(store);
}

Test(object_s3, parallel)
{
    object_check_parallel(store);
}

Test(object_s3, sweep)
{
    object_check_sweep(store);
}

Test(object_s3, a_put_renews_what_is_old)
{
    object_store_free(store);
    options.renew_after_s = 1;
    OK(object_store_open(&store, &options, &err));
    object_check_renew(store);
}

Test(object_s3, list)
{
    object_check_list(store);
}

static int request(const char *method, const char *key, const char *query, int body_fd,
                   int64_t body_bytes, const char *sha256)
{
    struct s3_response r;
    s3_response_init(&r);
    struct s3_request q = S3_REQUEST(.method = method, .key = key, .query = query);
    q.body_fd = body_fd;
    q.body_bytes = body_bytes;
    q.body_sha256 = sha256;
    int rc = s3_send((struct object_s3 *)(void *)store, &q, &r, &err);
    cleanup_s3_response_fn(&r);
    return rc;
}

/* Keys of others between ours, more than a page of the list. */
Test(object_s3, list_passes_over_what_is_not_ours)
{
    struct object_id id, first = object_put_seeded(store, 10, 1), second;
    int fd = object_file(3, 1, &id);
    const char *names[] = { "0", "~", "zz/<&>\"' +%", "ab/cd/abcd" };
    for (int i = 0; i < 4; i++) {
        char key[300];
        (void)snprintf(key, sizeof key, "%s%s", options.s3.prefix, names[i]);
        OK(request("PUT", key, NULL, fd, 3, id.hex));
    }
    second = object_put_seeded(store, 11, 2);
    struct object_info rows[2];
    cr_assert_eq(object_list(store, NULL, rows, 1, &err), 1, "%s", err.text);
    cr_assert_eq(object_list(store, &rows[0].id, rows + 1, 1, &err), 1, "%s", err.text);
    bool ordered = strcmp(first.hex, second.hex) < 0;
    cr_assert_str_eq(rows[0].id.hex, ordered ? first.hex : second.hex);
    cr_assert_str_eq(rows[1].id.hex, ordered ? second.hex : first.hex);
    cr_assert_eq(object_list(store, &rows[1].id, rows, 1, &err), 0, "%s", err.text);
    (void)close(fd);
}

/* Something else under an object's name, as a person or a broken disk may leave it. */
Test(object_s3, corrupted_object_is_never_good)
{
    struct object_id id = object_put_seeded(store, 1000, 1), other;
    char key[S3_KEY_MAX];
    int fd = object_file(1000, 2, &other), out = object_empty_file(), copy = -1;
    s3_key((struct object_s3 *)(void *)store, &id, key);
    OK(request("PUT", key, NULL, fd, 1000, other.hex));
    cr_assert_eq(write(out, "head", 4), 4);
    cr_assert_eq(object_get(store, &id, out, NULL, &err), -ERR_CORRUPT);
    cr_assert(strstr(err.text, id.hex), "%s", err.text);
    cr_assert_eq(lseek(out, 0, SEEK_END), 4);
    cr_assert_eq(object_open(store, &id, false, &copy, &err), -ERR_CORRUPT);
    cr_assert_eq(object_get_parallel(store, &id, out, 2, 1, -1, NULL, &err), -ERR_CORRUPT);
    /* of another size: a put repairs it */
    OK(request("PUT", key, NULL, fd, 999, "UNSIGNED-PAYLOAD"));
    cr_assert_str_eq(object_put_seeded(store, 1000, 1).hex, id.hex);
    OK(object_get(store, &id, out, NULL, &err));
    (void)close(fd);
    (void)close(out);
}

static size_t collect(char *data, size_t size, size_t n, void *arg)
{
    return write(*(int *)arg, data, size * n) == (ssize_t)(size * n) ? n : 0;
}

/* A plain GET by somebody without credentials: the status. */
static long plain_get(const char *url, int out)
{
    long status = 0;
    CURL *c = curl_easy_init();
    cr_assert_not_null(c);
    (void)curl_easy_setopt(c, CURLOPT_URL, url);
    (void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, collect);
    (void)curl_easy_setopt(c, CURLOPT_WRITEDATA, &out);
    cr_assert_eq(curl_easy_perform(c), CURLE_OK, "%s", url);
    (void)curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(c);
    return status;
}

Test(object_s3, presigned_get)
{
    struct object_id id = object_put_seeded(store, 100000, 1);
    char url[OBJECT_URL_MAX];
    int out = object_empty_file();
    OK(object_presign_get(store, &id, 3600, url, &err));
    cr_assert_eq(plain_get(url, out), 200);
    object_expect_file(out, &id, 100000);
    url[strlen(url) - 1] = url[strlen(url) - 1] == '0' ? '1' : '0';
    cr_assert_eq(plain_get(url, out), 403, "another signature");
    cr_assert_eq(object_presign_get(store, &id, 0, url, &err), -ERR_INVALID);
    cr_assert_eq(object_presign_get(store, &id, OBJECT_PRESIGN_S_MAX + 1, url, &err), -ERR_INVALID);
    OK(object_presign_get(store, &id, OBJECT_PRESIGN_S_MAX, url, &err));
    cr_assert_eq(plain_get(url, out), 200);
    (void)close(out);
}

/* http://BUCKET.s3.localhost:PORT, which libcurl resolves to loopback itself. */
Test(object_s3, virtual_host_style)
{
    char endpoint[512];
    const char *port = strrchr(options.s3.endpoint, ':');
    cr_assert_not_null(port);
    struct object_id id = object_put_seeded(store, 1000, 1);
    object_store_free(store);
    (void)snprintf(endpoint, sizeof endpoint, "http://s3.localhost%s", port);
    memcpy(options.s3.endpoint, endpoint, sizeof endpoint);
    options.s3.style = OBJECT_S3_VIRTUAL;
    OK(object_store_open(&store, &options, &err));
    cr_assert_eq(object_exists(store, &id, &err), 1, "%s", err.text);
    object_check_round_trip(store, PART_BYTES + 1);
    char url[OBJECT_URL_MAX];
    int out = object_empty_file();
    OK(object_presign_get(store, &id, 60, url, &err));
    cr_assert_eq(plain_get(url, out), 200, "%s", url);
    object_expect_file(out, &id, 1000);
    (void)close(out);
}

/* The token's header is signed with the rest; that server does not look at its value. */
Test(object_s3, session_token)
{
    object_store_free(store);
    (void)snprintf(options.s3.session_token, sizeof options.s3.session_token, "to/k+en==");
    OK(object_store_open(&store, &options, &err));
    object_check_round_trip(store, PART_BYTES + 1);
    struct object_id id = object_put_seeded(store, 1000, 1);
    char url[OBJECT_URL_MAX];
    int out = object_empty_file();
    OK(object_presign_get(store, &id, 60, url, &err));
    cr_assert_eq(plain_get(url, out), 200, "%s", url);
    (void)close(out);
}

Test(object_s3, bad_credentials)
{
    struct object_id id = object_put_seeded(store, 10, 1);
    object_store_free(store);
    (void)snprintf(options.s3.secret_key, sizeof options.s3.secret_key, "wrong-secret");
    OK(object_store_open(&store, &options, &err));
    int out = object_empty_file();
    cr_assert_eq(object_get(store, &id, out, NULL, &err), -ERR_REFUSED);
    cr_assert(strstr(err.text, "HTTP 403 SignatureDoesNotMatch") &&
                  strstr(err.text, options.s3.bucket) && strstr(err.text, id.hex) &&
                  strstr(err.text, "s3.secret_key") && !strstr(err.text, "wrong-secret"),
              "%s", err.text);
    cr_assert_eq(object_exists(store, &id, &err), -ERR_REFUSED);
    (void)close(out);
}

Test(object_s3, bucket_absent)
{
    struct object_id id;
    int fd = object_file(10, 1, &id), out = object_empty_file();
    object_store_free(store);
    (void)snprintf(options.s3.bucket, sizeof options.s3.bucket, "brood-nobody-made-it");
    OK(object_store_open(&store, &options, &err));
    struct object_put put = { .fd = fd, .size_bytes = -1 };
    struct object_info row;
    cr_assert_eq(object_exists(store, &id, &err), -ERR_REFUSED, "not: absent object");
    cr_assert(strstr(err.text, "create the bucket \"brood-nobody-made-it\""), "%s", err.text);
    cr_assert_eq(object_put(store, &put, &err), -ERR_REFUSED, "%s", err.text);
    cr_assert(strstr(err.text, "NoSuchBucket"), "%s", err.text);
    cr_assert_eq(object_get(store, &id, out, NULL, &err), -ERR_REFUSED, "%s", err.text);
    cr_assert_eq(object_list(store, NULL, &row, 1, &err), -ERR_REFUSED, "%s", err.text);
    (void)close(fd);
    (void)close(out);
}

/* An upload in parts that was given up leaves no parts behind. */
Test(object_s3, no_uploads_are_left)
{
    object_check_round_trip(store, 3 * PART_BYTES);
    struct s3_response r;
    s3_response_init(&r);
    struct s3_request q = S3_REQUEST(.method = "GET", .query = "uploads=");
    OK(s3_send((struct object_s3 *)(void *)store, &q, &r, &err));
    size_t pos = 0, at, len;
    cr_assert(strstr(r.text.data, "ListMultipartUploadsResult"), "%s", r.text.data);
    cr_assert_not(s3_xml_element(r.text.data, r.text.len, &pos, "Upload", &at, &len), "%s",
                  r.text.data);
    cleanup_s3_response_fn(&r);
}
