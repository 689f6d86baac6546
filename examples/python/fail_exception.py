"""The average of no numbers."""


def average(numbers):
    return sum(numbers) / len(numbers)


assert average([1, 2, 3]) == 2
assert average([]) == 0
