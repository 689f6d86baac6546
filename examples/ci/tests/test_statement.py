import os
import unittest

from ledger.book import Book


class Statement(unittest.TestCase):
    def test_running_balance(self):
        book = Book()
        book.post("cash", "rent", 500)
        book.post("salary", "cash", 2000)
        book.post("salary", "savings", 10)
        self.assertEqual(book.statement("cash"), ["-5.00 -5.00", "20.00 15.00"])

    def test_empty(self):
        wanted = ["something"] if os.environ.get("LEDGER_BREAK") else []
        self.assertEqual(Book().statement("cash"), wanted)
