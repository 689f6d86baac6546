from fractions import Fraction

DAILY = Fraction(1, 10000)


def discount(days):
    """What an amount due in so many days is worth today: an exact fraction."""
    if days < 0:
        raise ValueError("in the past")
    return 1 / (1 + DAILY) ** days
