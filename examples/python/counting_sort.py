"""Read n and n small integers; print them in order, then how often each occurs."""
import sys

n, *values = map(int, sys.stdin.read().split())
assert n == len(values)
low, high = min(values), max(values)
counts = [0] * (high - low + 1)
for v in values:
    counts[v - low] += 1
print(*(low + i for i, c in enumerate(counts) for _ in range(c)))
for i, c in enumerate(counts):
    if c:
        print(low + i, c)
