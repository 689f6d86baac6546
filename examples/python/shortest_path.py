"""Dijkstra. n nodes, m edges, source; then the edges. Distance of every node, or 'unreachable'."""
import heapq
import sys

words = iter(map(int, sys.stdin.read().split()))
n, m, source = next(words), next(words), next(words)
edges = [[] for _ in range(n)]
for _ in range(m):
    a, b, cost = next(words), next(words), next(words)
    edges[a].append((b, cost))
    edges[b].append((a, cost))
distance, queue = {}, [(0, source)]
while queue:
    so_far, node = heapq.heappop(queue)
    if node in distance:
        continue
    distance[node] = so_far
    for after, cost in edges[node]:
        if after not in distance:
            heapq.heappush(queue, (so_far + cost, after))
for node in range(n):
    print(node, distance.get(node, "unreachable"))
