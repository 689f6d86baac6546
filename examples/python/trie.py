"""Prefix tree: words by prefix, and the shortest prefix that is unique."""


class Trie:
    def __init__(self):
        self.next, self.words, self.end = {}, 0, False

    def add(self, word):
        node = self
        for c in word:
            node = node.next.setdefault(c, Trie())
            node.words += 1
        node.end = True

    def below(self, prefix):
        node = self
        for c in prefix:
            if c not in node.next:
                return []
            node = node.next[c]
        out, todo = [], [(prefix, node)]
        while todo:
            text, node = todo.pop()
            if node.end:
                out.append(text)
            todo += [(text + c, after) for c, after in node.next.items()]
        return sorted(out)

    def unique(self, word):
        node = self
        for i, c in enumerate(word, 1):
            node = node.next[c]
            if node.words == 1:
                return word[:i]
        return word


trie = Trie()
for word in ("car", "card", "care", "cat", "dog", "do"):
    trie.add(word)
assert trie.below("car") == ["car", "card", "care"]
assert trie.below("x") == [] and len(trie.below("")) == 6
assert trie.unique("dog") == "dog" and trie.unique("cat") == "cat" and trie.unique("care") == "care"
