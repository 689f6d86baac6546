"""Waits for something that never comes: little CPU, much time."""
import time

print("waiting", flush=True)
time.sleep(60)
