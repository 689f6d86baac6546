"""Keeps everything."""
kept = []
while True:
    kept.append(bytearray(b"x") * 4_000_000)
