"""Aware times with fixed offsets: the same instant, parsing and durations over midnight."""
from datetime import datetime, timedelta, timezone

tokyo, lima = timezone(timedelta(hours=9)), timezone(timedelta(hours=-5))
start = datetime(2024, 2, 29, 23, 30, tzinfo=tokyo)
assert start.astimezone(timezone.utc).isoformat() == "2024-02-29T14:30:00+00:00"
assert start == datetime(2024, 2, 29, 9, 30, tzinfo=lima)
assert (start + timedelta(hours=1)).date().isoformat() == "2024-03-01"
assert datetime.fromisoformat("2024-01-01T00:00:00+05:30").utctimetuple().tm_hour == 18
assert datetime.fromtimestamp(0, timezone.utc).year == 1970
assert datetime.strptime("17 May 2024", "%d %B %Y").isocalendar()[:2] == (2024, 20)
