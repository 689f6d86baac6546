"""0/1 knapsack. Several cases: n and capacity, then n lines of weight and value; print the best value of each."""
import sys


def best(items, capacity):
    table = [0] * (capacity + 1)
    for weight, value in items:
        for c in range(capacity, weight - 1, -1):
            table[c] = max(table[c], table[c - weight] + value)
    return table[capacity]


words = iter(map(int, sys.stdin.read().split()))
for _ in range(next(words)):
    n, capacity = next(words), next(words)
    print(best([(next(words), next(words)) for _ in range(n)], capacity))
