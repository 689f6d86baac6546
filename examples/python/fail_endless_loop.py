"""Collatz with a wrong step: 5 -> 10 -> 5 -> ... never ends."""
n = 5
while n != 1:
    n = n // 2 if n % 2 == 0 else n * 2
print("done")
