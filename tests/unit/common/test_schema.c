/* The JSON Schemas say what the code says: limits, words, names of fields. Both are read and
 * compared, both ways. */
#include <jansson.h>

#include "common/model/usage.h"
#include "tests/unit/common/job_case.h"

static json_t *load(const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, BROOD_SOURCE_DIR "/schemas/json/%s.schema.json", name);
    json_error_t why;
    json_t *v = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    cr_assert_not_null(v, "%s: line %d: %s", path, why.line, why.text);
    cr_assert_str_eq(json_string_value(json_object_get(v, "$schema")),
                     "https://json-schema.org/draft/2020-12/schema");
    return v;
}

static const json_t *at(const json_t *v, const char *a, const char *b, const char *c)
{
    const char *keys[] = { a, b, c };
    for (int i = 0; i < 3 && keys[i]; i++) {
        v = json_object_get(v, keys[i]);
        cr_assert_not_null(v, "%s is missing in the schema", keys[i]);
    }
    return v;
}

static long long number(const json_t *obj, const char *name)
{
    const json_t *v = json_object_get(obj, name);
    cr_assert(json_is_integer(v), "%s", name);
    return json_integer_value(v);
}

Test(schema, limits)
{
    json_t *schema = load("job");
    const char *defs[] = { "limits", "setup_limits" };
    for (int col = 0; col < 2; col++) {
        const json_t *def = at(schema, "$defs", defs[col], NULL),
                     *props = at(def, "properties", NULL, NULL);
        cr_assert(json_is_false(json_object_get(def, "additionalProperties")));
        size_t n = 0;
#define JOB_LIMIT(field, json, def_, setup_def, min, max, help)                                    \
    {                                                                                              \
        const json_t *p = at(props, json, NULL, NULL);                                             \
        long long want = col ? setup_def : def_;                                                   \
        cr_assert_eq(number(p, "minimum"), min, json);                                             \
        cr_assert_eq(number(p, "maximum"), max, json);                                             \
        cr_assert_str_eq(json_string_value(json_object_get(p, "description")), help);              \
        if (want) {                                                                                \
            cr_assert_eq(number(p, "default"), want, json);                                        \
        } else {                                                                                   \
            cr_assert_null(json_object_get(p, "default"), json);                                   \
        }                                                                                          \
        n++;                                                                                       \
    }
#include "common/model/limits.def"
#undef JOB_LIMIT
        cr_assert_eq(n, json_object_size(props), "the schema has a limit that limits.def has not");
    }
    json_decref(schema);
}

/* Every name of the schema is known to the parser, and the parser lists no other. */
static void same_fields(const json_t *props, const char *job_with_bad_field)
{
    struct job_spec *spec = NULL;
    struct err err;
    cr_assert_eq(job_parse(job_with_bad_field, strlen(job_with_bad_field), &spec, &err),
                 -ERR_INVALID);
    char *list = strstr(err.text, "known here: ");
    cr_assert_not_null(list, "%s", err.text);
    list += strlen("known here: ");
    size_t n = 0;
    for (char *save = NULL, *word = strtok_r(list, ", ", &save); word;
         word = strtok_r(NULL, ", ", &save)) {
        cr_assert_not_null(json_object_get(props, word), "%s is not in the schema", word);
        n++;
    }
    cr_assert_eq(n, json_object_size(props));
}

Test(schema, fields)
{
    json_t *schema = load("job");
    same_fields(at(schema, "properties", NULL, NULL), "{\"?\":1}");
    same_fields(at(at(schema, "$defs", "file", NULL), "properties", NULL, NULL),
                HEAD ",\"files\":[{\"?\":1}]}");
    same_fields(at(at(schema, "$defs", "expect", NULL), "properties", NULL, NULL),
                HEAD ",\"expect\":{\"?\":1}}");
    same_fields(at(at(schema, "$defs", "checker", NULL), "properties", NULL, NULL),
                HEAD ",\"expect\":{\"checker\":{\"?\":1}}}");
    same_fields(at(at(schema, "$defs", "limits", NULL), "properties", NULL, NULL),
                HEAD ",\"limits\":{\"?\":1}}");
    same_fields(at(at(schema, "$defs", "test", NULL), "properties", NULL, NULL),
                HEAD ",\"tests\":[{\"?\":1}]}");
    same_fields(at(at(schema, "$defs", "branch", NULL), "properties", NULL, NULL),
                HEAD ",\"branches\":[{\"?\":1}]}");
    same_fields(at(at(schema, "$defs", "step", NULL), "properties", NULL, NULL),
                HEAD ",\"setup\":[{\"?\":1}]}");
    same_fields(at(at(schema, "$defs", "keep", NULL), "properties", NULL, NULL),
                HEAD ",\"keep\":{\"?\":1}}");
    same_fields(at(at(schema, "$defs", "archive", NULL), "properties", NULL, NULL),
                HEAD ",\"archive\":{\"?\":1}}");
    json_decref(schema);
}

Test(schema, maxima)
{
    json_t *schema = load("job");
    const json_t *props = at(schema, "properties", NULL, NULL);
    cr_assert_eq(number(at(props, "template", NULL, NULL), "maxLength"), JOB_TEMPLATE_MAX);
    cr_assert_eq(number(at(props, "name", NULL, NULL), "maxLength"), JOB_NAME_MAX);
    cr_assert_eq(number(at(props, "idempotency_key", NULL, NULL), "maxLength"), JOB_KEY_MAX);
    const json_t *defs = at(schema, "$defs", NULL, NULL);
    cr_assert_eq(number(at(defs, "files", NULL, NULL), "maxItems"), JOB_FILES_MAX);
    cr_assert_eq(number(at(defs, "env", NULL, NULL), "maxProperties"), JOB_ENV_MAX);
    cr_assert_eq(number(at(defs, "tests", NULL, NULL), "maxItems"), JOB_TREE_CHILDREN_MAX);
    cr_assert_eq(number(at(defs, "branches", NULL, NULL), "maxItems"), JOB_TREE_CHILDREN_MAX);
    cr_assert_eq(number(at(defs, "artifacts", NULL, NULL), "maxItems"), JOB_ARTIFACT_GLOBS_MAX);
    cr_assert_eq(number(at(defs, "artifacts", "items", NULL), "maxLength"), JOB_ARTIFACT_GLOB_MAX);
    cr_assert_eq(number(at(defs, "weight", NULL, NULL), "maximum"), JOB_WEIGHT_MAX);
    cr_assert_eq(number(at(props, "parallel", NULL, NULL), "maximum"), JOB_PARALLEL_MAX);
    const json_t *keep = at(defs, "keep", "properties", NULL);
    cr_assert_eq(number(at(keep, "name", NULL, NULL), "maxLength"), JOB_SNAPSHOT_NAME_MAX);
    cr_assert_eq(number(at(keep, "ttl_s", NULL, NULL), "maximum"), JOB_KEEP_TTL_S_MAX);
    cr_assert_eq(number(at(keep, "ttl_s", NULL, NULL), "minimum"), JOB_KEEP_TTL_S_MIN);
    cr_assert_eq(number(at(keep, "ttl_s", NULL, NULL), "default"), JOB_KEEP_TTL_S_DEFAULT);
    const json_t *steps = json_array_get(at(defs, "setup", "anyOf", NULL), 2);
    cr_assert_eq(number(steps, "maxItems"), JOB_SETUP_STEPS_MAX);
    cr_assert_eq(number(at(props, "labels", NULL, NULL), "maxProperties"), JOB_LABELS_MAX);
    cr_assert_eq(number(at(props, "labels", "propertyNames", NULL), "maxLength"),
                 JOB_LABEL_KEY_MAX);
    cr_assert_eq(number(at(props, "labels", "additionalProperties", NULL), "maxLength"),
                 JOB_LABEL_VALUE_MAX);
    cr_assert_eq(
        number(at(at(schema, "$defs", "file", NULL), "properties", "path", NULL), "maxLength"),
        JOB_PATH_MAX);
    json_decref(schema);
}

static bool listed(const json_t *list, const char *word)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (strcmp(json_string_value(json_array_get(list, i)), word) == 0) {
            return true;
        }
    }
    return false;
}

Test(schema, words)
{
    json_t *schema = load("result"), *usage = load("usage"), *job = load("job");
    const json_t *verdicts = at(schema, "$defs", "verdict", "enum"),
                 *states = at(schema, "$defs", "state", "enum");
    cr_assert_eq(json_array_size(verdicts), VERDICT_COUNT);
    for (int v = 0; v < VERDICT_COUNT; v++) {
        cr_assert(listed(verdicts, verdict_word((enum verdict)v)));
    }
    cr_assert_eq(json_array_size(states), STATE_COUNT);
    for (int s = 0; s < STATE_COUNT; s++) {
        cr_assert(listed(states, job_state_word((enum job_state)s)));
    }
    const json_t *compare = at(at(job, "$defs", "expect", "properties"), "compare", "enum", NULL);
    for (int m = COMPARE_EXACT; m < COMPARE_COUNT; m++) {
        cr_assert(listed(compare, compare_word((enum compare_mode)m)));
    }
    const json_t *meters = at(usage, "properties", "meter", "enum");
    cr_assert_eq(json_array_size(meters), METER_ALL_COUNT);
    for (int m = 0; m < METER_ALL_COUNT; m++) {
        cr_assert(listed(meters, meter_word((enum meter)m)));
    }
    json_decref(schema);
    json_decref(usage);
    json_decref(job);
}

/* The tables of the documentation name every limit with its numbers, every verdict and every state.
 */
Test(schema, documentation)
{
    cleanup_buf struct buf jobs = { 0 }, verdicts = { 0 };
    struct err err;
    buf_init(&jobs, 1 << 20);
    buf_init(&verdicts, 1 << 20);
    cr_assert_eq(buf_read_file(&jobs, BROOD_SOURCE_DIR "/docs/jobs.md", &err), 0, "%s", err.text);
    cr_assert_eq(buf_read_file(&verdicts, BROOD_SOURCE_DIR "/docs/verdicts.md", &err), 0, "%s",
                 err.text);
    char row[256], numbers[128];
#define JOB_LIMIT(field, json, def, setup_def, min, max, help)                                     \
    (void)snprintf(numbers, sizeof numbers, "%d | %d | %d | %d |", def, setup_def, min, max);      \
    (void)snprintf(row, sizeof row, "| `%s` | %s", json, def ? numbers : "2 \u00d7 `cpu_ms`");     \
    cr_assert(strstr(jobs.data, row), "docs/jobs.md lacks: %s", row);
#include "common/model/limits.def"
#undef JOB_LIMIT
    cleanup_buf struct buf forks = { 0 };
    buf_init(&forks, 1 << 20);
    cr_assert_eq(buf_read_file(&forks, BROOD_SOURCE_DIR "/docs/forks.md", &err), 0, "%s", err.text);
#define JOB_MAX(name, value, help)                                                                 \
    (void)snprintf(row, sizeof row, "\n| `%s` | %d | %s |", #name, value, help);                   \
    cr_assert(strstr(forks.data, row), "docs/forks.md lacks: %s", row);
#include "common/model/limits.def"
    for (int v = 1; v < VERDICT_COUNT; v++) {
        (void)snprintf(row, sizeof row, "\n| `%s` | ", verdict_word((enum verdict)v));
        cr_assert(strstr(verdicts.data, row), "docs/verdicts.md lacks: %s", row);
    }
    for (int s = 0; s < STATE_COUNT; s++) {
        (void)snprintf(row, sizeof row, "\n| `%s` | %s |", job_state_word((enum job_state)s),
                       job_state_terminal((enum job_state)s) ? "yes" : "");
        row[strlen(row) - 2] = 0; /* an empty cell is "| |" */
        cr_assert(strstr(verdicts.data, row), "docs/verdicts.md lacks: %s", row);
    }
}
