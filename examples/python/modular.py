"""Extended Euclid, modular inverse, Chinese remainder and a toy RSA."""


def egcd(a, b):
    if b == 0:
        return a, 1, 0
    g, x, y = egcd(b, a % b)
    return g, y, x - a // b * y


def inverse(a, m):
    g, x, _ = egcd(a % m, m)
    if g != 1:
        raise ValueError("no inverse")
    return x % m


def crt(pairs):
    value, modulus = 0, 1
    for r, m in pairs:
        value += (r - value) * inverse(modulus, m) % m * modulus
        modulus *= m
    return value % modulus


assert egcd(240, 46)[0] == 2
assert inverse(3, 11) == 4
assert inverse(17, 3120) == 2753 == pow(17, -1, 3120)
assert crt([(2, 3), (3, 5), (2, 7)]) == 23
p, q, e = 2 ** 61 - 1, 2 ** 89 - 1, 65537
d = inverse(e, (p - 1) * (q - 1))
assert pow(pow(20240229, e, p * q), d, p * q) == 20240229
try:
    inverse(6, 9)
    raise SystemExit("inverse of a zero divisor")
except ValueError:
    pass
