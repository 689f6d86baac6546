#include <criterion/criterion.h>
#include <string.h>

#include "cli/brood_json.h"
#include "common/base/buf.h"
#include "common/model/glob.h"
#include "common/model/job.h"
#include "common/report/shard.h"

static void refused(const char *text, const char *why)
{
    struct brood_json b;
    struct err err = { 0 };
    cr_expect_eq(brood_json_parse(text, strlen(text), &b, &err), -ERR_INVALID, "%s", text);
    cr_expect(strstr(err.text, why), "\"%s\" instead of \"%s\"", err.text, why);
    cr_expect(strncmp(err.text, "brood.json: ", 12) == 0, "%s", err.text);
}

static void parse(const char *text, struct brood_json *b)
{
    struct err err = { 0 };
    cr_assert_eq(brood_json_parse(text, strlen(text), b, &err), 0, "%s", err.text);
}

Test(brood_json, everything)
{
    cleanup_brood_json struct brood_json b;
    parse(
        "{\"template\":\"python\",\"setup\":[\"make\",\"make "
        "data\"],\"test\":[\"pytest\",\"-q\",\"\"],\"shards\":4,"
        "\"artifacts\":[\"out/\"],\"reports\":[\"report.xml\",\"**/"
        "TEST-*.xml\"],\"key_files\":[\"*.lock\"],"
        "\"include\":[\"build/\"],\"env\":{\"A\":\"1\",\"_b\":\"\"},\"limits\":{\"cpu_ms\":60000},"
        "\"setup_limits\":{\"memory_mib\":512}}",
        &b);
    cr_assert_str_eq(b.template_name, "python");
    cr_assert_eq(b.setup.n, 2);
    cr_assert_str_eq(b.setup.items[1], "make data");
    cr_assert_null(b.setup.items[2]);
    cr_assert_eq(b.test.n, 3);
    cr_assert_not(b.test_is_shell);
    cr_assert_eq(b.shards, 4);
    cr_assert_str_eq(b.reports.items[1], "**/TEST-*.xml");
    cr_assert_str_eq(b.key_files.items[0], "*.lock");
    cr_assert_str_eq(b.include.items[0], "build/");
    cr_assert_eq(json_object_size(b.env), 2);
    cr_assert_eq(json_integer_value(json_object_get(b.limits, "cpu_ms")), 60000);
    cr_assert_eq(json_integer_value(json_object_get(b.setup_limits, "memory_mib")), 512);
}

Test(brood_json, shell_lines_and_nothing)
{
    cleanup_brood_json struct brood_json b, none;
    parse("{\"setup\":\"make\",\"test\":\"make test\"}", &b);
    cr_assert_eq(b.setup.n, 1);
    cr_assert_str_eq(b.test.items[0], "make test");
    cr_assert(b.test_is_shell);
    cr_assert_eq(b.shards, 0);
    parse("{}", &none);
    cr_assert_null(none.template_name);
    cr_assert_eq(none.test.n, 0);
    cr_assert_null(none.env);
}

Test(brood_json, refusals_name_field_and_rule)
{
    static const char *const cases[][2] = {
        { "[]", "must be an object" },
        { "{", "not JSON: line 1" },
        { "{\"shards\":1,\"shards\":2}", "not JSON" },
        { "{\"shard\":1}", "shard: unknown field; known here: template, setup, test, shards" },
        { "{\"template\":\"\"}", "template: " },
        { "{\"template\":7}", "template: must be a string" },
        { "{\"shards\":0}", "shards: must be a whole number from 1 to 1024" },
        { "{\"shards\":1025}", "shards: must be a whole number from 1 to 1024" },
        { "{\"shards\":\"4\"}", "shards: must be a whole number" },
        { "{\"setup\":{}}", "setup: must be a list of strings" },
        { "{\"setup\":[\"a\",\"\"]}", "setup[1]: must not be empty" },
        { "{\"setup\":[\"a\",1]}", "setup[1]: must be a string" },
        { "{\"test\":[]}", "test: must name a program" },
        { "{\"test\":[\"\"]}", "test: must name a program" },
        { "{\"test\":null}", "test: must be a list of strings" },
        { "{\"artifacts\":\"out\"}", "artifacts: must be a list of strings" },
        { "{\"artifacts\":[\"ok\",\"../x\"]}", "artifacts[1]: " },
        { "{\"reports\":[\"/abs\"]}", "reports[0]: " },
        { "{\"key_files\":[\"a[\"]}", "key_files[0]: " },
        { "{\"env\":[]}", "env: must be an object of strings" },
        { "{\"env\":{\"1A\":\"\"}}", "env: \"1A\": names are" },
        { "{\"env\":{\"A=B\":\"\"}}", "env: \"A=B\": names are" },
        { "{\"env\":{\"A\":1}}", "env.A: must be a string" },
        { "{\"env\":{\"A\":\"\\u0000\"}}", "env.A: " },
        { "{\"limits\":{\"cpu\":1}}", "limits.cpu: unknown field; known here: cpu_ms" },
        { "{\"limits\":{\"cpu_ms\":9}}",
          "limits.cpu_ms: must be a whole number from 10 to 3600000" },
        { "{\"setup_limits\":{\"wall_ms\":1.5}}", "setup_limits.wall_ms: must be a whole number" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        refused(cases[i][0], cases[i][1]);
    }
}

Test(brood_json, maxima)
{
    static char text[BROOD_JSON_BYTES_MAX + 2];
    memset(text, ' ', sizeof text - 1);
    memcpy(text, "{}", 2);
    struct brood_json b;
    struct err err;
    cr_assert_eq(brood_json_parse(text, BROOD_JSON_BYTES_MAX, &b, &err), 0, "%s", err.text);
    cr_assert_eq(brood_json_parse(text, BROOD_JSON_BYTES_MAX + 1, &b, &err), -ERR_TOO_LARGE);
    refused("{\"setup\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\","
            "\"12\",\"13\",\"14\","
            "\"15\",\"16\",\"17\"]}",
            "setup: at most 16");
    cleanup_brood_json struct brood_json full;
    parse("{\"setup\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\","
          "\"13\",\"14\","
          "\"15\",\"16\"],\"shards\":1024}",
          &full);
    cr_assert_eq(full.setup.n, 16);
}

Test(brood_json, globs_at_the_maximum_and_one_above)
{
    char text[BROOD_JSON_BYTES_MAX], glob[GLOB_BYTES_MAX];
    memset(glob, 'g', sizeof glob);
    for (int extra = 0; extra <= 1; extra++) {
        size_t used = (size_t)snprintf(text, sizeof text, "{\"include\":[");
        for (int i = 0; i < (int)(GLOBS_BYTES_MAX / GLOB_BYTES_MAX);
             i++) { /* with their NULs just as many */
            int n = (int)GLOB_BYTES_MAX - 1 + (i == 0 ? extra : 0);
            used += (size_t)snprintf(text + used, sizeof text - used, "%s\"%.*s\"", i ? "," : "", n,
                                     glob);
        }
        (void)snprintf(text + used, sizeof text - used, "]}");
        if (extra) {
            refused(text, "include: at most 8192 bytes in all");
        } else {
            cleanup_brood_json struct brood_json b;
            parse(text, &b);
        }
    }
}

Test(brood_json, a_folder_without_one)
{
    struct brood_json b;
    struct err err;
    cr_assert_eq(brood_json_read("/nonexistent", &b, &err), 0);
    cr_assert_eq(b.test.n, 0);
}

/* The schema and the reader know the same fields and limits. */
Test(brood_json, schema)
{
    json_error_t why;
    json_t *schema = json_load_file(BROOD_SOURCE_DIR "/schemas/json/brood.schema.json", 0, &why);
    cr_assert_not_null(schema, "%s", why.text);
    const char *name;
    json_t *value, *properties = json_object_get(schema, "properties");
    json_object_foreach(properties, name, value)
    {
        char text[128];
        struct brood_json b;
        struct err err = { 0 };
        (void)snprintf(text, sizeof text, "{\"%s\":true}", name);
        cr_expect_eq(brood_json_parse(text, strlen(text), &b, &err), -ERR_INVALID);
        cr_expect_null(strstr(err.text, "unknown field"), "%s", err.text);
    }
    cr_assert_eq(json_object_size(properties), 12);
    json_t *limits =
        json_object_get(json_object_get(json_object_get(schema, "$defs"), "limits"), "properties");
    size_t n = 0;
#define JOB_LIMIT(field, json, def, setup_def, min, max, help)                                     \
    value = json_object_get(limits, json);                                                         \
    cr_expect_eq(json_integer_value(json_object_get(value, "minimum")), min, json);                \
    cr_expect_eq(json_integer_value(json_object_get(value, "maximum")), max, json);                \
    n++;
#include "common/model/limits.def"
    cr_assert_eq(json_object_size(limits), n);
    cr_assert_eq(
        json_integer_value(json_object_get(json_object_get(properties, "shards"), "maximum")),
        SHARDS_MAX);
    json_decref(schema);
}
