import os
import unittest

MARK = "touched-by-a-shard"


class Alone(unittest.TestCase):
    """A shard's files are its own: whatever another one leaves behind is not here."""

    def test_nobody_was_here(self):
        self.assertFalse(os.path.exists(MARK))
        with open(MARK, "w", encoding="ascii") as f:
            f.write("x")

    def test_is_told_its_shard(self):
        index, total = int(os.environ["BROOD_SHARD_INDEX"]), int(os.environ["BROOD_SHARD_TOTAL"])
        self.assertTrue(0 <= index < total)
        self.assertEqual(int(os.environ["CI_NODE_INDEX"]), index + 1)
