"""Towers of Hanoi: print the moves for each height, then how many there were."""
import sys


def hanoi(n, source, target, spare):
    if n == 0:
        return []
    return hanoi(n - 1, source, spare, target) + [f"{n}:{source}{target}"] + hanoi(n - 1, spare, target, source)


for word in sys.stdin.read().split():
    moves = hanoi(int(word), "A", "C", "B")
    print(*moves)
    print(len(moves))
