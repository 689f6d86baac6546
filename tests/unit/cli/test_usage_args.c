/* Amounts, moments, months and lengths as people write them; FOCUS rows. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/focus.h"
#include "cli/usage_args.h"

static struct err err;

static int64_t money(const char *text)
{
    int64_t v = -77;
    return money_parse(text, &v, &err) == 0 ? v : -77;
}

Test(usage_args, money)
{
    cr_assert_eq(money("0.000014"), 14000);
    cr_assert_eq(money("$1.5"), 1500000000);
    cr_assert_eq(money("-0.0025"), -2500000);
    cr_assert_eq(money("-$.5"), -500000000);
    cr_assert_eq(money("0.000000001"), 1);
    cr_assert_eq(money("9223372035"), 9223372035000000000);
    static const char *const bad[] = { "",           "$",     ".",   "1e3", "0.0000000001", "1,5",
                                       "9223372036", "1.2.3", "- 1", "nan", "10000000000",  " 1" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_assert_eq(money(bad[i]), -77, "%s", bad[i]);
    }
}

static int64_t moment(const char *text)
{
    int64_t v = -77;
    return moment_parse(text, &v, &err) == 0 ? v : -77;
}

Test(usage_args, moments)
{
    cr_assert_eq(moment("1970-01-01"), 0);
    cr_assert_eq(moment("2027-01-01T00:00:00Z"), 1798761600000);
    cr_assert_eq(moment("2028-02-29"), 1835395200000);
    cr_assert_gt(moment("now"), 1700000000000);
    static const char *const bad[] = { "2027-02-29",           "2027-13-01",
                                       "2027-01-01T24:00:00Z", "2027-1-1",
                                       "2016-12-31T23:59:60Z", "1969-12-31",
                                       "2027-01-01 00:00:00Z", "x" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_assert_eq(moment(bad[i]), -77, "%s", bad[i]);
    }
    int month = 0;
    cr_assert_eq(month_parse("2026-11", &month, &err), 0);
    cr_assert_eq(month, 202611);
    cr_assert_eq(month_parse("2026-13", &month, &err), -ERR_INVALID);
    cr_assert_eq(month_parse("2026-1", &month, &err), -ERR_INVALID);
    int64_t ms = 0;
    cr_assert(duration_parse("250ms", &ms, &err) == 0 && ms == 250);
    cr_assert(duration_parse("2h", &ms, &err) == 0 && ms == 7200000);
    cr_assert(duration_parse("7", &ms, &err) == 0 && ms == 7);
    cr_assert_eq(duration_parse("-7", &ms, &err), -ERR_INVALID);
    cr_assert_eq(duration_parse("1d", &ms, &err), -ERR_INVALID);
    cr_assert_eq(duration_parse("9999999999999999h", &ms, &err), -ERR_INVALID);
    char text[MOMENT_TEXT_MAX];
    moment_format(1798761599001, 0, text);
    cr_assert_str_eq(text, "2026-12-31T23:59:59Z");
    moment_format(1798761599001, 1, text);
    cr_assert_str_eq(text, "2027-01-01T00:00:00Z");
}

/* The row's field of that name (no commas within quotes before it in these rows but Tags, which
 * comes last of ours). */
static void field(const char *head, const char *row, const char *name, char out[128])
{
    const char *h = head, *r = row;
    while (strncmp(h, name, strlen(name)) != 0 ||
           (h[strlen(name)] != ',' && h[strlen(name)] != '\n')) {
        h = strchr(h, ',');
        r = strchr(r, ',');
        cr_assert(h && r, "%s", name);
        h++;
        r++;
    }
    (void)snprintf(out, 128, "%.*s", (int)strcspn(r, ",\n"), r);
}

Test(usage_args, focus_row)
{
    const struct usage_line l = { .id = "i",
                                  .tenant = "t",
                                  .job_id = "j",
                                  .branch = "",
                                  .template_name = "python@d",
                                  .labels = "{\"a\": \"x\\\"y\"}",
                                  .batch_id = "",
                                  .verdict = "accepted",
                                  .resource = "",
                                  .corrects = "",
                                  .reason = "",
                                  .meter = METER_GIB_SECONDS,
                                  .attempt = 1,
                                  .period = 202612,
                                  .rate_id = 3,
                                  .from_ms = 1798761599001,
                                  .to_ms = 1798761599999,
                                  .measured_ms = 998,
                                  .charged_ms = 1000,
                                  .amount = 100,
                                  .unit_price_nanousd = 4500,
                                  .cost_nanousd = 439 };
    char *text = NULL, got[128];
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    focus_header(out);
    focus_row(&l, out);
    (void)fclose(out);
    const char *row = strchr(text, '\n') + 1;
    static const char *const want[][2] = {
        { "BilledCost", "0.000000439" },
        { "BillingPeriodStart", "2026-12-01T00:00:00Z" },
        { "BillingPeriodEnd", "2027-01-01T00:00:00Z" },
        { "ChargeCategory", "Usage" },
        { "ChargeClass", "" },
        { "ChargePeriodStart", "2026-12-31T23:59:59Z" },
        { "ChargePeriodEnd", "2027-01-01T00:00:00Z" },
        { "ConsumedQuantity", "0.0974609375" },
        { "PricingQuantity", "0.09765625" },
        { "PricingUnit", "GiB-Seconds" },
        { "ListUnitPrice", "0.0000045" },
        { "InvoiceId", "" },
        { "SkuPriceId", "sandbox.memory@3" },
        { "ResourceId", "j" },
        { "Tags", "\"{\"\"a\"\": \"\"x\\\"\"y\"\"}\"" },
        { "x_MeasuredMs", "998" },
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        field(text, row, want[i][0], got);
        cr_assert_str_eq(got, want[i][1], "%s is %s", want[i][0], got);
    }
    free(text);
}
