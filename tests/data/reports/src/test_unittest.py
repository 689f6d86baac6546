import unittest


class Sample(unittest.TestCase):
    def test_passes(self):
        pass

    def test_fails(self):
        self.assertEqual(1, 2)

    @unittest.skip("not today")
    def test_skipped(self):
        pass
