"""Arguments and environment arrive as given, spaces, quotes and emptiness included."""
import os
import sys

print(sys.argv[1:])
print(os.environ["GREETING"], "EMPTY" in os.environ and os.environ["EMPTY"] == "")
sys.exit(len(sys.argv[1:]))
