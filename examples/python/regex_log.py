"""Pick a web log apart with one regular expression; count status classes and the slowest path."""
import re
import sys
from collections import Counter

LINE = re.compile(r'(?P<host>\S+) \S+ \S+ \[(?P<when>[^]]+)\] "(?P<verb>[A-Z]+) (?P<path>\S+)[^"]*" '
                  r'(?P<status>\d{3}) (?P<ms>\d+)')
classes, slowest, bad = Counter(), (-1, ""), 0
for line in sys.stdin:
    match = LINE.match(line)
    if not match:
        bad += 1
        continue
    classes[match["status"][0] + "xx"] += 1
    slowest = max(slowest, (int(match["ms"]), match["path"]))
for name in sorted(classes):
    print(name, classes[name])
print("slowest", slowest[1], slowest[0])
print("unreadable", bad)
