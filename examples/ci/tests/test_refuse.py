import unittest

from ledger.book import Book


class Refuse(unittest.TestCase):
    def test_nothing(self):
        self.assertRaises(ValueError, Book().post, "a", "b", 0)

    def test_negative(self):
        self.assertRaises(ValueError, Book().post, "a", "b", -1)

    def test_itself(self):
        self.assertRaises(ValueError, Book().post, "a", "a", 1)

    @unittest.skip("currencies are not there yet")
    def test_other_currency(self):
        self.fail()
