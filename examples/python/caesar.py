"""Shift the letters of each line by its leading number, keep case and everything else."""
import sys


def shift(text, by):
    out = []
    for c in text:
        if c.isascii() and c.isalpha():
            base = ord("a") if c.islower() else ord("A")
            c = chr((ord(c) - base + by) % 26 + base)
        out.append(c)
    return "".join(out)


for line in sys.stdin:
    by, text = line.rstrip("\n").split(" ", 1)
    print(shift(text, int(by)))
