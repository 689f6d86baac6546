"""Data classes: ordering, frozen records, defaults and a small inventory."""
from dataclasses import FrozenInstanceError, asdict, dataclass, field, replace


@dataclass(frozen=True, order=True)
class Item:
    price_cents: int
    name: str = field(compare=False)


@dataclass
class Stock:
    items: dict = field(default_factory=dict)

    def add(self, item, n=1):
        if n <= 0:
            raise ValueError("count must be positive")
        self.items[item] = self.items.get(item, 0) + n

    @property
    def value_cents(self):
        return sum(item.price_cents * n for item, n in self.items.items())


nail, saw = Item(5, "nail"), Item(1999, "saw")
stock = Stock()
stock.add(nail, 200)
stock.add(saw)
stock.add(nail)
assert stock.value_cents == 201 * 5 + 1999
assert max(stock.items) is saw and nail < saw
assert asdict(replace(nail, name="tack")) == {"price_cents": 5, "name": "tack"}
assert Stock().items is not Stock().items
for bad in (lambda: stock.add(saw, 0), lambda: setattr(nail, "name", "x")):
    try:
        bad()
        raise SystemExit("accepted")
    except (ValueError, FrozenInstanceError):
        pass
