"""A bank with transfers: commands on stdin, balances at the end, refused commands counted."""
import sys

balance, refused = {}, 0
for line in sys.stdin:
    verb, *args = line.split()
    try:
        if verb == "open":
            if args[0] in balance:
                raise ValueError
            balance[args[0]] = 0
        elif verb == "deposit":
            balance[args[0]] += int(args[1])
        elif verb == "move":
            source, target, amount = args[0], args[1], int(args[2])
            if balance[source] < amount or target not in balance:
                raise ValueError
            balance[source] -= amount
            balance[target] += amount
        else:
            raise ValueError
    except (KeyError, ValueError, IndexError):
        refused += 1
for name in sorted(balance):
    print(name, balance[name])
print("refused", refused)
