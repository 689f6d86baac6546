/* FOCUS says what a column may hold; this says it of our lines. Money is exact: a plain decimal of
 * nano-dollars. Quantities are exact but for byte-hours in GiB-hours (9 decimals). Moments are
 * whole seconds: a charge's period begins with the second in which the line begins and ends with
 * the one in which it ends. A correction has no quantity and no price. */
#include "cli/focus.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/usage_args.h"

#define FIELD_MAX 512

__extension__ typedef __int128 wide;

enum column {
#define FOCUS_COLUMN(name) F_##name,
#include "cli/focus.def"
#undef FOCUS_COLUMN
    F_COUNT
};
static const char *const names[F_COUNT] = {
#define FOCUS_COLUMN(name) #name,
#include "cli/focus.def"
#undef FOCUS_COLUMN
};

static const struct {
    const char *unit, *sku, *sku_meter, *category, *subcategory, *resource, *what;
} meters[METER_ALL_COUNT] = {
    [METER_VCPU_SECONDS] = { "vCPU-Seconds", "sandbox.vcpu", "vCPU time", "Compute",
                             "Virtual Machines", "Sandbox", "vCPU time of a sandbox" },
    [METER_GIB_SECONDS] = { "GiB-Seconds", "sandbox.memory", "Memory time", "Compute",
                            "Virtual Machines", "Sandbox", "memory of a sandbox" },
    [METER_SNAPSHOT_GIB_HOURS] = { "GiB-Hours", "snapshot.storage", "Snapshot storage", "Storage",
                                   "Other (Storage)", "Snapshot", "a kept snapshot" },
    [METER_ARTIFACT_GIB_HOURS] = { "GiB-Hours", "artifact.storage", "Artifact storage", "Storage",
                                   "Object Storage", "Artifacts", "stored artifacts" },
};

void csv_field(FILE *out, const char *text)
{
    if (!text[strcspn(text, ",\"\r\n")]) {
        (void)fputs(text, out);
        return;
    }
    (void)fputs("\"", out);
    for (const char *p = text; *p; p++) {
        if (*p == '"') {
            (void)fputs("\"", out);
        }
        (void)fputc(*p, out);
    }
    (void)fputs("\"", out);
}

void focus_header(FILE *out)
{
    for (int i = 0; i < F_COUNT; i++) {
        (void)fputs(i ? "," : "", out);
        (void)fputs(names[i], out);
    }
    (void)fputs("\n", out);
}

/* value / 10^decimals as a plain decimal, zeros at the end cut. */
static void decimal(wide value, int decimals, char out[FIELD_MAX])
{
    bool negative = value < 0;
    value = negative ? -value : value;
    char digits[64];
    int n = 0;
    for (; n <= decimals || value > 0; value /= 10) {
        assert(n < (int)sizeof digits);
        digits[n++] = (char)('0' + (int)(value % 10));
    }
    int low = 0;
    for (; low < decimals && digits[low] == '0'; low++) {
    }
    size_t used = 0;
    if (negative) {
        out[used++] = '-';
    }
    for (int i = n - 1; i >= low; i--) {
        if (i == decimals - 1) {
            out[used++] = '.';
        }
        out[used++] = digits[i];
    }
    out[used] = 0;
}

static void quantity(const struct usage_line *l, int64_t ms, char out[FIELD_MAX])
{
    switch (l->meter) {
    case METER_VCPU_SECONDS:
        decimal((wide)l->amount * ms, 3, out);
        return;
    case METER_GIB_SECONDS:
        decimal((wide)l->amount * ms * 9765625, 13, out); /* / 1024 / 1000 */
        return;
    default:
        decimal(((wide)l->amount * 1000000000 + (1 << 29)) >> 30, 9, out);
    }
}

static void money(int64_t nanousd, char out[FIELD_MAX])
{
    decimal(nanousd, 9, out);
}

/* Text of column c in out; "" is null. */
static const char *field(const struct usage_line *l, enum column c, char out[FIELD_MAX])
{
    bool usage = !l->adjustment;
    const char *resource = l->resource[0] ? l->resource : l->job_id;
    *out = 0;
    switch (c) {
    case F_BilledCost:
    case F_ContractedCost:
    case F_EffectiveCost:
    case F_ListCost:
        money(l->cost_nanousd, out);
        return out;
    case F_BillingAccountId:
    case F_BillingAccountName:
        return l->tenant;
    case F_BillingAccountType:
        return "Tenant";
    case F_BillingCurrency:
    case F_PricingCurrency:
        return "USD";
    case F_BillingPeriodStart:
        moment_format(usage_month_start_ms(l->period), 0, out);
        return out;
    case F_BillingPeriodEnd:
        moment_format(usage_month_start_ms(usage_month_after(l->period)), 0, out);
        return out;
    case F_ChargeCategory:
        return usage ? "Usage" : "Adjustment";
    case F_ChargeClass:
        return l->corrects_closed ? "Correction" : "";
    case F_ChargeDescription:
        (void)snprintf(out, FIELD_MAX, "%s%s", usage ? "" : "correction, ",
                       usage ? meters[l->meter].what : l->reason);
        return out;
    case F_ChargeFrequency:
        return usage ? "Usage-Based" : "One-Time";
    case F_ChargePeriodStart:
        moment_format(l->from_ms, 0, out);
        return out;
    case F_ChargePeriodEnd: /* exclusive, and after the start */
        moment_format(l->to_ms / 1000 == l->from_ms / 1000 ? l->from_ms / 1000 * 1000 + 1000
                                                           : l->to_ms,
                      1, out);
        return out;
    case F_ConsumedQuantity:
        if (usage) {
            quantity(l, l->measured_ms, out);
        }
        return out;
    case F_ConsumedUnit:
    case F_PricingUnit:
        return usage ? meters[l->meter].unit : "";
    case F_PricingQuantity:
        if (usage) {
            quantity(l, l->charged_ms, out);
        }
        return out;
    case F_ContractedUnitPrice:
    case F_ListUnitPrice:
        if (usage) {
            money(l->unit_price_nanousd, out);
        }
        return out;
    case F_InvoiceId:
        if (l->closed) {
            (void)snprintf(out, FIELD_MAX, "%s-%d", l->tenant, l->period);
        }
        return out;
    case F_InvoiceIssuerName:
    case F_ProviderName:
    case F_PublisherName:
    case F_ServiceName:
        return "brood";
    case F_PricingCategory:
        return usage ? "Standard" : "";
    case F_ResourceId:
        return resource;
    case F_ResourceName:
        return resource;
    case F_ResourceType:
        return resource[0] ? meters[l->meter].resource : "";
    case F_ServiceCategory:
        return meters[l->meter].category;
    case F_ServiceSubcategory:
        return meters[l->meter].subcategory;
    case F_SkuId:
        return meters[l->meter].sku;
    case F_SkuMeter:
        return meters[l->meter].sku_meter;
    case F_SkuPriceId:
        if (usage) {
            (void)snprintf(out, FIELD_MAX, "%s@%d", meters[l->meter].sku, l->rate_id);
        }
        return out;
    case F_Tags:
        return l->labels;
    case F_x_Attempt:
        if (l->attempt > 0) {
            (void)snprintf(out, FIELD_MAX, "%d", l->attempt);
        }
        return out;
    case F_x_BatchId:
        return l->batch_id;
    case F_x_Branch:
        return l->branch;
    case F_x_ChargedMs:
        (void)snprintf(out, FIELD_MAX, "%" PRId64, l->charged_ms);
        return out;
    case F_x_CorrectsId:
        return l->corrects;
    case F_x_FocusVersion:
        return "1.2";
    case F_x_JobId:
        return l->job_id;
    case F_x_LineId:
        return l->id;
    case F_x_MeasuredMs:
        (void)snprintf(out, FIELD_MAX, "%" PRId64, l->measured_ms);
        return out;
    case F_x_Template:
        return l->template_name;
    case F_x_Verdict:
        return l->verdict;
    case F_COUNT:
        break;
    }
    assert(!"a column of focus.def without a value");
    return "";
}

void focus_row(const struct usage_line *l, FILE *out)
{
    char text[FIELD_MAX];
    for (int c = 0; c < F_COUNT; c++) {
        (void)fputs(c ? "," : "", out);
        csv_field(out, field(l, (enum column)c, text));
    }
    (void)fputs("\n", out);
}
