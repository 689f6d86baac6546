/* Every file of tests/e2e/cases: all their jobs go in as one batch, then each file is a test of its
 * own.
 *
 * The batch runs once, before the first test, in Criterion's own process; the tests, which are
 * processes of their own, read its results from a file named in the environment. Without more it is
 * the quick set; E2E_SET=full runs the files that say "set": "full". E2E_CASE=B001,own_disk runs
 * only the files whose name holds one of these, of either set. */
#include <criterion/criterion.h>
#include <criterion/hooks.h>
#include <criterion/parameterized.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/cleanup.h"
#include "tests/e2e/check.h"
#include "tests/e2e/cli.h"

#define CASES_DIR E2E_SOURCE_DIR "/tests/e2e/cases"
#define CASES_MAX 512
#define RESULTS_ENV "E2E_CASES_RESULTS"

struct case_name {
    char file[128];
};

/* E2E_CASE: parts of names, separated by commas. */
static bool is_chosen(const char *name)
{
    const char *only = getenv("E2E_CASE");
    while (only) {
        char part[128];
        size_t n = strcspn(only, ",");
        (void)snprintf(part, sizeof part, "%.*s", (int)n, only);
        if (strstr(name, part)) {
            return true;
        }
        only = only[n] ? only + n + 1 : NULL;
    }
    return !getenv("E2E_CASE");
}

static int wanted(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 5 && n < sizeof(struct case_name) && strcmp(e->d_name + n - 5, ".json") == 0 &&
           is_chosen(e->d_name);
}

static json_t *load(const char *file)
{
    char path[sizeof CASES_DIR + 132];
    (void)snprintf(path, sizeof path, "%s/%s", CASES_DIR, file);
    return case_load(path);
}

static bool in_set(const char *file)
{
    const char *set = getenv("E2E_SET");
    json_t *case_ = load(file);
    const char *own = json_string_value(json_object_get(case_, "set"));
    bool yes = getenv("E2E_CASE") || strcmp(own ? own : "quick", set ? set : "quick") == 0;
    json_decref(case_);
    return yes;
}

/* Names in order; returns how many. */
static int list(struct case_name *ret_names, int max)
{
    struct dirent **entries = NULL;
    int n = scandir(CASES_DIR, &entries, wanted, alphasort), kept = 0;
    for (int i = 0; i < n; i++) {
        if (kept < max && in_set(entries[i]->d_name)) {
            (void)snprintf(ret_names[kept++].file, sizeof ret_names->file, "%.127s",
                           entries[i]->d_name);
        }
        free(entries[i]);
    }
    free(entries);
    return kept;
}

/* {"case_x.json": [result, ...]} */
static json_t *run_all(void)
{
    static struct case_name names[CASES_MAX];
    int n = list(names, CASES_MAX);
    json_t *batch = json_array(), *out = json_object();
    for (int i = 0; i < n; i++) {
        json_t *file = load(names[i].file), *jobs = case_jobs(file), *item;
        size_t k;
        json_array_foreach(jobs, k, item)
        {
            (void)json_array_append(batch, json_object_get(item, "job"));
        }
        /* For now the number of its jobs: replaced by that many results below. */
        (void)json_object_set_new(out, names[i].file,
                                  json_integer((json_int_t)json_array_size(jobs)));
        json_decref(jobs);
        json_decref(file);
    }
    const char *earlier = getenv("E2E_BATCH");
    json_t *results = earlier ? e2e_wait_results(earlier, E2E_BATCH_MS) : e2e_run_batch(batch);
    if (json_array_size(results) != json_array_size(batch)) {
        (void)fprintf(stderr, "e2e: %zu jobs, %zu results\n", json_array_size(batch),
                      json_array_size(results));
        abort();
    }
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        json_int_t count = json_integer_value(json_object_get(out, names[i].file));
        json_t *mine = json_array();
        for (json_int_t k = 0; k < count; k++) {
            (void)json_array_append(mine, json_array_get(results, at++));
        }
        (void)json_object_set_new(out, names[i].file, mine);
    }
    json_decref(results);
    json_decref(batch);
    return out;
}

ReportHook(PRE_ALL)(struct criterion_test_set *set)
{
    (void)set;
    e2e_start();
    json_t *results = run_all();
    cleanup_free char *text = json_dumps(results, JSON_COMPACT);
    cleanup_free char *path = e2e_temp_file(text, strlen(text));
    (void)setenv(RESULTS_ENV, path, 1);
    json_decref(results);
}

ReportHook(POST_ALL)(struct criterion_global_stats *stats)
{
    (void)stats;
    if (getenv(RESULTS_ENV)) {
        (void)unlink(getenv(RESULTS_ENV));
    }
    e2e_stop_if_started();
}

ParameterizedTestParameters(cases, file)
{
    static struct case_name names[CASES_MAX];
    return cr_make_param_array(struct case_name, names, (size_t)list(names, CASES_MAX));
}

ParameterizedTest(struct case_name *name, cases, file)
{
    const char *path = getenv(RESULTS_ENV);
    cr_assert_not_null(path, "the results of the batch are not handed over");
    json_t *all = json_load_file(path, JSON_ALLOW_NUL, NULL);
    const json_t *results = json_object_get(all, name->file);
    json_t *file = load(name->file), *jobs = case_jobs(file);
    cr_assert_eq(json_array_size(results), json_array_size(jobs));
    cleanup_buf struct buf text = { 0 };
    buf_init(&text, 1u << 20);
    int differences = 0;
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        const json_t *result = json_array_get(results, i);
        int n = case_check(json_object_get(json_array_get(jobs, i), "expect"), result, &text);
        if (n > 0) {
            struct err err;
            cleanup_free char *dump = json_dumps(result, JSON_COMPACT);
            cr_assert_eq(buf_addf(&text, &err, "  job %zu: %.1500s\n", i, dump), 0);
        }
        differences += n;
    }
    differences += case_check_relation(file, results, &text);
    cr_expect_eq(differences, 0, "%s: %s\n%s", name->file,
                 json_string_value(json_object_get(file, "title")), text.len ? text.data : "");
    json_decref(jobs);
    json_decref(file);
    json_decref(all);
}
