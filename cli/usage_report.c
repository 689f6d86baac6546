/* Sums of the usage lines as a table, CSV or JSON. Rows are printed as they come but for the table,
 * which needs its widths first and shows at most so many; the total is of all rows in each case. */
#include "cli/usage_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "cli/focus.h"
#include "cli/money.h"
#include "common/base/cleanup.h"
#include "common/store/ledger_check.h"

#define TABLE_ROWS_MAX 1000

struct report {
    struct cli *cli;
    const struct usage_query *q;
    enum usage_format format;
    struct usage_sum total;
    struct usage_sum *rows; /* of the table */
    int n, n_all;
    json_t *list;
};

static int64_t per_accepted(const struct usage_sum *s)
{
    return s->accepted > 0 ? (s->cost_nanousd + s->accepted / 2) / s->accepted : -1;
}

static json_t *row_json(const struct usage_sum *s)
{
    json_t *o = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "key", s->key, "jobs",
        (json_int_t)s->jobs, "accepted", (json_int_t)s->accepted, "measured_ms",
        (json_int_t)s->measured_ms, "charged_ms", (json_int_t)s->charged_ms, "vcpu_charged_ms",
        (json_int_t)s->vcpu_ms, "mib_charged_ms", (json_int_t)s->mib_ms, "snapshot_byte_hours",
        (json_int_t)s->snapshot_byte_hours, "artifact_byte_hours",
        (json_int_t)s->artifact_byte_hours, "sandbox_nanousd", (json_int_t)s->sandbox_nanousd,
        "storage_nanousd", (json_int_t)s->storage_nanousd, "adjusted_nanousd",
        (json_int_t)s->adjusted_nanousd, "cost_nanousd", (json_int_t)s->cost_nanousd);
    int64_t each = per_accepted(s);
    (void)json_object_set_new(o, "cost_per_accepted_nanousd",
                              each < 0 ? json_null() : json_integer(each));
    (void)json_object_set_new(o, "lines", json_integer(s->lines));
    return o;
}

static void csv_head(void)
{
    (void)printf("key,jobs,accepted,lines,measured_ms,charged_ms,vcpu_charged_ms,mib_charged_ms,"
                 "snapshot_byte_hours,artifact_byte_hours,sandbox_nanousd,storage_nanousd,"
                 "adjusted_nanousd,cost_nanousd,cost_per_accepted_nanousd\n");
}

static void csv_row(const struct usage_sum *s)
{
    const int64_t v[] = { s->jobs,
                          s->accepted,
                          s->lines,
                          s->measured_ms,
                          s->charged_ms,
                          s->vcpu_ms,
                          s->mib_ms,
                          s->snapshot_byte_hours,
                          s->artifact_byte_hours,
                          s->sandbox_nanousd,
                          s->storage_nanousd,
                          s->adjusted_nanousd,
                          s->cost_nanousd };
    csv_field(stdout, s->key);
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        (void)printf(",%" PRId64, v[i]);
    }
    if (per_accepted(s) >= 0) {
        (void)printf(",%" PRId64, per_accepted(s));
    } else {
        (void)putchar(',');
    }
    (void)putchar('\n');
}

static void add(struct usage_sum *t, const struct usage_sum *s)
{
    t->lines += s->lines;
    t->jobs += s->jobs;
    t->accepted += s->accepted;
    t->measured_ms += s->measured_ms;
    t->charged_ms += s->charged_ms;
    t->vcpu_ms += s->vcpu_ms;
    t->mib_ms += s->mib_ms;
    t->snapshot_byte_hours += s->snapshot_byte_hours;
    t->artifact_byte_hours += s->artifact_byte_hours;
    t->sandbox_nanousd += s->sandbox_nanousd;
    t->storage_nanousd += s->storage_nanousd;
    t->adjusted_nanousd += s->adjusted_nanousd;
    t->cost_nanousd += s->cost_nanousd;
}

static int on_row(void *ctx, const struct usage_sum *s, struct err *err)
{
    struct report *r = ctx;
    add(&r->total, s);
    r->n_all++;
    if (r->format == FORMAT_CSV) {
        csv_row(s);
    } else if (r->format == FORMAT_JSON) {
        (void)json_array_append_new(r->list, row_json(s));
    } else if (r->n < TABLE_ROWS_MAX) {
        r->rows[r->n++] = *s;
    }
    return cli_out_ok() ? 0 : err_set(err, ERR_CLOSED, "nobody reads");
}

static void print_row(const struct usage_sum *s, int width)
{
    char measured[MONEY_TEXT_MAX], charged[MONEY_TEXT_MAX], sandbox[MONEY_TEXT_MAX],
        storage[MONEY_TEXT_MAX], adjusted[MONEY_TEXT_MAX], cost[MONEY_TEXT_MAX],
        each[MONEY_TEXT_MAX] = "-";
    duration_format(s->measured_ms, measured);
    duration_format(s->charged_ms, charged);
    money_format(s->sandbox_nanousd, sandbox);
    money_format(s->storage_nanousd, storage);
    money_format(s->adjusted_nanousd, adjusted);
    money_format(s->cost_nanousd, cost);
    if (per_accepted(s) >= 0) {
        money_format(per_accepted(s), each);
    }
    (void)printf("%-*s  %9lld  %9lld  %13s  %13s  %14s  %13s  %13s  %14s  %13s\n", width, s->key,
                 (long long)s->jobs, (long long)s->accepted, measured, charged, sandbox, storage,
                 adjusted, cost, each);
}

static void print_table(const struct report *r)
{
    int width = 10;
    for (int i = 0; i < r->n; i++) {
        int len = (int)strlen(r->rows[i].key);
        width = len > width ? len : width;
    }
    (void)printf("%-*s  %9s  %9s  %13s  %13s  %14s  %13s  %13s  %14s  %13s\n", width,
                 usage_group_word(r->q->by), "jobs", "accepted", "measured", "charged", "sandboxes",
                 "storage", "corrected", "cost", "per accepted");
    for (int i = 0; i < r->n; i++) {
        print_row(&r->rows[i], width);
    }
    print_row(&r->total, width);
    if (r->n < r->n_all) {
        (void)fprintf(
            stderr, "brood: %d of %d rows are shown, the total is of all; --format csv has them\n",
            r->n, r->n_all);
    }
}

int usage_report(struct cli *cli, struct pg *pg, const struct usage_query *q, enum usage_format f)
{
    struct report r = { .cli = cli, .q = q, .format = f, .total = { .key = "total" } };
    struct err err;
    cleanup_free struct usage_sum *rows = calloc(TABLE_ROWS_MAX, sizeof *rows);
    r.list = json_array();
    if (!rows || !r.list) {
        abort();
    }
    r.rows = rows;
    if (f == FORMAT_CSV) {
        csv_head();
    }
    int rc = store_usage(pg, q, on_row, &r, &err);
    if (rc >= 0 && f == FORMAT_CSV) {
        csv_row(&r.total);
    } else if (rc >= 0 && f == FORMAT_JSON) {
        json_t *root = json_pack("{s:s, s:O, s:o}", "by", usage_group_word(q->by), "rows", r.list,
                                 "total", row_json(&r.total));
        (void)json_dumpf(root, stdout, JSON_COMPACT);
        (void)putchar('\n');
        json_decref(root);
    } else if (rc >= 0) {
        print_table(&r);
    }
    json_decref(r.list);
    return rc < 0 && rc != -ERR_CLOSED ? cli_fail(cli, &err) : CLI_OK;
}

/* ---- FOCUS ---- */

static int on_line(void *ctx, const struct usage_line *l, struct err *err)
{
    (void)ctx;
    focus_row(l, stdout);
    return cli_out_ok() ? 0 : err_set(err, ERR_CLOSED, "nobody reads");
}

int usage_focus(struct cli *cli, struct pg *pg, const struct usage_query *q)
{
    struct err err;
    focus_header(stdout);
    int rc = store_usage_lines(pg, q, on_line, NULL, &err);
    return rc < 0 && rc != -ERR_CLOSED ? cli_fail(cli, &err) : CLI_OK;
}

/* ---- overhead ---- */

int usage_overhead(struct cli *cli, struct pg *pg, const struct usage_query *q, enum usage_format f)
{
    struct overhead_row rows[OVERHEAD_ROWS_MAX];
    struct err err;
    int n = store_overhead(pg, q, rows, &err);
    if (n < 0) {
        return cli_fail(cli, &err);
    }
    json_t *list = json_array();
    if (f == FORMAT_TABLE) {
        (void)printf("%-24s  %9s  %14s\n", "not billed", "count", "time");
    } else if (f == FORMAT_CSV) {
        (void)printf("what,count,ms\n");
    }
    for (int i = 0; i < n; i++) {
        const struct overhead_row *r = &rows[i];
        char time[MONEY_TEXT_MAX];
        duration_format(r->ms, time);
        if (f == FORMAT_TABLE) {
            (void)printf("%-24s  %9lld  %14s\n", r->what, (long long)r->count, time);
        } else if (f == FORMAT_CSV) {
            (void)printf("%s,%lld,%lld\n", r->what, (long long)r->count, (long long)r->ms);
        } else {
            (void)json_array_append_new(list,
                                        json_pack("{s:s, s:I, s:I}", "what", r->what, "count",
                                                  (json_int_t)r->count, "ms", (json_int_t)r->ms));
        }
    }
    if (f == FORMAT_JSON) {
        (void)json_dumpf(list, stdout, JSON_COMPACT);
        (void)putchar('\n');
    }
    json_decref(list);
    return CLI_OK;
}

/* ---- the check ---- */

#define FINDINGS_SHOWN_MAX 1000

struct findings {
    bool json;
    json_t *list;
    int n;
};

static void on_finding(void *ctx, const struct ledger_finding *f)
{
    struct findings *s = ctx;
    if (s->n++ >= FINDINGS_SHOWN_MAX) {
        return;
    }
    if (s->json) {
        (void)json_array_append_new(s->list, json_pack("{s:s, s:s, s:s}", "what", f->what, "line",
                                                       f->line, "text", f->text));
    } else {
        (void)printf("%s: %s%s%s\n", f->what, f->line[0] ? "line " : "", f->line[0] ? f->line : "",
                     f->line[0] ? " " : "");
        (void)printf("    %s\n", f->text);
    }
}

static void print_check(const struct ledger_check *c)
{
    char cost[MONEY_TEXT_MAX];
    money_format(c->cost_nanousd, cost);
    (void)printf("lines %lld (%lld not sealed yet) in %lld seals, %s; jobs %lld, branches %lld, "
                 "hours of storage %lld, closed months %lld\n",
                 (long long)c->lines, (long long)c->unsealed, (long long)c->seals, cost,
                 (long long)c->jobs, (long long)c->branches, (long long)c->hours,
                 (long long)c->months);
    for (int i = 0; i < c->n_heads; i++) {
        (void)printf("head %s %lld %s\n", c->heads[i].tenant, (long long)c->heads[i].seal,
                     c->heads[i].hash);
    }
    (void)printf(c->findings ? "%lld disagreement%s\n" : "everything agrees, to the nano-dollar\n",
                 (long long)c->findings, c->findings == 1 ? "" : "s");
}

int usage_check(struct cli *cli, struct pg *pg)
{
    struct findings s = { .json = cli->json, .list = json_array() };
    struct ledger_check c;
    struct err err;
    if (store_ledger_check(pg, on_finding, &s, &c, &err) < 0) {
        json_decref(s.list);
        return cli_fail(cli, &err);
    }
    if (cli->json) {
        json_t *heads = json_array();
        for (int i = 0; i < c.n_heads; i++) {
            (void)json_array_append_new(
                heads, json_pack("{s:s, s:I, s:I, s:s}", "tenant", c.heads[i].tenant, "seal",
                                 (json_int_t)c.heads[i].seal, "lines", (json_int_t)c.heads[i].lines,
                                 "hash", c.heads[i].hash));
        }
        json_t *root =
            json_pack("{s:b, s:I, s:O, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "clean",
                      c.findings == 0, "disagreements", (json_int_t)c.findings, "findings", s.list,
                      "lines", (json_int_t)c.lines, "unsealed", (json_int_t)c.unsealed, "seals",
                      (json_int_t)c.seals, "cost_nanousd", (json_int_t)c.cost_nanousd, "jobs",
                      (json_int_t)c.jobs, "branches", (json_int_t)c.branches, "hours",
                      (json_int_t)c.hours, "months", (json_int_t)c.months, "heads", heads);
        (void)json_dumpf(root, stdout, JSON_COMPACT);
        (void)putchar('\n');
        json_decref(root);
    } else {
        print_check(&c);
    }
    json_decref(s.list);
    free(c.heads);
    return c.findings ? CLI_NOT_AS_WANTED : CLI_OK;
}
