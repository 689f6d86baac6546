"""Run-length coding, both ways."""
import re
from itertools import groupby


def encode(text):
    return "".join(f"{len(list(run))}{char}" for char, run in groupby(text))


def decode(code):
    return "".join(char * int(count) for count, char in re.findall(r"(\d+)(\D)", code))


assert encode("WWWWWWWWWWWWBWWWW") == "12W1B4W"
assert encode("") == "" and decode("") == ""
for text in ("abc", "aaa", "zz  top!!", "x" * 1000, "\n\n\t"):
    assert decode(encode(text)) == text
