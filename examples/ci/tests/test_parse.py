import unittest

from ledger import money


class Parse(unittest.TestCase):
    def test_whole(self):
        self.assertEqual(money.parse("12"), 1200)

    def test_cents(self):
        self.assertEqual(money.parse("12.34"), 1234)

    def test_negative(self):
        self.assertEqual(money.parse("-0.05"), -5)

    def test_refused(self):
        for text in ("", "1.", ".5", "1.234", "1,00", " 1", "1e3", "--1"):
            with self.assertRaises(ValueError):
                money.parse(text)
