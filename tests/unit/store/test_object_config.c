#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/config.h"
#include "common/store/object.h"

static struct config c;
static struct object_options o;
static struct err err;

static const char *const variables[] = { "AWS_ACCESS_KEY_ID",   "AWS_SECRET_ACCESS_KEY",
                                         "AWS_SESSION_TOKEN",   "AWS_REGION",
                                         "AWS_DEFAULT_REGION",  "AWS_ENDPOINT_URL",
                                         "AWS_ENDPOINT_URL_S3", "BROOD_CONFIG" };

static void setup(void)
{
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        (void)unsetenv(variables[i]);
    }
    cr_assert_eq(config_load(&c, "/nonexistent/home", NULL, &err), 0, "%s", err.text);
}

static void set(const char *key, const char *value)
{
    cr_assert_eq(config_set(&c, key, value, "test", &err), 0, "%s", err.text);
}

static void s3(void)
{
    set("object.store", "s3");
    set("s3.bucket", "my-bucket");
    set("s3.access_key", "key");
    set("s3.secret_key", "secret");
}

static void refused(const char *text)
{
    cr_assert_eq(object_options_from(&o, &c, &err), -ERR_INVALID);
    cr_assert(strstr(err.text, text), "%s", err.text);
}

TestSuite(object_config, .init = setup);

Test(object_config, directory_is_the_default)
{
    cr_assert_eq(object_options_from(&o, &c, &err), 0, "%s", err.text);
    cr_assert_eq(o.driver, OBJECT_DIR);
    cr_assert_str_eq(o.dir, "/nonexistent/home/objects");
}

Test(object_config, aws_by_rows)
{
    s3();
    set("s3.region", "eu-central-1");
    cr_assert_eq(object_options_from(&o, &c, &err), 0, "%s", err.text);
    cr_assert_str_eq(o.s3.endpoint, "https://s3.eu-central-1.amazonaws.com");
    cr_assert_eq(o.s3.style, OBJECT_S3_VIRTUAL);
    cr_assert_eq(o.s3.part_bytes, 16 << 20);
    set("s3.bucket", "my.bucket");
    cr_assert_eq(object_options_from(&o, &c, &err), 0);
    cr_assert_eq(o.s3.style, OBJECT_S3_PATH, "a name with dots has no certificate as a host");
}

Test(object_config, standard_variables)
{
    set("object.store", "s3");
    set("s3.bucket", "bkt");
    (void)setenv("AWS_ACCESS_KEY_ID", "AKIA", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "shh", 1);
    (void)setenv("AWS_SESSION_TOKEN", "token", 1);
    (void)setenv("AWS_DEFAULT_REGION", "us-west-1", 1);
    (void)setenv("AWS_ENDPOINT_URL", "http://localhost:1", 1);
    cr_assert_eq(object_options_from(&o, &c, &err), 0, "%s", err.text);
    cr_assert_str_eq(o.s3.access_key, "AKIA");
    cr_assert_str_eq(o.s3.secret_key, "shh");
    cr_assert_str_eq(o.s3.session_token, "token");
    cr_assert_str_eq(o.s3.region, "us-west-1");
    cr_assert_str_eq(o.s3.endpoint, "http://localhost:1");
    cr_assert_eq(o.s3.style, OBJECT_S3_PATH);
    (void)setenv("AWS_REGION", "us-west-2", 1);
    (void)setenv("AWS_ENDPOINT_URL_S3", "http://localhost:2", 1);
    cr_assert_eq(object_options_from(&o, &c, &err), 0);
    cr_assert_str_eq(o.s3.region, "us-west-2");
    cr_assert_str_eq(o.s3.endpoint, "http://localhost:2");
    /* rows win, and another key's token is not sent with ours */
    s3();
    set("s3.endpoint", "http://localhost:3");
    cr_assert_eq(object_options_from(&o, &c, &err), 0);
    cr_assert_str_eq(o.s3.access_key, "key");
    cr_assert_str_eq(o.s3.session_token, "");
    cr_assert_str_eq(o.s3.endpoint, "http://localhost:3");
}

Test(object_config, what_is_missing_or_wrong_is_named)
{
    set("object.store", "nfs");
    refused("object.store = \"nfs\": must be dir or s3");
    set("object.store", "s3");
    refused("s3.access_key");
    set("s3.access_key", "key");
    refused("no secret key");
    s3();
    set("s3.style", "vhost");
    refused("s3.style = \"vhost\"");
    set("s3.style", "path");
    set("s3.region", "us east");
    refused("s3.region");
    set("s3.region", "");
    set("s3.access_key", "key\r\nHost: other");
    refused("s3.access_key: one line");
}

static void open_refused(const char *text)
{
    struct object_store *s;
    cr_assert_eq(object_options_from(&o, &c, &err), 0, "%s", err.text);
    cr_assert_eq(object_store_open(&s, &o, &err), -ERR_INVALID);
    cr_assert(strstr(err.text, text), "%s", err.text);
}

Test(object_config, what_open_refuses)
{
    s3();
    set("s3.bucket", "");
    open_refused("s3.bucket = \"\"");
    set("s3.bucket", "My_Bucket");
    open_refused("s3.bucket = \"My_Bucket\"");
    set("s3.bucket", "a.b");
    set("s3.style", "virtual");
    set("s3.endpoint", "https://localhost");
    open_refused("set s3.style = path");
    set("s3.bucket", "abc");
    const char *prefixes[] = { "/a/", "a", "a b/", "a%2f/" };
    for (int i = 0; i < 4; i++) {
        set("s3.prefix", prefixes[i]);
        open_refused("s3.prefix = \"");
    }
    set("s3.prefix", "");
    const char *endpoints[] = { "ftp://h", "http://", "http://u:p@h", "http://h/path", "h:80" };
    for (int i = 0; i < 5; i++) {
        set("s3.endpoint", endpoints[i]);
        open_refused("s3.endpoint = \"");
    }
}

Test(object_config, the_secret_is_not_printed)
{
    s3();
    set("s3.secret_key", "wJalrXUtnFEMI");
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    config_print(&c, f);
    (void)fclose(f);
    cr_assert_not(strstr(text, "wJalrXUtnFEMI"));
    cr_assert(strstr(text, "# secret_key: set, not shown\n"));
    cr_assert(strstr(text, "access_key = key\n"));
    free(text);
}

Test(object_id, text)
{
    const char *good = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    struct object_id id;
    char path[OBJECT_PATH + 1], bad[80];
    cr_assert_eq(object_id_parse(&id, good, &err), 0);
    object_id_path(&id, path);
    cr_assert_str_eq(path,
                     "e3/b0/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    cr_assert_eq(strlen(path), OBJECT_PATH);
    for (int i = 0; i < 4; i++) {
        (void)snprintf(bad, sizeof bad, "%s%s", good, i == 0 ? "0" : "");
        if (i == 1) {
            bad[63] = 0;
        } else if (i == 2) {
            bad[5] = 'A';
        } else if (i == 3) {
            bad[2] = '/';
        }
        cr_assert_eq(object_id_parse(&id, bad, &err), -ERR_INVALID, "%s", bad);
    }
    cr_assert_eq(object_id_parse(&id, "", &err), -ERR_INVALID);
}
