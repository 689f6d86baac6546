#include "common/store/ledger_line.h"

#include <assert.h>
#include <string.h>

#define DAY_US 86400000000ll

enum field_kind { AS_TEXT, AS_INT, AS_UUID, AS_TIME };

/* In the order of the canonical form (docs/billing.md). */
static const struct {
    enum line_column column;
    enum field_kind kind;
} fields[] = {
    { LINE_ID, AS_UUID },       { LINE_POS, AS_INT },       { LINE_TENANT, AS_TEXT },
    { LINE_KIND, AS_TEXT },     { LINE_JOB, AS_UUID },      { LINE_ATTEMPT, AS_INT },
    { LINE_BRANCH, AS_TEXT },   { LINE_METER, AS_TEXT },    { LINE_PART, AS_INT },
    { LINE_TEMPLATE, AS_TEXT }, { LINE_LABELS, AS_TEXT },   { LINE_FROM, AS_TIME },
    { LINE_TO, AS_TIME },       { LINE_MEASURED, AS_INT },  { LINE_CHARGED, AS_INT },
    { LINE_AMOUNT, AS_INT },    { LINE_PRICE, AS_INT },     { LINE_COST, AS_INT },
    { LINE_PERIOD, AS_INT },    { LINE_RATE, AS_INT },      { LINE_BATCH, AS_UUID },
    { LINE_VERDICT, AS_TEXT },  { LINE_RESOURCE, AS_TEXT }, { LINE_CORRECTS, AS_UUID },
    { LINE_REASON, AS_TEXT },
};
static_assert(sizeof fields / sizeof fields[0] == LINE_COLUMN_COUNT, "each column once");

/* As (extract(epoch from t) * 1000)::int8: halves away from zero. */
static int64_t to_ms(int64_t us)
{
    return us >= 0 ? (us + 500) / 1000 : -((-us + 500) / 1000);
}

static int add_field(struct buf *out, const PGresult *res, int row, int column,
                     enum field_kind kind, struct err *err)
{
    const char *value = PQgetvalue(res, row, column);
    int len = PQgetlength(res, row, column);
    char id[ID_TEXT_BYTES];
    if (PQgetisnull(res, row, column)) {
        return 0;
    }
    switch (kind) {
    case AS_INT:
        return buf_add_int(out, pg_bin_int(res, row, column, 0), err);
    case AS_TIME:
        return buf_add_int(out, to_ms(pg_bin_time_us(res, row, column)), err);
    case AS_UUID:
        pg_copy_uuid(res, row, column, id);
        return buf_add_str(out, id, err);
    case AS_TEXT:
        break;
    }
    return buf_add(out, value, (size_t)len, err);
}

int ledger_line(const PGresult *res, int row, struct buf *out, struct err *err)
{
    buf_reset(out);
    int rc = buf_add_str(out, "brood line 1", err);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0] && rc == 0; i++) {
        rc = buf_add(out, "\n", 1, err);
        rc = rc < 0 ? rc : add_field(out, res, row, (int)fields[i].column, fields[i].kind, err);
    }
    return rc;
}

int64_t ledger_line_day(const PGresult *res, int row)
{
    int64_t us = pg_bin_time_us(res, row, LINE_FROM);
    return us / DAY_US - (us % DAY_US < 0);
}
