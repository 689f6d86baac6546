"""Stable merge sort with a key, checked against sorted()."""
import random


def merge_sort(items, key=lambda x: x):
    if len(items) < 2:
        return list(items)
    mid = len(items) // 2
    left, right = merge_sort(items[:mid], key), merge_sort(items[mid:], key)
    out, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        if key(right[j]) < key(left[i]):
            out.append(right[j])
            j += 1
        else:
            out.append(left[i])
            i += 1
    return out + left[i:] + right[j:]


rng = random.Random(7)
for size in (0, 1, 2, 3, 10, 100, 257):
    data = [rng.randrange(50) for _ in range(size)]
    assert merge_sort(data) == sorted(data)
pairs = [(rng.randrange(5), n) for n in range(100)]
assert merge_sort(pairs, key=lambda p: p[0]) == sorted(pairs, key=lambda p: p[0])
