"""Primes below each bound: how many, the last one, and the widest gap."""
import sys

bounds = list(map(int, sys.stdin.read().split()))
top = max(bounds)
prime = bytearray([1]) * top
prime[0:2] = b"\0\0"
for i in range(2, int(top ** 0.5) + 1):
    if prime[i]:
        prime[i * i::i] = bytes(len(range(i * i, top, i)))
primes = [i for i in range(top) if prime[i]]
for bound in bounds:
    below = [p for p in primes if p < bound]
    print(len(below), below[-1], max((b - a for a, b in zip(below, below[1:])), default=0))
