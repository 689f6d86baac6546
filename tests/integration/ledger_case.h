/* What the tests of the ledger share: jobs that ran at a given time, sealing, the check's findings.
 * Included once by each program. */
#pragma once
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/store/ledger.h"
#include "common/store/ledger_check.h"
#include "common/store/pg_internal.h"
#include "tests/support/fixture.h"

#define DAY1 ((int64_t)1798675200000) /* 2026-12-31 00:00:00 UTC */
#define EDGE (DAY1 + DAY_MS)          /* 2027-01-01 */

static struct fixture f;
static struct err err;

#define OK(call) cr_assert_geq((call), 0, "%s: %s", #call, err.text)

static void set_up(void)
{
    fixture_open(&f);
}

static void tear_down(void)
{
    fixture_close(&f);
}

static void sql(const char *text)
{
    PGresult *res = PQexec(f.pg.conn, text);
    cr_assert(PQresultStatus(res) == PGRES_COMMAND_OK || PQresultStatus(res) == PGRES_TUPLES_OK,
              "%s: %s", text, PQerrorMessage(f.pg.conn));
    PQclear(res);
}

/* As somebody with every right. */
static inline void tamper(const char *text)
{
    sql("SET brood.ledger_change = 'on'");
    sql("ALTER TABLE usage_records DISABLE TRIGGER ALL; ALTER TABLE usage_seals DISABLE TRIGGER "
        "ALL; ALTER TABLE "
        "usage_period_totals DISABLE TRIGGER ALL");
    sql(text);
    sql("ALTER TABLE usage_records ENABLE TRIGGER ALL; ALTER TABLE usage_seals ENABLE TRIGGER ALL");
    sql("RESET brood.ledger_change");
}

#define DISPATCH_TRIES 10000

/* A job that ran for ms from from_ms on, committed over pg. */
static inline void run_job(struct pg *pg, const char *tenant, int64_t from_ms, int64_t ms,
                           enum verdict verdict, char ret_id[ID_TEXT_BYTES])
{
    struct submit_item one = { .spec = fixture_job("true", NULL) };
    struct err e;
    cr_assert_eq(store_submit(pg, tenant, NULL, NULL, 0, &one, 1, true, &e), 0, "%s", e.text);
    struct dispatch_row row;
    int got = 0;
    for (int tries = 0; got == 0 && tries < DISPATCH_TRIES; tries++) {
        got = fixture_dispatch(pg, 1, &row, &e); /* none: others hold the rows this moment */
    }
    cr_assert_eq(got, 1);
    struct job_result r;
    job_result_init(&r);
    r.verdict = verdict;
    r.vcpus = 1;
    r.memory_mib = 256;
    r.leased_wall_ms = from_ms;
    r.ended_wall_ms = from_ms + ms;
    r.measured_ms = ms;
    struct commit_item item = { .job_id = row.job_id,
                                .tenant = tenant,
                                .template_name = "python@d1",
                                .worker = "w",
                                .attempt = row.attempt,
                                .result = &r,
                                .billed = job_result_billed(&r) };
    cr_assert_eq(store_commit(pg, &item, 1, &e), 0, "%s", e.text);
    cr_assert(item.ret_won);
    if (ret_id) {
        memcpy(ret_id, row.job_id, ID_TEXT_BYTES);
    }
    dispatch_rows_done(&row, 1);
    job_result_done(&r);
}

#define SEAL_WAIT_MS 30000
/* Seals until no line is left: the server may have other databases, and transactions there that are
 * older than ours delay sealing too. */
static inline int seal_rest(struct seal_state *s)
{
    int sealed = 0;
    for (int64_t end = mono_ms() + SEAL_WAIT_MS; mono_ms() < end; sleep_ms(2)) {
        int n = store_seal(&f.pg, s, &err);
        cr_assert_geq(n, 0, "%s", n < 0 ? err.text : "");
        sealed += n;
        if (fixture_number(&f, "SELECT count(*) FROM usage_records WHERE pos > coalesce((SELECT "
                               "max(last_pos) FROM usage_seals), 0)") == 0) {
            break;
        }
    }
    return sealed;
}

static inline int seal_all(void)
{
    struct seal_state s = { 0 };
    int n = store_seal(&f.pg, &s, &err);
    cr_assert_eq(n, 0, "the first look only notes: %d", n);
    return seal_rest(&s);
}

struct found {
    int n;
    struct ledger_finding last[8];
};

static void on_finding(void *ctx, const struct ledger_finding *finding)
{
    struct found *all = ctx;
    all->last[all->n++ % 8] = *finding;
}

static inline struct found check(struct ledger_check *ret)
{
    struct found all = { .n = 0 };
    struct ledger_check c;
    OK(store_ledger_check(&f.pg, on_finding, &all, &c, &err));
    cr_assert_eq(c.findings, all.n);
    free(c.heads);
    c.heads = NULL;
    if (ret) {
        *ret = c;
    }
    return all;
}

#define CLEAN()                                                                                    \
    do {                                                                                           \
        struct found all_ = check(NULL);                                                           \
        cr_assert_eq(all_.n, 0, "%d found: %s %s %s", all_.n, all_.last[0].what,                   \
                     all_.last[0].line, all_.last[0].text);                                        \
    } while (0)

static inline bool has(const struct found *all, const char *what, const char *line)
{
    for (int i = 0; i < all->n && i < 8; i++) {
        if (strcmp(all->last[i].what, what) == 0 && strcmp(all->last[i].line, line) == 0) {
            return true;
        }
    }
    return false;
}
