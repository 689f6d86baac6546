#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/model/secrets.h"

#define MARKER "marker-5c1f"
#define HEAD "{\"template\":\"t\",\"command\":[\"x\"]"
#define JOB HEAD ",\"env\":{\"A\":\"1\"},\"secrets\":{\"TOKEN\":\"" MARKER "\",\"EMPTY\":\"\"}}"

static const uint8_t key[SECRET_KEY_BYTES] = { 1, 2, 3 }, other_key[SECRET_KEY_BYTES] = { 9 };
static struct err err;

static struct job_spec *parse(const char *json)
{
    struct job_spec *spec = NULL;
    cr_assert_eq(job_parse(json, strlen(json), &spec, &err), 0, "%s", err.text);
    return spec;
}

static void refused(const char *json, const char *why)
{
    struct job_spec *spec = NULL;
    cr_assert_lt(job_parse(json, strlen(json), &spec, &err), 0, "%s", json);
    cr_expect(strstr(err.text, why), "\"%s\" instead of \"%s\"", err.text, why);
    cr_expect(!strstr(err.text, MARKER), "the error tells the secret: %s", err.text);
}

static const char *value(const struct job_spec *spec, const char *name)
{
    for (int i = 0; i < spec->n_secrets; i++) {
        if (strcmp(spec->secrets[i].key, name) == 0) {
            return spec->secrets[i].value;
        }
    }
    cr_assert_fail("%s is not there", name);
    return NULL;
}

Test(secrets, sealed_and_opened)
{
    cleanup_job_spec struct job_spec *spec = parse(JOB);
    cr_assert_eq(spec->n_secrets, 2);
    cr_assert(!spec->secrets_sealed);
    cr_assert_eq(secrets_seal(spec, key, "a", &err), 0, "%s", err.text);
    cr_assert(spec->secrets_sealed);
    cr_expect(!strstr(spec->canonical, MARKER), "%s", spec->canonical);
    cr_expect(strstr(spec->canonical, "\"TOKEN\":{\"sealed\":\""), "%s", spec->canonical);
    /* as the worker gets it */
    cleanup_job_spec struct job_spec *twin = parse(spec->canonical);
    cr_assert(twin->secrets_sealed);
    cr_expect_str_eq(twin->canonical, spec->canonical);
    cr_assert_eq(secrets_open(twin, key, "a", &err), 0, "%s", err.text);
    cr_expect_str_eq(value(twin, "TOKEN"), MARKER);
    cr_expect_str_eq(value(twin, "EMPTY"), "");
    cr_expect(!strstr(twin->canonical, MARKER));
}

Test(secrets, the_same_job_seals_to_the_same_text)
{
    cleanup_job_spec struct job_spec *a = parse(JOB), *b = parse(JOB), *c = parse(JOB);
    cr_assert(secrets_seal(a, key, "a", &err) == 0 && secrets_seal(b, key, "a", &err) == 0 &&
              secrets_seal(c, key, "b", &err) == 0);
    cr_expect_str_eq(a->canonical, b->canonical, "an idempotency key would tell them apart");
    cr_expect_str_neq(a->canonical, c->canonical, "two tenants' values can be compared");
}

Test(secrets, of_no_use_to_others)
{
    char renamed[1024];
    cleanup_job_spec struct job_spec *spec = parse(HEAD ",\"secrets\":{\"TOKEN\":\"" MARKER "\"}}");
    cr_assert_eq(secrets_seal(spec, key, "a", &err), 0);
    cleanup_job_spec struct job_spec *theirs = parse(spec->canonical);
    cr_expect_eq(secrets_open(theirs, key, "b", &err), -ERR_INVALID, "another tenant opens it");
    cr_expect_eq(secrets_open(theirs, other_key, "a", &err), -ERR_INVALID, "another key opens it");
    cr_expect(strstr(err.text, "secrets.TOKEN: was not sealed here"), "%s", err.text);
    (void)snprintf(renamed, sizeof renamed, HEAD ",\"secrets\":{\"SHOWN\":{\"sealed\":\"%s\"}}}",
                   value(spec, "TOKEN"));
    cleanup_job_spec struct job_spec *other = parse(renamed);
    cr_expect_eq(secrets_open(other, key, "a", &err), -ERR_INVALID, "another name opens it");
    static const char *const broken[] = {
        "x", "AAAA", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    };
    for (int i = 0; i < 3; i++) {
        (void)snprintf(renamed, sizeof renamed, HEAD ",\"secrets\":{\"T\":{\"sealed\":\"%s\"}}}",
                       broken[i]);
        cleanup_job_spec struct job_spec *bad = parse(renamed);
        cr_expect_eq(secrets_open(bad, key, "a", &err), -ERR_INVALID);
    }
}

Test(secrets, refused_where_they_would_stay)
{
    refused(HEAD ",\"secrets\":{\"T\":\"" MARKER "\"},\"keep\":{\"name\":\"k\"}}",
            "not together with keep");
    refused(HEAD ",\"secrets\":{\"T\":\"" MARKER "\"},\"branches\":[{\"keep\":{\"name\":\"k\"}}]}",
            "not together with keep");
    refused(HEAD ",\"secrets\":{\"T\":\"" MARKER "\"},\"isolation\":\"shared\"}",
            "not together with isolation shared");
    struct job_spec *none = parse(HEAD ",\"secrets\":{},\"keep\":{\"name\":\"k\"}}");
    cr_expect_eq(none->n_secrets, 0);
    job_spec_free(none);
}

Test(secrets, rules)
{
    char json[8192], long_value[JOB_SECRETS_BYTES_MAX + 8];
    refused(HEAD ",\"secrets\":[\"" MARKER "\"]}", "secrets: must be an object");
    refused(HEAD ",\"secrets\":{\"1A\":\"" MARKER "\"}}", "secrets.1A: a variable's name");
    refused(HEAD ",\"secrets\":{\"A\":\"" MARKER "\\u0000\"}}", "secrets.A");
    refused(HEAD ",\"secrets\":{\"A\":7}}", "secrets.A");
    refused(HEAD ",\"env\":{\"A\":\"\"},\"secrets\":{\"A\":\"" MARKER "\"}}",
            "secrets.A: env has a variable of that name");
    refused(HEAD ",\"tests\":[{\"env\":{\"A\":\"\"}}],\"secrets\":{\"A\":\"" MARKER "\"}}",
            "secrets.A: env has a variable of that name");
    refused(HEAD ",\"secrets\":{\"A\":\"" MARKER "\",\"B\":{\"sealed\":\"AAAA\"}}}",
            "either all are sealed or none is");
    refused(HEAD ",\"secrets\":{\"A\":{\"open\":\"" MARKER "\"}}}", "secrets.A");
    memset(long_value, 'x', sizeof long_value);
    /* the name, '=' and NUL count too */
    for (int over = 0; over < 2; over++) {
        (void)snprintf(json, sizeof json, HEAD ",\"secrets\":{\"A\":\"%.*s\"}}",
                       JOB_SECRETS_BYTES_MAX - 3 + over, long_value);
        struct job_spec *spec = NULL;
        int rc = job_parse(json, strlen(json), &spec, &err);
        cr_expect_eq(rc, over ? -ERR_TOO_LARGE : 0, "%s", err.text);
        if (rc == 0) {
            cr_assert_eq(secrets_seal(spec, key, "a", &err), 0);
            struct job_spec *twin = parse(spec->canonical);
            cr_expect_eq(secrets_open(twin, key, "a", &err), 0, "%s", err.text);
            job_spec_free(twin);
        }
        job_spec_free(spec);
    }
}

Test(secrets, the_key_is_made_once_and_is_nobody_elses)
{
    static struct config c;
    uint8_t a[SECRET_KEY_BYTES], b[SECRET_KEY_BYTES], zero[SECRET_KEY_BYTES] = { 0 };
    char dir[] = "/tmp/brood-test-key-XXXXXX", path[64];
    cr_assert(mkdtemp(dir));
    (void)snprintf(c.home, sizeof c.home, "%s", dir);
    (void)snprintf(path, sizeof path, "%s/secrets.key", dir);
    cr_expect_eq(secret_key_load(&c, false, a, &err), -ERR_NOT_FOUND);
    cr_assert_eq(secret_key_load(&c, true, a, &err), 0, "%s", err.text);
    cr_assert_eq(secret_key_load(&c, true, b, &err), 0, "%s", err.text);
    cr_expect(memcmp(a, b, sizeof a) == 0 && memcmp(a, zero, sizeof a) != 0);
    struct stat st;
    cr_assert(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    cr_assert_eq(chmod(path, 0640), 0);
    cr_expect_eq(secret_key_load(&c, true, b, &err), -ERR_INVALID);
    int none = -1;
    cr_expect_eq(secret_key_open(&c, true, &none, &err), -ERR_INVALID);
    cr_expect_eq(none, -1);
    cr_assert(chmod(path, 0600) == 0 && truncate(path, 31) == 0);
    cr_expect_eq(secret_key_load(&c, true, b, &err), -ERR_INVALID);
    (void)unlink(path);
    (void)rmdir(dir);
}

/* As a service whose user may not read the file: by the descriptor, however often, wherever its
 * position is, and without a look at the path. */
Test(secrets, the_key_by_a_descriptor)
{
    static struct config c;
    uint8_t a[SECRET_KEY_BYTES], b[SECRET_KEY_BYTES];
    char dir[] = "/tmp/brood-test-key-XXXXXX", path[64], number[16];
    int fd = -1;
    cr_assert(mkdtemp(dir));
    (void)snprintf(c.home, sizeof c.home, "%s", dir);
    (void)snprintf(path, sizeof path, "%s/secrets.key", dir);
    cr_assert_eq(secret_key_load(&c, true, a, &err), 0, "%s", err.text);
    cr_assert_eq(secret_key_open(&c, false, &fd, &err), 0, "%s", err.text);
    cr_expect(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    (void)snprintf(number, sizeof number, "%d", fd);
    cr_assert(fcntl(fd, F_SETFD, 0) == 0 && setenv(SECRET_KEY_FD_ENV, number, 1) == 0);
    (void)snprintf(c.home, sizeof c.home, "/nowhere");
    for (int i = 0; i < 2; i++) {
        memset(b, 0, sizeof b);
        cr_assert_eq(secret_key_load(&c, false, b, &err), 0, "%s", err.text);
        cr_expect_arr_eq(a, b, sizeof a);
        cr_expect(fcntl(fd, F_GETFD) & FD_CLOEXEC, "it goes no further");
        cr_assert_eq(lseek(fd, 7, SEEK_SET), 7);
    }
    cr_assert_eq(fchmod(fd, 0640), 0);
    cr_expect_eq(secret_key_load(&c, false, b, &err), -ERR_INVALID);
    (void)close(fd);
    cr_expect_eq(secret_key_load(&c, false, b, &err), -ERR_INVALID, "closed: no descriptor");
    cr_assert_eq(setenv(SECRET_KEY_FD_ENV, "x", 1), 0);
    cr_expect_eq(secret_key_load(&c, false, b, &err), -ERR_INVALID);
    (void)unsetenv(SECRET_KEY_FD_ENV);
    (void)unlink(path);
    (void)rmdir(dir);
}
