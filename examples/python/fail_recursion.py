"""The base case is never reached."""


def depth(n):
    return depth(n + 1) + 1


print(depth(0))
