#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "vmpool/manifest.h"

static struct manifest sample(void)
{
    struct engine_host host = { .name = "qemu-tcg",
                                .vmm_version = "7.2",
                                .machine = "microvm",
                                .cpu_model = "qemu64",
                                .tsc_khz = 2100000 };
    struct template_info t = {
        .name = "python", .digest = "abc", .kernel_digest = "k1", .memory_mib = 256, .vcpus = 1
    };
    struct manifest m;
    manifest_wanted(&m, &host, &t);
    return m;
}

Test(manifest, survives_print_and_parse)
{
    struct manifest m = sample(), back;
    struct err err = { 0 };
    m.state_bytes = 60000;
    m.ram_bytes_used = 100u << 20;
    memcpy(m.state_sha256, "00", 3);
    memcpy(m.ram_sha256, "11", 3);
    char *text = manifest_print(&m);
    cr_assert_eq(manifest_parse(text, strlen(text), &back, &err), 0, "%s", err.text);
    cr_assert_eq(manifest_compare(&back, &m, &err), 0, "%s", err.text);
    cr_assert_eq(back.ram_bytes_used, m.ram_bytes_used);
    cr_assert_str_eq(back.ram_sha256, "11");
    free(text);
}

Test(manifest, every_string_that_differs_is_named)
{
    const struct manifest want = sample();
#define MANIFEST_FIELD(field, bytes)                                                               \
    {                                                                                              \
        struct manifest have = want;                                                               \
        struct err err = { 0 };                                                                    \
        have.field[0] ^= 1;                                                                        \
        have.field[1] = 0;                                                                         \
        cr_assert_eq(manifest_compare(&have, &want, &err), -ERR_MISMATCH, #field);                 \
        cr_assert(strstr(err.text, #field), "%s: %s", #field, err.text);                           \
    }
    MANIFEST_FIELDS
#undef MANIFEST_FIELD
}

Test(manifest, numbers)
{
    const struct manifest want = sample();
    struct manifest have = want;
    struct err err = { 0 };
    have.memory_mib++;
    cr_assert_eq(manifest_compare(&have, &want, &err), -ERR_MISMATCH);
    cr_assert(strstr(err.text, "memory_mib is 257"), "%s", err.text);
    have = want;
    have.vcpus++;
    cr_assert_eq(manifest_compare(&have, &want, &err), -ERR_MISMATCH);
    have = want;
    have.tsc_khz += 2100; /* a thousandth: measuring error */
    cr_assert_eq(manifest_compare(&have, &want, &err), 0);
    have.tsc_khz += 1;
    cr_assert_eq(manifest_compare(&have, &want, &err), -ERR_MISMATCH);
}

Test(manifest, bad_text_is_refused)
{
    struct manifest m;
    struct err err = { 0 };
    static const char *const bad[] = { "", "[]", "{}", "{\"version\":\"1\"}", "{\"version\":1}" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_assert_eq(manifest_parse(bad[i], strlen(bad[i]), &m, &err), -ERR_INVALID, "%s", bad[i]);
    }
    cr_assert_eq(manifest_parse("{\"version\":99}", 14, &m, &err), -ERR_MISMATCH);
}

Test(template, spec)
{
    char name[TEMPLATE_NAME_MAX], digest[TEMPLATE_DIGEST_MAX];
    struct err err;
    cr_assert_eq(template_spec_parse("python", name, digest, &err), 0);
    cr_assert_str_eq(name, "python");
    cr_assert_str_eq(digest, "");
    cr_assert_eq(template_spec_parse("c-12.1@00ff", name, digest, &err), 0);
    cr_assert_str_eq(name, "c-12.1");
    cr_assert_str_eq(digest, "00ff");
    static const char *const bad[] = {
        "",
        "@",
        "a@",
        "@a",
        "../x",
        "a/b",
        ".",
        "..",
        "a@..",
        "a@b@c",
        "-x",
        "a b",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_assert_eq(template_spec_parse(bad[i], name, digest, &err), -ERR_INVALID, "%s", bad[i]);
    }
}
