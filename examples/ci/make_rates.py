"""The set-up: compute a table that the tests need. Runs once, whatever the number of shards."""
import json

from ledger import rates


def main():
    with open("rates.json", "w", encoding="ascii") as f:
        json.dump({str(days): str(rates.discount(days)) for days in range(366)}, f)


if __name__ == "__main__":
    main()
