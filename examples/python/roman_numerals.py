"""Roman numerals, both ways, for 1 to 3999."""
PARTS = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"),
         (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))


def to_roman(n):
    out = ""
    for value, letters in PARTS:
        out += letters * (n // value)
        n %= value
    return out


def from_roman(text):
    values = [dict(I=1, V=5, X=10, L=50, C=100, D=500, M=1000)[c] for c in text]
    return sum(-v if v < after else v for v, after in zip(values, values[1:] + [0]))


assert to_roman(1994) == "MCMXCIV"
assert to_roman(3999) == "MMMCMXCIX"
assert to_roman(4) == "IV"
assert from_roman("XLII") == 42
for n in range(1, 4000, 7):
    assert from_roman(to_roman(n)) == n
