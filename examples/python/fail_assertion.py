"""Leap years by the rule of four alone."""


def leap(year):
    return year % 4 == 0


assert leap(2024) and not leap(2023)
assert leap(2000)
assert not leap(1900), "1900 was no leap year"
