"""Running median with two heaps."""
import heapq
import sys

low, high = [], []
for word in sys.stdin.read().split():
    heapq.heappush(low, -heapq.heappushpop(high, float(word)))
    if len(low) > len(high):
        heapq.heappush(high, -heapq.heappop(low))
    print(high[0] if len(high) > len(low) else (high[0] - low[0]) / 2)
