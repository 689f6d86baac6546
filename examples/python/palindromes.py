"""Is the line a palindrome when only letters and digits count?"""
import sys

for line in sys.stdin:
    letters = [c.casefold() for c in line if c.isalnum()]
    print("yes" if letters == letters[::-1] else "no")
