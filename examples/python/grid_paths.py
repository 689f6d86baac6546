"""Breadth-first search through a maze; length of the shortest way for each of several mazes."""
from collections import deque


def shortest(maze):
    rows = maze.split()
    start = next((r, row.index("S")) for r, row in enumerate(rows) if "S" in row)
    queue, steps = deque([start]), {start: 0}
    while queue:
        r, c = queue.popleft()
        if rows[r][c] == "E":
            return steps[r, c]
        for near in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
            if (0 <= near[0] < len(rows) and 0 <= near[1] < len(rows[0]) and near not in steps
                    and rows[near[0]][near[1]] != "#"):
                steps[near] = steps[r, c] + 1
                queue.append(near)
    return None


assert shortest("S..E") == 3
assert shortest("S#E\n.#.\n...") == 6
assert shortest("S#E") is None
assert shortest("S.....\n.####.\n.#E.#.\n.####.\n......") is None
assert shortest("S.....\n.####.\n.#E.#.\n.#.##.\n......") == 8
assert shortest("S..\n##.\nE..") == 6
