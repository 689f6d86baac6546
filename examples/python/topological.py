"""Order of build steps by graphlib, and the cycle where there is none."""
from graphlib import CycleError, TopologicalSorter


def order(needs):
    sorter, out = TopologicalSorter(needs), []
    sorter.prepare()
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        out += ready
        sorter.done(*ready)
    return out


assert order({"app": {"lib", "main"}, "main": {"config"}, "lib": {"config"}, "config": ()}) == \
    ["config", "lib", "main", "app"]
assert order({}) == []
assert order({"b": {"a"}, "c": {"a"}, "d": {"b", "c"}}) == ["a", "b", "c", "d"]
try:
    order({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    raise SystemExit("cycle not seen")
except CycleError as error:
    assert set(error.args[1]) == {"a", "b", "c"}
