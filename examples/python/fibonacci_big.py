"""Fibonacci numbers by fast doubling, checked by identities and against the plain loop."""


def fib(n):
    def pair(k):
        if k == 0:
            return 0, 1
        a, b = pair(k // 2)
        c, d = a * (2 * b - a), a * a + b * b
        return (d, c + d) if k % 2 else (c, d)
    return pair(n)[0]


a, b = 0, 1
for n in range(200):
    assert fib(n) == a
    a, b = b, a + b
assert fib(100) == 354224848179261915075
assert len(str(fib(5000))) == 1045
assert fib(1000) ** 2 - fib(999) * fib(1001) == -1
