"""Nobody gives this program any input: reading must end at once."""
import sys

text = sys.stdin.read()
print("read", len(text), "characters")
