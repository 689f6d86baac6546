#!/usr/bin/env python3
"""focus_check.py < charges.csv: is every row a FOCUS 1.2 charge record? Columns, nulls, values and units as the specification has them, plus what
must hold between columns. Prints what is wrong, a line each; then "ROWS rows, BILLED billed". Exit status 1 when anything is wrong or there is no row."""
import csv
import datetime
import decimal
import json
import re
import sys

decimal.getcontext().prec = 60
D = decimal.Decimal
NEVER_NULL = """BilledCost BillingAccountId BillingCurrency BillingPeriodStart BillingPeriodEnd ChargeCategory ChargePeriodStart
ChargePeriodEnd ContractedCost EffectiveCost InvoiceIssuerName ListCost ProviderName PublisherName ServiceCategory ServiceName""".split()
PRESENT = NEVER_NULL + "BillingAccountName ChargeClass ChargeDescription PricingQuantity PricingUnit".split()
KNOWN = set(PRESENT) | set("""AvailabilityZone BillingAccountType CapacityReservationId CapacityReservationStatus ChargeFrequency
CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName CommitmentDiscountQuantity CommitmentDiscountStatus
CommitmentDiscountType CommitmentDiscountUnit ConsumedQuantity ConsumedUnit ContractedUnitPrice InvoiceId ListUnitPrice
PricingCategory PricingCurrency PricingCurrencyContractedUnitPrice PricingCurrencyEffectiveCost PricingCurrencyListUnitPrice
RegionId RegionName ResourceId ResourceName ResourceType ServiceSubcategory SkuId SkuMeter SkuPriceDetails SkuPriceId SubAccountId
SubAccountName SubAccountType Tags""".split())
NUMBERS = [c for c in KNOWN if c.endswith(("Cost", "Quantity", "UnitPrice"))]
MOMENTS = "BillingPeriodStart BillingPeriodEnd ChargePeriodStart ChargePeriodEnd".split()
VALUES = {
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeClass": {"", "Correction"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "PricingCategory": {"", "Standard", "Dynamic", "Committed", "Other"},
    "BillingCurrency": {"USD"},
    "ServiceCategory": {"AI and Machine Learning", "Analytics", "Business Applications", "Compute", "Databases", "Developer Tools",
                        "Multicloud", "Identity", "Integration", "Internet of Things", "Management and Governance", "Media",
                        "Migration", "Mobile", "Networking", "Security", "Storage", "Web", "Other"},
}
SUBCATEGORIES = {
    "Compute": {"Containers", "End User Computing", "Quantum Compute", "Serverless Compute", "Virtual Machines", "Other (Compute)"},
    "Storage": {"Backup Storage", "Block Storage", "File Storage", "Object Storage", "Storage Platforms", "Other (Storage)"},
}
NUMBER = re.compile(r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE]-?[0-9]+)?$")
MOMENT = re.compile(r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$")
UNIT = re.compile(r"^([A-Za-z]+-)?(Seconds|Minutes|Hours|Days|Months|Requests)$")


def row_faults(r):
    for c in NEVER_NULL:
        if r[c] == "":
            yield f"{c} is null"
    for c, v in r.items():
        if v in ("NULL", "null", "N/A", "None", "NaN") or v != v.strip():
            yield f"{c} is {v!r}"
    for c in NUMBERS:
        if r.get(c) and not NUMBER.match(r[c]):
            yield f"{c} is no number: {r[c]!r}"
    for c in MOMENTS:
        if not MOMENT.match(r[c]):
            yield f"{c} is no moment: {r[c]!r}"
    for c, allowed in VALUES.items():
        if c in r and r[c] not in allowed:
            yield f"{c} may not be {r[c]!r}"
    if r["ServiceSubcategory"] not in SUBCATEGORIES.get(r["ServiceCategory"], ()):
        yield f"ServiceSubcategory {r['ServiceSubcategory']!r} is none of {r['ServiceCategory']}"
    for c in ("ConsumedUnit", "PricingUnit"):
        if r[c] and not UNIT.match(r[c]):
            yield f"{c} is no unit: {r[c]!r}"
    yield from relations(r)


def relations(r):
    at = {c: datetime.datetime.strptime(r[c], "%Y-%m-%dT%H:%M:%SZ") for c in MOMENTS if MOMENT.match(r[c])}
    if len(at) == 4:
        start, end = at["BillingPeriodStart"], at["BillingPeriodEnd"]
        if start.day != 1 or (start + datetime.timedelta(days=32)).replace(day=1) != end or start.time() != datetime.time():
            yield "the billing period is no month"
        if not at["ChargePeriodStart"] < at["ChargePeriodEnd"]:
            yield "the charge's period is empty"
        if r["ChargeClass"] == "" and not (start <= at["ChargePeriodStart"] and at["ChargePeriodEnd"] <= end):
            yield "the charge lies outside its billing period and is no correction"
    usage = r["ChargeCategory"] == "Usage"
    if usage and r["ChargeClass"] == "":
        for c in ("PricingQuantity", "PricingUnit", "ListUnitPrice", "ContractedUnitPrice", "SkuId", "SkuPriceId", "PricingCategory",
                  "ConsumedQuantity", "ConsumedUnit"):
            if r[c] == "":
                yield f"{c} is null on usage"
    if not usage and (r["ConsumedQuantity"] or r["ConsumedUnit"]):
        yield "only usage is consumed"
    if usage and D(r["BilledCost"]) < 0 and r["ChargeClass"] == "":
        yield "usage costs less than nothing"
    for q, u in (("PricingQuantity", "PricingUnit"), ("ConsumedQuantity", "ConsumedUnit")):
        if bool(r[q]) != bool(r[u]):
            yield f"{q} and {u} go together"
    for price, cost in (("ListUnitPrice", "ListCost"), ("ContractedUnitPrice", "ContractedCost")):
        if r[price] and r["PricingQuantity"] and abs(D(r[price]) * D(r["PricingQuantity"]) - D(r[cost])) > D("0.0000000011"):
            yield f"{price} x PricingQuantity is not {cost}"
    if r["Tags"]:
        tags = json.loads(r["Tags"])
        if not isinstance(tags, dict) or not all(isinstance(v, str) for v in tags.values()):
            yield "Tags is no object of texts"


def main():
    faults = rows = 0
    billed = D(0)
    reader = csv.DictReader(sys.stdin)
    names = reader.fieldnames or []
    for c in PRESENT:
        if c not in names:
            print(f"column {c} is missing")
            faults += 1
    for c in names:
        if c not in KNOWN and not c.startswith("x_"):
            print(f"column {c} is not of FOCUS and does not begin with x_")
            faults += 1
    if faults or len(set(names)) != len(names):
        return 1
    ids = set()
    for r in reader:
        rows += 1
        billed += D(r["BilledCost"])
        found = list(row_faults(r))
        if None in r or None in r.values():
            found.append("has not as many fields as there are columns")
        if r["x_LineId"] in ids:
            found.append("is there twice")
        ids.add(r["x_LineId"])
        for f in found:
            print(f"row {rows} ({r['x_LineId']}): {f}")
        faults += len(found)
    print(f"{rows} rows, {billed} billed")
    return 0 if rows and not faults else 1


sys.exit(main())
