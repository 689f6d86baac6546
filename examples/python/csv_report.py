"""Sales by region from CSV with quoted fields, as a table sorted by total."""
import csv
import sys
from collections import Counter
from decimal import Decimal

totals, rows = Counter(), 0
for row in csv.DictReader(sys.stdin):
    totals[row["region"]] += Decimal(row["price"]) * int(row["count"])
    rows += 1
for region, total in sorted(totals.items(), key=lambda item: (-item[1], item[0])):
    print(f"{region:<16}{total:>10.2f}")
print(f"{rows} rows")
