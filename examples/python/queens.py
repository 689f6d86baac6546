"""Eight queens by backtracking: number of solutions for boards of 1 to 6."""


def queens(n, row=0, columns=0, up=0, down=0):
    if row == n:
        return 1
    found = 0
    free = ~(columns | up | down) & ((1 << n) - 1)
    while free:
        bit = free & -free
        free ^= bit
        found += queens(n, row + 1, columns | bit, (up | bit) << 1, (down | bit) >> 1)
    return found


assert [queens(n) for n in range(1, 7)] == [1, 0, 0, 2, 10, 4]
