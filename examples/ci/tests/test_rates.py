import json
import unittest
from fractions import Fraction

from ledger import rates


class Rates(unittest.TestCase):
    def test_today(self):
        self.assertEqual(rates.discount(0), 1)

    def test_falls(self):
        values = [rates.discount(days) for days in range(60)]
        self.assertEqual(values, sorted(values, reverse=True))

    def test_as_the_setup_computed(self):
        with open("rates.json", encoding="ascii") as f:
            table = json.load(f)
        self.assertEqual(len(table), 366)
        self.assertEqual(Fraction(table["30"]), rates.discount(30))
