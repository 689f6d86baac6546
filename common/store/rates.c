/* Rate cards in Postgres. Cards are only added, one at a time under the table's lock, so that ids
 * are in the order of commits and the highest one says which book somebody knows. A card begins at
 * least a minute after it was added: whatever ended before a transaction that knows the book began
 * is priced for good. */
#include "common/store/ledger.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/store/ledger_internal.h"

#define CARD_COLUMNS                                                                               \
    "vcpu_second_nanousd, gib_second_nanousd, snapshot_gib_hour_nanousd, "                         \
    "artifact_gib_hour_nanousd, rounding_ms, minimum_ms"

static const struct statement read_cards = {
    "rates_read",
    "SELECT id, tenant, " PG_MS("valid_from") ", " CARD_COLUMNS
                                              " FROM rates ORDER BY valid_from, id LIMIT $1::int"
};
static const struct statement read_closed = {
    "rates_closed", "SELECT coalesce(max(period), 0) FROM usage_periods"
};
static const struct statement lock_rates = { "rates_lock", "LOCK TABLE rates IN EXCLUSIVE MODE" };
/* $1 tenant or NULL, $2 from ms: the database's clock; is there another so near */
static const struct statement look = {
    "rates_look",
    "SELECT (extract(epoch from clock_timestamp()) * 1000)::int8, (SELECT count(*) FROM rates),"
    " (SELECT " PG_MS(
        "min(valid_from)") " FROM rates WHERE tenant IS NOT DISTINCT FROM $1 AND"
                           "   abs(extract(epoch from valid_from) - $2::int8 / 1000) < $3::int8)"
};
/* $1 tenant or NULL, $2 from ms, $3.. prices, $9 note */
static const struct statement add_card = {
    "rates_add", "INSERT INTO rates (tenant, valid_from, " CARD_COLUMNS ", note) VALUES ($1,"
                 " to_timestamp($2::int8 / 1000), $3::int8, $4::int8, $5::int8, $6::int8, $7::int, "
                 "$8::int, $9::text) RETURNING id"
};
static const struct statement is_new = {
    "rates_new", "SELECT 1 WHERE (SELECT count(*) FROM rates) = 1 AND NOT EXISTS (SELECT FROM "
                 "usage_records)"
};
const struct statement stmt_ledger_guard = { "ledger_guard",
                                             "SELECT ledger_guard($1::int, $2::int)" };

static void take_card(const PGresult *res, int row, struct rate_card *c)
{
    c->id = (int)pg_int(res, row, 0);
    pg_copy(res, row, 1, c->tenant, sizeof c->tenant);
    c->valid_from_ms = pg_int(res, row, 2);
    c->vcpu_second_nanousd = pg_int(res, row, 3);
    c->gib_second_nanousd = pg_int(res, row, 4);
    c->snapshot_gib_hour_nanousd = pg_int(res, row, 5);
    c->artifact_gib_hour_nanousd = pg_int(res, row, 6);
    c->rounding_ms = pg_int(res, row, 7);
    c->minimum_ms = pg_int(res, row, 8);
}

int ledger_read_book(struct pg *pg, struct rate_book *ret_book, struct err *err)
{
    *ret_book = (struct rate_book){ 0 };
    struct pg_params p = { .n = 0 };
    pg_add_int(&p, RATE_CARDS_MAX);
    cleanup_pgresult PGresult *res = NULL, *closed = NULL;
    int n = pg_run(pg, &read_cards, &p, false, &res, err);
    int rc = n < 0 ? n : pg_run(pg, &read_closed, NULL, false, &closed, err);
    if (rc < 0) {
        return rc;
    }
    struct rate_book b = { .cards = calloc((size_t)n + 1, sizeof *b.cards), .n = n };
    if (!b.cards) {
        abort();
    }
    for (int i = 0; i < n; i++) {
        take_card(res, i, &b.cards[i]);
        b.version = b.cards[i].id > b.version ? b.cards[i].id : b.version;
        if (rate_card_fault(&b.cards[i])) {
            rc = err_set(err, ERR_INVALID, "rate card %d: %s", b.cards[i].id,
                         rate_card_fault(&b.cards[i]));
            rate_book_done(&b);
            return rc;
        }
    }
    b.closed_through = (int)pg_int(closed, 0, 0);
    *ret_book = b;
    return 0;
}

int store_rates(struct pg *pg, struct rate_book *ret_book, struct err *err)
{
    int rc = pg_ensure(pg, err);
    return rc < 0 ? rc : ledger_read_book(pg, ret_book, err);
}

int ledger_book(struct pg *pg, const struct rate_book **ret_book, struct err *err)
{
    if (!pg->book) {
        struct rate_book *b = calloc(1, sizeof *b);
        if (!b) {
            abort();
        }
        int rc = ledger_read_book(pg, b, err);
        if (rc < 0) {
            free(b);
            return rc;
        }
        pg->book = b;
    }
    *ret_book = pg->book;
    return 0;
}

void ledger_forget(struct pg *pg)
{
    rate_book_done(pg->book);
    free(pg->book);
    pg->book = NULL;
}

static int insert(struct pg *pg, const struct rate_card *c, const char *note, struct err *err)
{
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, c->tenant[0] ? c->tenant : NULL);
    pg_add_int(&p, c->valid_from_ms);
    pg_add_int(&p, c->vcpu_second_nanousd);
    pg_add_int(&p, c->gib_second_nanousd);
    pg_add_int(&p, c->snapshot_gib_hour_nanousd);
    pg_add_int(&p, c->artifact_gib_hour_nanousd);
    pg_add_int(&p, c->rounding_ms);
    pg_add_int(&p, c->minimum_ms);
    pg_add_text(&p, note);
    cleanup_pgresult PGresult *res = NULL;
    int rc = pg_run(pg, &add_card, &p, false, &res, err);
    return rc < 0 ? rc : (int)pg_int(res, 0, 0);
}

/* Under the lock. */
static int add(struct pg *pg, struct rate_card *c, const char *note, struct err *err)
{
    bool soon = c->valid_from_ms == 0;
    struct pg_params p = { .n = 0 };
    pg_add_text(&p, c->tenant[0] ? c->tenant : NULL);
    pg_add_int(&p, c->valid_from_ms);
    pg_add_int(&p, RATE_SPACING_S);
    cleanup_pgresult PGresult *res = NULL, *again = NULL;
    int rc = pg_run(pg, &look, &p, false, &res, err);
    if (rc < 0) {
        return rc;
    }
    const PGresult *seen = res;
    int64_t first_ms = (pg_int(res, 0, 0) + 999) / 1000 * 1000 + RATE_NOTICE_S * 1000;
    if (soon) {
        c->valid_from_ms = first_ms + 1000;
        struct pg_params q = { .n = 0 };
        pg_add_text(&q, c->tenant[0] ? c->tenant : NULL);
        pg_add_int(&q, c->valid_from_ms);
        pg_add_int(&q, RATE_SPACING_S);
        if ((rc = pg_run(pg, &look, &q, false, &again, err)) < 0) {
            return rc;
        }
        seen = again;
    }
    if (c->valid_from_ms < first_ms) {
        return err_set(err, ERR_INVALID,
                       "a rate card begins at least %d s from now: what was billed before is "
                       "corrected by `brood usage adjust`",
                       RATE_NOTICE_S);
    }
    if (pg_int(seen, 0, 1) >= RATE_CARDS_MAX) {
        return err_set(err, ERR_TOO_LARGE, "there are %d rate cards already", RATE_CARDS_MAX);
    }
    if (pg_int(seen, 0, 2) >= 0) {
        return err_set(err, ERR_INVALID,
                       "another rate card of the same tenant begins less than %d s before or after",
                       RATE_SPACING_S);
    }
    if ((rc = insert(pg, c, note, err)) < 0) {
        return rc;
    }
    c->id = rc;
    return 0;
}

int store_rates_set(struct pg *pg, const struct rate_card *card, const char *note,
                    struct rate_card *ret_card, struct err *err)
{
    struct rate_card c = *card;
    if (rate_card_fault(&c)) {
        return err_set(err, ERR_INVALID, "%s", rate_card_fault(&c));
    }
    if (strlen(note) >= LEDGER_REASON_MAX || (c.tenant[0] && !job_tenant_ok(c.tenant))) {
        return err_set(err, ERR_INVALID,
                       c.tenant[0] && !job_tenant_ok(c.tenant)
                           ? "tenant: must match [a-z0-9][a-z0-9_-]{0,63}"
                           : "the note is too long");
    }
    int rc = pg_ask(pg, &stmt_begin, NULL, NULL, err);
    rc = rc < 0 ? rc : pg_run(pg, &lock_rates, NULL, false, NULL, err);
    rc = rc < 0 ? rc : add(pg, &c, note, err);
    rc = rc < 0 ? rc : pg_run(pg, &stmt_commit, NULL, false, NULL, err);
    if (rc < 0) {
        pg_rollback(pg);
        return rc;
    }
    ledger_forget(pg);
    *ret_card = c;
    return 0;
}

static int add_first(struct pg *pg, const struct rate_card *card, struct err *err)
{
    struct rate_book b;
    int rc = pg_run(pg, &is_new, NULL, false, NULL, err);
    if (rc <= 0 || (rc = ledger_read_book(pg, &b, err)) < 0) {
        return rc;
    }
    struct rate_card c = *card, builtin = b.cards[0];
    rate_book_done(&b);
    c.valid_from_ms = builtin.valid_from_ms;
    c.tenant[0] = 0;
    c.snapshot_gib_hour_nanousd = c.snapshot_gib_hour_nanousd ? c.snapshot_gib_hour_nanousd
                                                              : builtin.snapshot_gib_hour_nanousd;
    c.artifact_gib_hour_nanousd = c.artifact_gib_hour_nanousd ? c.artifact_gib_hour_nanousd
                                                              : builtin.artifact_gib_hour_nanousd;
    if (c.vcpu_second_nanousd == builtin.vcpu_second_nanousd &&
        c.gib_second_nanousd == builtin.gib_second_nanousd &&
        c.snapshot_gib_hour_nanousd == builtin.snapshot_gib_hour_nanousd &&
        c.artifact_gib_hour_nanousd == builtin.artifact_gib_hour_nanousd &&
        c.rounding_ms == builtin.rounding_ms && c.minimum_ms == builtin.minimum_ms) {
        return 0;
    }
    rc = insert(pg, &c, "configuration", err);
    return rc < 0 ? rc : 1;
}

int store_rates_first(struct pg *pg, const struct rate_card *card, struct err *err)
{
    if (rate_card_fault(card)) {
        return err_set(err, ERR_INVALID, "rate.*: %s", rate_card_fault(card));
    }
    int rc = pg_ensure(pg, err), added = 0;
    rc = rc < 0 ? rc : pg_run(pg, &stmt_begin, NULL, false, NULL, err);
    rc = rc < 0 ? rc : pg_run(pg, &lock_rates, NULL, false, NULL, err);
    rc = added = rc < 0 ? rc : add_first(pg, card, err);
    rc = rc < 0 ? rc : pg_run(pg, &stmt_commit, NULL, false, NULL, err);
    if (rc < 0) {
        pg_rollback(pg);
        return rc;
    }
    ledger_forget(pg);
    return added;
}
