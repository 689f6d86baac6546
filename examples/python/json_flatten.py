"""Flatten nested JSON to dotted paths, and put it together again."""
import json


def flatten(value, path=""):
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from flatten(below, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for i, below in enumerate(value):
            yield from flatten(below, f"{path}[{i}]")
    else:
        yield path, value


document = json.loads('{"a": 1, "b": {"c": [true, null, {"d": "\\u20ac"}], "e": {}}, "f": [], "g": -1.5e3}')
flat = dict(flatten(document))
assert flat == {"a": 1, "b.c[0]": True, "b.c[1]": None, "b.c[2].d": "€", "b.e": {}, "f": [], "g": -1500.0}
assert list(flatten(5)) == [("", 5)]
assert json.loads(json.dumps(document)) == document
try:
    json.loads('{"a": 1,}')
    raise SystemExit("trailing comma accepted")
except json.JSONDecodeError as error:
    assert error.lineno == 1
