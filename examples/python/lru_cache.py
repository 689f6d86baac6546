"""A least-recently-used cache on OrderedDict, and functools' own statistics."""
from collections import OrderedDict
from functools import lru_cache


class Cache:
    def __init__(self, size):
        self.size, self.data = size, OrderedDict()

    def get(self, key, default=None):
        if key not in self.data:
            return default
        self.data.move_to_end(key)
        return self.data[key]

    def put(self, key, value):
        self.data[key] = value
        self.data.move_to_end(key)
        if len(self.data) > self.size:
            self.data.popitem(last=False)


cache = Cache(2)
cache.put(1, "a")
cache.put(2, "b")
assert cache.get(1) == "a"
cache.put(3, "c")
assert cache.get(2) is None and list(cache.data) == [1, 3]
cache.put(1, "z")
cache.put(4, "d")
assert cache.get(3, "gone") == "gone" and cache.get(1) == "z"


@lru_cache(maxsize=None)
def ways(n):
    return 1 if n < 2 else ways(n - 1) + ways(n - 2)


assert ways(80) == 37889062373143906
assert ways.cache_info().misses == 81
