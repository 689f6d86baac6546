"""Length and one instance of a longest strictly increasing subsequence."""
from bisect import bisect_left


def lis(seq):
    tails, where, parent = [], [], [None] * len(seq)
    for i, x in enumerate(seq):
        k = bisect_left(tails, x)
        if k == len(tails):
            tails.append(x)
            where.append(i)
        else:
            tails[k], where[k] = x, i
        parent[i] = where[k - 1] if k else None
    out, i = [], where[-1] if where else None
    while i is not None:
        out.append(seq[i])
        i = parent[i]
    return out[::-1]


for seq, length in (([10, 9, 2, 5, 3, 7, 101, 18], 4), ([0, 1, 0, 3, 2, 3], 4), ([7] * 5, 1), ([], 0),
                    (list(range(20)), 20), (list(range(20, 0, -1)), 1)):
    got = lis(seq)
    assert len(got) == length, (seq, got)
    assert all(a < b for a, b in zip(got, got[1:]))
    rest = iter(seq)
    assert all(x in rest for x in got)
