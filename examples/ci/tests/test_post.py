import unittest

from ledger.book import Book


class Post(unittest.TestCase):
    def setUp(self):
        self.book = Book()

    def test_moves_money(self):
        self.book.post("cash", "rent", 90000)
        self.assertEqual(self.book.balance("cash"), -90000)
        self.assertEqual(self.book.balance("rent"), 90000)

    def test_total_is_nothing(self):
        for i in range(1, 500):
            self.book.post("a%d" % (i % 7), "b%d" % (i % 5), i)
        self.assertEqual(self.book.total(), 0)

    def test_unknown_account(self):
        self.assertEqual(self.book.balance("nobody"), 0)
