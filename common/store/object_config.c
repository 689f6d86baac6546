/* From configuration and environment to options. A row of the configuration wins over the AWS_*
 * variable; key, secret and session token come from one place together. */
#include "common/store/object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/config.h"

/* The first that is set and not empty, "" when none. */
static const char *first_env(const char *a, const char *b)
{
    const char *v = getenv(a);
    if (!v || !*v) {
        v = b ? getenv(b) : NULL;
    }
    return v ? v : "";
}

static int put_text(char *out, size_t room, const char *value, const char *name, struct err *err)
{
    size_t n = strlen(value);
    if (n >= room) {
        return err_set(err, ERR_TOO_LARGE, "%s: at most %zu bytes", name, room - 1);
    }
    if (strpbrk(value, "\r\n")) {
        return err_set(err, ERR_INVALID, "%s: one line", name);
    }
    memcpy(out, value, n + 1);
    return 0;
}

static int credentials(struct object_s3_options *o, const struct config *c, struct err *err)
{
    bool ours = c->s3_access_key[0] || c->s3_secret_key[0];
    const char *key = ours ? c->s3_access_key : first_env("AWS_ACCESS_KEY_ID", NULL);
    const char *secret = ours ? c->s3_secret_key : first_env("AWS_SECRET_ACCESS_KEY", NULL);
    const char *token = ours ? "" : first_env("AWS_SESSION_TOKEN", NULL);
    if (!*key || !*secret) {
        return err_set(err, ERR_INVALID,
                       "object.store = s3: no %s: set s3.access_key and s3.secret_key, or "
                       "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                       *key ? "secret key" : "access key");
    }
    int rc = put_text(o->access_key, sizeof o->access_key, key, "s3.access_key", err);
    rc = rc < 0 ? rc : put_text(o->secret_key, sizeof o->secret_key, secret, "s3.secret_key", err);
    return rc < 0 ? rc
                  : put_text(o->session_token, sizeof o->session_token, token, "AWS_SESSION_TOKEN",
                             err);
}

static int s3_options(struct object_s3_options *o, const struct config *c, struct err *err)
{
    const char *region =
        c->s3_region[0] ? c->s3_region : first_env("AWS_REGION", "AWS_DEFAULT_REGION");
    const char *endpoint =
        c->s3_endpoint[0] ? c->s3_endpoint : first_env("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
    int rc;
    if ((rc = put_text(o->region, sizeof o->region, *region ? region : "us-east-1", "s3.region",
                       err)) < 0 ||
        (rc = put_text(o->endpoint, sizeof o->endpoint, endpoint, "s3.endpoint", err)) < 0 ||
        (rc = put_text(o->bucket, sizeof o->bucket, c->s3_bucket, "s3.bucket", err)) < 0 ||
        (rc = put_text(o->prefix, sizeof o->prefix, c->s3_prefix, "s3.prefix", err)) < 0 ||
        (rc = credentials(o, c, err)) < 0) {
        return rc;
    }
    if (o->region[strspn(o->region, "abcdefghijklmnopqrstuvwxyz0123456789-")]) {
        return err_set(err, ERR_INVALID, "s3.region = \"%s\": a-z, 0-9 and '-'", o->region);
    }
    if (!*endpoint) {
        (void)snprintf(o->endpoint, sizeof o->endpoint, "https://s3.%s.amazonaws.com", o->region);
    }
    if (strcmp(c->s3_style, "path") != 0 && strcmp(c->s3_style, "virtual") != 0 && c->s3_style[0]) {
        return err_set(err, ERR_INVALID, "s3.style = \"%s\": must be path or virtual", c->s3_style);
    }
    bool aws_can = !*endpoint && !strchr(o->bucket, '.');
    bool virtual = c->s3_style[0] ? c->s3_style[0] == 'v' : aws_can;
    o->style = virtual ? OBJECT_S3_VIRTUAL : OBJECT_S3_PATH;
    o->part_bytes = c->s3_part_mib << 20;
    o->connect_timeout_ms = (int)c->s3_connect_timeout_ms;
    o->stall_timeout_s = (int)c->s3_stall_timeout_s;
    o->attempts_max = (int)c->s3_attempts_max;
    o->retry_base_ms = c->s3_retry_base_ms;
    o->retry_max_ms = c->s3_retry_max_ms;
    return 0;
}

int object_options_from(struct object_options *ret_options, const struct config *c, struct err *err)
{
    struct object_options o = { .driver = OBJECT_DIR };
    int rc = put_text(o.dir, sizeof o.dir, c->object_dir, "object.dir", err);
    if (rc < 0) {
        return rc;
    }
    o.renew_after_s = c->object_sweep_after_s / 2;
    if (strcmp(c->object_store, "s3") == 0) {
        o.driver = OBJECT_S3;
        rc = s3_options(&o.s3, c, err);
    } else if (strcmp(c->object_store, "dir") != 0) {
        rc = err_set(err, ERR_INVALID, "object.store = \"%s\": must be dir or s3", c->object_store);
    }
    if (rc == 0) {
        *ret_options = o;
    }
    return rc;
}
