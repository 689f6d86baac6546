"""Two indices whose values add up to the target; the pair with the smallest second index."""


def two_sum(nums, target):
    seen = {}
    for i, value in enumerate(nums):
        if target - value in seen:
            return seen[target - value], i
        seen[value] = i
    return None


assert two_sum([2, 7, 11, 15], 9) == (0, 1)
assert two_sum([3, 2, 4], 6) == (1, 2)
assert two_sum([3, 3], 6) == (0, 1)
assert two_sum([1, 2, 3], 100) is None
assert two_sum([-5, 0, 5, 10], 5) == (0, 3) or two_sum([-5, 0, 5, 10], 5) == (1, 2)
assert two_sum([], 0) is None
