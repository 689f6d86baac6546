/* Signature Version 4 for pre-signed URLs. Requests themselves are signed by libcurl. */
#include "common/store/object_s3_pure.h"

#include <assert.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/buf.h"

#define SIGN_TEXT_MAX (3 * OBJECT_URL_MAX)
#define MAC_BYTES crypto_auth_hmacsha256_BYTES

int s3_encode(const char *text, bool keep_slash, char *out, size_t room, struct err *err)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    size_t used = 0;
    for (const char *c = text; *c; c++) {
        bool keep = strchr(plain, *c) || (keep_slash && *c == '/');
        if (used + (keep ? 1 : 3) >= room) {
            return err_set(err, ERR_TOO_LARGE, "URL part of more than %zu bytes", room - 1);
        }
        if (keep) {
            out[used++] = *c;
        } else {
            (void)snprintf(out + used, 4, "%%%02X", (unsigned)(unsigned char)*c);
            used += 3;
        }
    }
    out[used] = 0;
    return 0;
}

static void hmac(const void *key, size_t key_len, const char *text, uint8_t out[MAC_BYTES])
{
    crypto_auth_hmacsha256_state st;
    (void)crypto_auth_hmacsha256_init(&st, key, key_len);
    (void)crypto_auth_hmacsha256_update(&st, (const uint8_t *)text, strlen(text));
    (void)crypto_auth_hmacsha256_final(&st, out);
    sodium_memzero(&st, sizeof st);
}

/* kSigning of the date (YYYYMMDD) and region. */
static void signing_key(const char *secret, const char *date, const char *region,
                        uint8_t out[MAC_BYTES])
{
    char first[300];
    int n = snprintf(first, sizeof first, "AWS4%s", secret);
    assert(n > 0 && (size_t)n < sizeof first); /* the secret has a maximum of 256 */
    uint8_t k[MAC_BYTES];
    hmac(first, (size_t)n, date, k);
    hmac(k, sizeof k, region, out);
    hmac(out, MAC_BYTES, "s3", k);
    hmac(k, sizeof k, "aws4_request", out);
    sodium_memzero(first, sizeof first);
    sodium_memzero(k, sizeof k);
}

static void hex_sha256(const char *text, char out[OBJECT_HEX + 1])
{
    uint8_t digest[crypto_hash_sha256_BYTES];
    (void)crypto_hash_sha256(digest, (const uint8_t *)text, strlen(text));
    (void)sodium_bin2hex(out, OBJECT_HEX + 1, digest, sizeof digest);
}

/* The query without the signature, names in order. */
static int make_query(const struct s3_presign *in, const char *scope, const char *stamp,
                      struct buf *query, struct err *err)
{
    char credential[512], encoded[1024], token[3 * 2048];
    (void)snprintf(credential, sizeof credential, "%s/%s", in->access_key, scope);
    int rc = s3_encode(credential, false, encoded, sizeof encoded, err);
    if (rc == 0) {
        rc = buf_addf(query, err,
                      "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%s&X-Amz-Date=%s"
                      "&X-Amz-Expires=%d",
                      encoded, stamp, in->expires_s);
    }
    if (rc == 0 && in->session_token && in->session_token[0]) {
        rc = s3_encode(in->session_token, false, token, sizeof token, err);
        if (rc == 0) {
            rc = buf_addf(query, err, "&X-Amz-Security-Token=%s", token);
        }
    }
    return rc < 0 ? rc : buf_add_str(query, "&X-Amz-SignedHeaders=host", err);
}

int s3_presign_get(const struct s3_presign *in, char out[OBJECT_URL_MAX], struct err *err)
{
    struct tm tm;
    time_t at = (time_t)in->at_s;
    if (!gmtime_r(&at, &tm)) {
        return err_set(err, ERR_INVALID, "pre-signed URL: no such time: %" PRId64, in->at_s);
    }
    char stamp[32], scope[128], path[3 * 1024], hash[OBJECT_HEX + 1];
    (void)strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &tm);
    (void)snprintf(scope, sizeof scope, "%.8s/%s/s3/aws4_request", stamp, in->region);
    cleanup_buf struct buf query = { 0 }, text = { 0 };
    buf_init(&query, SIGN_TEXT_MAX);
    buf_init(&text, SIGN_TEXT_MAX);
    int rc = s3_encode(in->path, true, path, sizeof path, err);
    if (rc < 0 || (rc = make_query(in, scope, stamp, &query, err)) < 0 ||
        (rc = buf_addf(&text, err, "GET\n%s\n%s\nhost:%s\n\nhost\nUNSIGNED-PAYLOAD", path,
                       query.data, in->host)) < 0) {
        return rc;
    }
    hex_sha256(text.data, hash);
    buf_reset(&text);
    rc = buf_addf(&text, err, "AWS4-HMAC-SHA256\n%s\n%s\n%s", stamp, scope, hash);
    if (rc < 0) {
        return rc;
    }
    uint8_t key[MAC_BYTES], mac[MAC_BYTES];
    char date[9];
    (void)snprintf(date, sizeof date, "%.8s", stamp);
    signing_key(in->secret_key, date, in->region, key);
    hmac(key, sizeof key, text.data, mac);
    sodium_memzero(key, sizeof key);
    (void)sodium_bin2hex(hash, sizeof hash, mac, sizeof mac);
    int n = snprintf(out, OBJECT_URL_MAX, "%s://%s%s?%s&X-Amz-Signature=%s", in->scheme, in->host,
                     path, query.data, hash);
    if (n < 0 || n >= OBJECT_URL_MAX) {
        return err_set(err, ERR_TOO_LARGE, "pre-signed URL of more than %d bytes",
                       OBJECT_URL_MAX - 1);
    }
    return 0;
}
