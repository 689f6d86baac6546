"""The area of a circle with a school-book pi: not within the tolerance."""
import sys

for word in sys.stdin.read().split():
    print(3.14 * float(word) ** 2)
