"""Union-find with path halving: components, and the edge that closes the first cycle."""


class Sets:
    def __init__(self, n):
        self.parent = list(range(n))
        self.count = n

    def find(self, x):
        while self.parent[x] != x:
            self.parent[x] = self.parent[self.parent[x]]
            x = self.parent[x]
        return x

    def join(self, a, b):
        a, b = self.find(a), self.find(b)
        if a == b:
            return False
        self.parent[a] = b
        self.count -= 1
        return True


sets = Sets(6)
assert all(sets.join(a, b) for a, b in ((0, 1), (2, 3), (1, 3)))
assert sets.count == 3
assert not sets.join(0, 2)
assert sets.find(0) == sets.find(3) != sets.find(4)
chain = Sets(2000)
assert all(chain.join(i, i + 1) for i in range(1999)) and chain.count == 1
