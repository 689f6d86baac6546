"""Read JSON lines, skip the broken ones, print the sum by kind as one JSON object."""
import json
import sys

sums, broken = {}, []
for number, line in enumerate(sys.stdin, 1):
    try:
        record = json.loads(line)
        sums[record["kind"]] = sums.get(record["kind"], 0) + record["n"]
    except (json.JSONDecodeError, KeyError, TypeError):
        broken.append(number)
print(json.dumps({"sums": sums, "broken": broken}, sort_keys=True))
