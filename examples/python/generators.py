"""Lazy pipelines: primes without a bound, sliding windows, send() and a round robin."""
from itertools import count, islice


def primes():
    multiples = {}
    for n in count(2):
        step = multiples.pop(n, None)
        if step is None:
            yield n
            step = n
            after = n * n
        else:
            after = n + step
        while after in multiples:
            after += step
        multiples[after] = step


def windows(items, size):
    window = []
    for item in items:
        window = (window + [item])[-size:]
        if len(window) == size:
            yield tuple(window)


def average():
    total = n = 0
    mean = None
    while True:
        total += yield mean
        n += 1
        mean = total / n


def round_robin(*sources):
    sources = [iter(s) for s in sources]
    while sources:
        for source in list(sources):
            try:
                yield next(source)
            except StopIteration:
                sources.remove(source)


assert list(islice(primes(), 12)) == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37]
assert list(windows("abcd", 3)) == [("a", "b", "c"), ("b", "c", "d")]
mean = average()
next(mean)
assert [mean.send(x) for x in (10, 20, 60)] == [10, 15, 30]
assert "".join(round_robin("ABC", "D", "EF")) == "ADEBFC"
