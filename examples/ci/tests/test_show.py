import unittest

from ledger import money


class Show(unittest.TestCase):
    def test_small(self):
        self.assertEqual(money.show(5), "0.05")

    def test_negative(self):
        self.assertEqual(money.show(-1234), "-12.34")

    def test_is_parsed_again(self):
        for cents in range(-2000, 2000, 7):
            self.assertEqual(money.parse(money.show(cents)), cents)
