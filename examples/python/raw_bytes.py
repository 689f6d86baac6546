"""Every byte value on stdout, NUL and bytes that are no UTF-8 included; compared exactly."""
import sys

sys.stdout.buffer.write(bytes(range(256)) + b"\xff\xfe\x00end")
