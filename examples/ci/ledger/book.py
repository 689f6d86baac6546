from ledger import money


class Book:
    """Postings between accounts; their sum is always nothing."""

    def __init__(self):
        self.balances = {}
        self.postings = []

    def post(self, source, target, cents):
        if cents <= 0:
            raise ValueError("an amount must be positive")
        if source == target:
            raise ValueError("source and target are the same")
        self.balances[source] = self.balances.get(source, 0) - cents
        self.balances[target] = self.balances.get(target, 0) + cents
        self.postings.append((source, target, cents))

    def balance(self, account):
        return self.balances.get(account, 0)

    def total(self):
        return sum(self.balances.values())

    def statement(self, account):
        lines, at = [], 0
        for source, target, cents in self.postings:
            if account in (source, target):
                at += cents if account == target else -cents
                lines.append("%s %s" % (money.show(cents if account == target else -cents), money.show(at)))
        return lines
