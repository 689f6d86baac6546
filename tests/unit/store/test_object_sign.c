#include <criterion/criterion.h>
#include <sodium.h>
#include <string.h>

#include "common/store/object_s3_pure.h"

static struct err err;

/* "Authenticating Requests: Using Query Parameters", Amazon S3 API reference: the example there. */
Test(presign, example_of_aws)
{
    cr_assert_geq(sodium_init(), 0);
    const struct s3_presign in = { .scheme = "https",
                                   .host = "examplebucket.s3.amazonaws.com",
                                   .path = "/test.txt",
                                   .access_key = "AKIAIOSFODNN7EXAMPLE",
                                   .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                                   .region = "us-east-1",
                                   .at_s = 1369353600, /* 2013-05-24T00:00:00Z */
                                   .expires_s = 86400 };
    char url[OBJECT_URL_MAX];
    cr_assert_eq(s3_presign_get(&in, url, &err), 0, "%s", err.text);
    cr_assert_str_eq(url, "https://examplebucket.s3.amazonaws.com/test.txt"
                          "?X-Amz-Algorithm=AWS4-HMAC-SHA256"
                          "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3"
                          "%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400"
                          "&X-Amz-SignedHeaders=host&X-Amz-Signature="
                          "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
}

Test(presign, token_is_signed_and_encoded)
{
    struct s3_presign in = { .scheme = "http",
                             .host = "localhost:9000",
                             .path = "/b/a b",
                             .access_key = "k",
                             .secret_key = "s",
                             .session_token = "a+b/c=",
                             .region = "eu-west-1",
                             .at_s = 0,
                             .expires_s = 1 };
    char url[OBJECT_URL_MAX], other[OBJECT_URL_MAX];
    cr_assert_eq(s3_presign_get(&in, url, &err), 0);
    cr_assert(strstr(url, "http://localhost:9000/b/a%20b?"), "%s", url);
    cr_assert(strstr(url, "&X-Amz-Date=19700101T000000Z&X-Amz-Expires=1"
                          "&X-Amz-Security-Token=a%2Bb%2Fc%3D&X-Amz-SignedHeaders=host&"),
              "%s", url);
    in.session_token = "a+b/d=";
    cr_assert_eq(s3_presign_get(&in, other, &err), 0);
    cr_assert_str_neq(strstr(url, "Signature="), strstr(other, "Signature="));
}

Test(presign, token_too_long_for_a_url)
{
    static char token[2048];
    memset(token, '=', sizeof token - 1); /* three bytes each when encoded */
    struct s3_presign in = { .scheme = "http",
                             .host = "h",
                             .path = "/b/k",
                             .access_key = "k",
                             .secret_key = "s",
                             .session_token = token,
                             .region = "r",
                             .at_s = 0,
                             .expires_s = 1 };
    char url[OBJECT_URL_MAX];
    cr_assert_eq(s3_presign_get(&in, url, &err), -ERR_TOO_LARGE);
}

Test(encode, rfc3986)
{
    char out[64];
    cr_assert_eq(s3_encode("aZ09-._~/ +%\xc3\xa9", true, out, sizeof out, &err), 0);
    cr_assert_str_eq(out, "aZ09-._~/%20%2B%25%C3%A9");
    cr_assert_eq(s3_encode("a/b", false, out, sizeof out, &err), 0);
    cr_assert_str_eq(out, "a%2Fb");
    cr_assert_eq(s3_encode("abc", false, out, 4, &err), 0);
    cr_assert_eq(s3_encode("abc", false, out, 3, &err), -ERR_TOO_LARGE);
    cr_assert_eq(s3_encode("/", false, out, 3, &err), -ERR_TOO_LARGE);
    cr_assert_eq(s3_encode("/", false, out, 4, &err), 0);
}
