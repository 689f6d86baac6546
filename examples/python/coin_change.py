"""Number of ways to pay, and the fewest coins; -1 where it cannot be done."""
import sys

for line in sys.stdin:
    amount, *coins = map(int, line.split())
    ways = [1] + [0] * amount
    fewest = [0] + [None] * amount
    for coin in coins:
        for a in range(coin, amount + 1):
            ways[a] += ways[a - coin]
            if fewest[a - coin] is not None:
                fewest[a] = min(fewest[a] or amount + 1, fewest[a - coin] + 1)
    print(ways[amount], -1 if fewest[amount] is None else fewest[amount])
