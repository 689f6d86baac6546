"""Exact arithmetic: Egyptian fractions and harmonic numbers."""
from fractions import Fraction
from math import ceil


def egyptian(f):
    parts = []
    while f:
        n = ceil(1 / f)
        parts.append(n)
        f -= Fraction(1, n)
    return parts


assert egyptian(Fraction(2, 3)) == [2, 6]
assert egyptian(Fraction(6, 14)) == [3, 11, 231]
assert egyptian(Fraction(4, 13)) == [4, 18, 468]
assert sum(Fraction(1, n) for n in egyptian(Fraction(5, 121))) == Fraction(5, 121)
assert sum(Fraction(1, n) for n in range(1, 11)) == Fraction(7381, 2520)
assert Fraction("0.1") + Fraction("0.2") == Fraction(3, 10)
