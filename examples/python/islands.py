"""Count the islands of a map and give the size of the largest; flood fill without recursion."""
import sys

grid = [line.strip() for line in sys.stdin if line.strip()]
seen, sizes = set(), []
for row, line in enumerate(grid):
    for col, cell in enumerate(line):
        if cell != "#" or (row, col) in seen:
            continue
        seen.add((row, col))
        todo, size = [(row, col)], 0
        while todo:
            r, c = todo.pop()
            size += 1
            for near in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
                if (0 <= near[0] < len(grid) and 0 <= near[1] < len(line) and near not in seen
                        and grid[near[0]][near[1]] == "#"):
                    seen.add(near)
                    todo.append(near)
        sizes.append(size)
print(len(sizes), max(sizes, default=0))
