"""Conway's game of life on a torus: print the board after the given number of steps."""
import sys

steps, *rows = sys.stdin.read().split()
height, width = len(rows), len(rows[0])
alive = {(r, c) for r in range(height) for c in range(width) if rows[r][c] == "#"}
for _ in range(int(steps)):
    near = {}
    for r, c in alive:
        for dr in (-1, 0, 1):
            for dc in (-1, 0, 1):
                if dr or dc:
                    cell = (r + dr) % height, (c + dc) % width
                    near[cell] = near.get(cell, 0) + 1
    alive = {cell for cell, n in near.items() if n == 3 or n == 2 and cell in alive}
for r in range(height):
    print("".join("#" if (r, c) in alive else "." for c in range(width)))
