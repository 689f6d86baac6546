/* brood.json comes out of a project that nobody trusts: bounded lists, ended by NULL, globs that
 * can be used. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "cli/brood_json.h"
#include "common/model/glob.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void list(const struct string_list *l, int max)
{
    assert(l->n >= 0 && l->n <= max && (l->n == 0 || (l->items && !l->items[l->n])));
    for (int i = 0; i < l->n; i++) {
        assert(l->items[i]);
    }
}

static void globs(const struct string_list *l)
{
    struct err err;
    list(l, (int)GLOBS_MAX);
    for (int i = 0; i < l->n; i++) {
        assert(glob_check(l->items[i], strlen(l->items[i]), &err) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = { 0 };
    struct brood_json b;
    if (brood_json_parse((const char *)data, size, &b, &err) < 0) {
        assert(err.text[0]);
        return 0;
    }
    list(&b.setup, BROOD_JSON_STEPS_MAX);
    list(&b.test, BROOD_JSON_ARGS_MAX);
    globs(&b.artifacts);
    globs(&b.reports);
    assert(!b.env || json_is_object(b.env));
    assert(!b.limits || json_is_object(b.limits));
    brood_json_done(&b);
    return 0;
}
