import re

FORM = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{2}))?")


def parse(text):
    """'12.34' -> 1234."""
    match = FORM.fullmatch(text)
    if not match:
        raise ValueError("not an amount: %r" % text)
    sign, whole, cents = match.groups()
    value = int(whole) * 100 + int(cents or 0)
    return -value if sign else value


def show(cents):
    sign = "-" if cents < 0 else ""
    return "%s%d.%02d" % (sign, abs(cents) // 100, abs(cents) % 100)


def split(cents, parts):
    """Shares that differ by at most a cent and add up to all of it."""
    if parts < 1:
        raise ValueError("at least one part")
    base, rest = divmod(cents, parts)
    return [base + (i < rest) for i in range(parts)]
