/* The manifest of artifacts: there and back, and what a stranger could write into one. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/path.h"
#include "common/model/manifest.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct err err;

static struct artifact *add(struct manifest *m, const char *path, size_t n, const char *target)
{
    struct artifact *a;
    int rc = manifest_add(m, path, n, target, target ? strlen(target) : 0, &a, &err);
    cr_assert_eq(rc, 0, "%s: %s", path, err.text);
    return a;
}

static int try_add(struct manifest *m, const char *path)
{
    struct artifact *a;
    return manifest_add(m, path, strlen(path), NULL, 0, &a, &err);
}

Test(manifest, there_and_back)
{
    cleanup_manifest struct manifest m = { 0 }, back = { 0 };
    struct artifact *a = add(&m, "a/l\xe4tin", 7, NULL);
    a->size = 3;
    a->mode = 0640;
    a->stored = true;
    a->change = ARTIFACT_SHRANK;
    memcpy(a->sha256, HEX, sizeof a->sha256);
    a = add(&m, "big", 3, NULL);
    a->size = 1ull << 40;
    a->reason = ARTIFACT_TOO_LARGE;
    a = add(&m, "link", 4, "/etc/passwd");
    a->type = ARTIFACT_LINK;
    a->stored = true;
    a = add(&m, "pipe", 4, NULL);
    a->type = ARTIFACT_OTHER;
    a->reason = ARTIFACT_KIND;
    m.unmatched_len = 9;
    m.unmatched = malloc(9);
    memcpy(m.unmatched, "x\0**/\xc3\xa4.b", 9);
    m.unmatched[8] = '\0';
    m.truncated = true;
    m.left_out = 4;
    m.bytes_stored = 3;
    char *json = manifest_json(&m);
    cr_expect(strstr(json, "\"path_base64\":\"YS9s5HRpbg==\""), "%s", json);
    cr_expect(strstr(json, "\"reason\":\"too_large\""), "%s", json);
    cr_assert_eq(manifest_parse(json, strlen(json), &back, &err), 0, "%s", err.text);
    char *again = manifest_json(&back);
    cr_expect_str_eq(json, again);
    cr_expect_eq(back.n, 4);
    cr_expect_eq(back.files[0].path_len, 7);
    cr_expect_eq(back.files[0].mode, 0640);
    cr_expect_eq(back.files[0].change, ARTIFACT_SHRANK);
    cr_expect_eq(back.files[1].size, 1ull << 40);
    cr_expect_str_eq(back.files[2].target, "/etc/passwd");
    cr_expect_eq(back.left_out, 4);
    free(json);
    free(again);
}

Test(manifest, order_and_places)
{
    cleanup_manifest struct manifest m = { 0 };
    (void)add(&m, "a", 1, NULL);
    cr_expect_eq(try_add(&m, "a"), -ERR_INVALID);
    cr_expect_eq(try_add(&m, "a/b"), -ERR_INVALID); /* a is a file */
    cr_expect(strstr(err.text, "below"), "%s", err.text);
    cr_expect_eq(try_add(&m, "a.b"), 0);
    cr_expect_eq(try_add(&m, "a-b"), -ERR_INVALID);
    cr_expect_eq(try_add(&m, "b/c"), 0);
    cr_expect_eq(try_add(&m, "b"), -ERR_INVALID); /* b is a folder */
    cr_expect_eq(try_add(&m, "b.x"), 0);
    static const char *const bad[] = { "", "/c", "c/", "c//d", "c/../d", "..", ".", "c/.", "./c" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_expect_eq(try_add(&m, bad[i]), -ERR_INVALID, "%s", bad[i]);
    }
    struct artifact *a;
    cr_expect_eq(manifest_add(&m, "c\0d", 3, NULL, 0, &a, &err), -ERR_INVALID);
    cr_expect_eq(manifest_add(&m, "c", 1, "d\0e", 3, &a, &err), -ERR_INVALID);
    char name[MANIFEST_PATH_BYTES_MAX + 2];
    memset(name, 'd', sizeof name);
    for (size_t i = 200; i < sizeof name; i += 200) {
        name[i] = '/';
    }
    cr_expect_eq(manifest_add(&m, name, MANIFEST_PATH_BYTES_MAX + 1, NULL, 0, &a, &err),
                 -ERR_INVALID);
    cr_expect_eq(manifest_add(&m, name, MANIFEST_PATH_BYTES_MAX, NULL, 0, &a, &err), 0, "%s",
                 err.text);
    cr_expect_eq(m.n, 5u);
}

Test(manifest, path_rules)
{
    cr_expect_lt(path_order("a", 1, "a/b", 3), 0);
    cr_expect_lt(path_order("a/b", 3, "a!b", 3), 0);
    cr_expect_gt(path_order("b", 1, "a/b", 3), 0);
    cr_expect_gt(path_order("\xe4", 1, "z", 1), 0);
    cr_expect_eq(path_order("a/b", 3, "a/b", 3), 0);
    char part[PATH_NAME_BYTES_MAX + 1];
    memset(part, 'x', sizeof part);
    cr_expect(path_clean(part, PATH_NAME_BYTES_MAX));
    cr_expect(!path_clean(part, PATH_NAME_BYTES_MAX + 1));
    cr_expect(path_clean("...", 3) && path_clean("..a/.b", 6));
}

Test(manifest, strangers)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"version\":2}",
#define WITH(file)                                                                                 \
    "{\"version\":1,\"truncated\":false,\"left_out\":0,\"bytes_stored\":0,\"unmatched\":[],"       \
    "\"files\":[" file "]}"
        WITH("1"),
        WITH("{}"),
        WITH("{\"path\":\"../x\",\"type\":\"file\",\"size\":1,\"mode\":\"0644\",\"stored\":false}"),
        WITH("{\"path\":\"/x\",\"type\":\"file\",\"size\":1,\"mode\":\"0644\",\"stored\":false}"),
        WITH("{\"path\":\"x\",\"type\":\"door\",\"stored\":false}"),
        WITH("{\"path\":\"x\",\"type\":\"file\",\"size\":-1,\"mode\":\"0644\",\"stored\":false}"),
        WITH("{\"path\":\"x\",\"type\":\"file\",\"size\":1,\"mode\":\"4755\",\"stored\":false}"),
        WITH("{\"path\":\"x\",\"type\":\"file\",\"size\":1,\"mode\":\"0644\",\"stored\":true}"),
        WITH("{\"path\":\"x\",\"type\":\"file\",\"size\":1,\"mode\":\"0644\",\"stored\":true,"
             "\"sha256\":\"ABC\"}"),
        WITH("{\"path\":\"x\",\"type\":\"link\",\"stored\":true}"),
        WITH("{\"path\":\"x\",\"type\":\"other\",\"stored\":true}"),
        WITH("{\"path_base64\":\"!\",\"type\":\"other\",\"stored\":false}"),
        WITH("{\"path_base64\":\"AGE=\",\"type\":\"other\",\"stored\":false}"),
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct manifest m = { 0 };
        cr_expect_lt(manifest_parse(bad[i], strlen(bad[i]), &m, &err), 0, "%s", bad[i]);
        cr_expect_eq(m.n, 0);
    }
    cleanup_manifest struct manifest m = { 0 };
    const char *good = WITH("{\"path\":\"x\",\"type\":\"other\",\"stored\":false,\"new\":1}");
    cr_expect_eq(manifest_parse(good, strlen(good), &m, &err), 0, "%s", err.text);
}
