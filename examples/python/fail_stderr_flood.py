"""The same on the other stream, then a clean exit."""
import sys

sys.stderr.write("warning: look here\n" * 20000)
print("ok")
