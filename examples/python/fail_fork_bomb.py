"""Forks until it is refused; the children stay."""
import os
import time

while True:
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
