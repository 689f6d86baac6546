"""Days between dates, week days, leap years and the last Friday of a month."""
import sys
from calendar import isleap, monthrange
from datetime import date, timedelta

for line in sys.stdin:
    first, second = map(date.fromisoformat, line.split())
    end = second.replace(day=monthrange(second.year, second.month)[1])
    friday = end - timedelta(days=(end.weekday() - 4) % 7)
    print((second - first).days, first.strftime("%a"), "leap" if isleap(first.year) else "common", friday)
