"""Matrices with a class of operators: product, power, transpose, determinant."""
from fractions import Fraction


class Matrix:
    def __init__(self, rows):
        self.rows = [list(r) for r in rows]

    def __eq__(self, other):
        return self.rows == other.rows

    def __matmul__(self, other):
        return Matrix([[sum(a * b for a, b in zip(row, col)) for col in zip(*other.rows)] for row in self.rows])

    def __pow__(self, n):
        out = Matrix([[int(i == j) for j in range(len(self.rows))] for i in range(len(self.rows))])
        base = self
        while n:
            if n & 1:
                out = out @ base
            base, n = base @ base, n >> 1
        return out

    @property
    def T(self):
        return Matrix(zip(*self.rows))

    def det(self):
        rows, sign, out = [[Fraction(x) for x in r] for r in self.rows], 1, Fraction(1)
        for i in range(len(rows)):
            pivot = next((r for r in range(i, len(rows)) if rows[r][i]), None)
            if pivot is None:
                return 0
            if pivot != i:
                rows[i], rows[pivot], sign = rows[pivot], rows[i], -sign
            out *= rows[i][i]
            for r in range(i + 1, len(rows)):
                f = rows[r][i] / rows[i][i]
                rows[r] = [x - f * y for x, y in zip(rows[r], rows[i])]
        return out * sign


fib = Matrix([[1, 1], [1, 0]])
assert (fib ** 90).rows[0][1] == 2880067194370816120
assert Matrix([[1, 2, 3], [4, 5, 6]]).T == Matrix([[1, 4], [2, 5], [3, 6]])
assert Matrix([[2, 0, 1], [1, 3, 2], [1, 1, 4]]).det() == 18
assert Matrix([[0, 1], [1, 0]]).det() == -1
assert Matrix([[1, 2], [2, 4]]).det() == 0
