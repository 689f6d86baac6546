"""Square and cube roots by Newton's method; compared with a relative tolerance."""
import sys


def root(value, degree):
    x = max(value, 1.0)
    for _ in range(200):
        after = ((degree - 1) * x + value / x ** (degree - 1)) / degree
        if abs(after - x) <= 1e-15 * x:
            break
        x = after
    return x


for word in sys.stdin.read().split():
    print(repr(root(float(word), 2)), repr(root(float(word), 3)))
