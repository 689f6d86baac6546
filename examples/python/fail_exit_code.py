"""Prints the right answer and then says that it failed."""
import sys

print(42)
sys.exit(3)
