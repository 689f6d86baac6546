"""Next permutation in place, against itertools; and the n-th permutation without listing them."""
from itertools import permutations
from math import factorial


def advance(items):
    i = len(items) - 2
    while i >= 0 and items[i] >= items[i + 1]:
        i -= 1
    if i >= 0:
        j = len(items) - 1
        while items[j] <= items[i]:
            j -= 1
        items[i], items[j] = items[j], items[i]
    items[i + 1:] = reversed(items[i + 1:])
    return i >= 0


def nth(items, n):
    items, out = sorted(items), []
    while items:
        step = factorial(len(items) - 1)
        out.append(items.pop(n // step))
        n %= step
    return out


row = [1, 2, 3, 4]
for expected in permutations([1, 2, 3, 4]):
    assert tuple(row) == expected
    advance(row)
assert row == [1, 2, 3, 4]
twins = [1, 1, 2]
assert advance(twins) and twins == [1, 2, 1]
assert "".join(nth("0123456789", 999999)) == "2783915460"
