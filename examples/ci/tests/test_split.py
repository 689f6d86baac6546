import unittest

from ledger import money


class Split(unittest.TestCase):
    def test_sum_is_kept(self):
        for cents in range(200):
            for parts in range(1, 12):
                self.assertEqual(sum(money.split(cents, parts)), cents)

    def test_nearly_equal(self):
        shares = money.split(1000, 7)
        self.assertLessEqual(max(shares) - min(shares), 1)

    def test_no_parts(self):
        self.assertRaises(ValueError, money.split, 10, 0)
