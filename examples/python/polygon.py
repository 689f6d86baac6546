"""Area and perimeter of simple polygons, shoelace formula; answers compared as floats."""
import math
import sys

for line in sys.stdin:
    numbers = list(map(float, line.split()))
    points = list(zip(numbers[::2], numbers[1::2]))
    area = length = 0.0
    for (x1, y1), (x2, y2) in zip(points, points[1:] + points[:1]):
        area += x1 * y2 - x2 * y1
        length += math.hypot(x2 - x1, y2 - y1)
    print(f"{abs(area) / 2:.12f} {length:.12f}")
