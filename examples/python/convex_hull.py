"""Andrew's monotone chain, collinear points left out."""


def cross(o, a, b):
    return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])


def half(points):
    chain = []
    for p in points:
        while len(chain) > 1 and cross(chain[-2], chain[-1], p) <= 0:
            chain.pop()
        chain.append(p)
    return chain[:-1]


def hull(points):
    points = sorted(set(points))
    return points if len(points) < 3 else half(points) + half(points[::-1])


assert hull([(0, 0), (2, 0), (2, 2), (0, 2), (1, 1), (1, 0)]) == [(0, 0), (2, 0), (2, 2), (0, 2)]
assert hull([(1, 1), (1, 1)]) == [(1, 1)]
assert hull([(0, 0), (1, 1), (2, 2)]) == [(0, 0), (2, 2)]
circle = [(x, y) for x in range(-5, 6) for y in range(-5, 6) if x * x + y * y <= 25]
assert len(hull(circle)) == 12
