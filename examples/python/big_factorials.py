"""Big integers: factorials, their digit sums and trailing zeros."""
import math
import sys

for word in sys.stdin.read().split():
    n = int(word)
    digits = str(math.factorial(n))
    print(n, len(digits), sum(map(int, digits)), len(digits) - len(digits.rstrip("0")))
