/* Templates known to the database: what validation and billing need to know of them. */
#include <stdio.h>
#include <string.h>

#include "common/store/jobs.h"
#include "common/store/pg_internal.h"

static const struct statement put_template = {
    "put_template",
    "INSERT INTO templates (name, digest, memory_mib, vcpus) VALUES ($1, $2, $3::int, $4::int)"
    " ON CONFLICT (name) DO UPDATE SET digest = excluded.digest, memory_mib = excluded.memory_mib,"
    " vcpus = excluded.vcpus, updated_at = now()"
};
static const struct statement get_template = {
    "get_template", "SELECT name, digest, memory_mib, vcpus FROM templates WHERE name = $1"
};
static const struct statement list_templates = {
    "list_templates",
    "SELECT name, digest, memory_mib, vcpus FROM templates ORDER BY name LIMIT $1::int"
};

static void read_row(const PGresult *res, int row, struct template_info *t)
{
    pg_copy(res, row, 0, t->name, sizeof t->name);
    pg_copy(res, row, 1, t->digest, sizeof t->digest);
    t->memory_mib = (int)pg_int(res, row, 2);
    t->vcpus = (int)pg_int(res, row, 3);
}

int store_template_put(struct pg *pg, const struct template_info *t, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, t->name);
    pg_add_text(&p, t->digest);
    pg_add_int(&p, t->memory_mib);
    pg_add_int(&p, t->vcpus);
    int rc = pg_ask(pg, &put_template, &p, NULL, err);
    return rc < 0 ? rc : 0;
}

int store_template_list(struct pg *pg, struct template_info *ret_rows, int max, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, max);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &list_templates, &p, &res, err);
    for (int i = 0; i < rc; i++) {
        read_row(res, i, &ret_rows[i]);
    }
    return rc;
}

#define TEMPLATES_NAMED_MAX 16 /* in the text of an error */

static int unknown_template(struct pg *pg, const char *name, struct err *err)
{
    struct template_info rows[TEMPLATES_NAMED_MAX];
    int n = store_template_list(pg, rows, TEMPLATES_NAMED_MAX, err);
    if (n < 0) {
        return n;
    }
    char names[300] = "";
    size_t used = 0;
    for (int i = 0; i < n && used < sizeof names; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                 rows[i].name);
    }
    return err_set(err, ERR_NOT_FOUND, "template: there is no \"%.96s\"; known: %s", name,
                   n ? names : "none (run `brood template build NAME`)");
}

int store_template_get(struct pg *pg, const char *name, struct template_info *ret_t,
                       struct err *err)
{
    char base[JOB_TEMPLATE_MAX + 1];
    const char *at = strchr(name, '@');
    size_t n = at ? (size_t)(at - name) : strlen(name);
    if (n >= sizeof base) {
        return err_set(err, ERR_INVALID, "template: a name has at most %d bytes", JOB_TEMPLATE_MAX);
    }
    memcpy(base, name, n);
    base[n] = 0;
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, base);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_ask(pg, &get_template, &p, &res, err);
    if (rc < 0) {
        return rc;
    }
    if (rc == 0) {
        return unknown_template(pg, base, err);
    }
    struct template_info t;
    read_row(res, 0, &t);
    if (at && strcmp(at + 1, t.digest) != 0) {
        return err_set(err, ERR_NOT_FOUND,
                       "template: \"%s\" is at digest %s, not the one asked for", base, t.digest);
    }
    *ret_t = t;
    return 0;
}
