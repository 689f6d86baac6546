"""Group the words that are anagrams of one another."""
from collections import defaultdict


def groups(words):
    found = defaultdict(list)
    for word in words:
        found["".join(sorted(word.lower()))].append(word)
    return sorted(sorted(g) for g in found.values())


assert groups(["eat", "tea", "tan", "ate", "nat", "bat"]) == [["ate", "eat", "tea"], ["bat"], ["nat", "tan"]]
assert groups([]) == []
assert groups([""]) == [[""]]
assert groups(["Listen", "Silent", "enlist"]) == [["Listen", "Silent", "enlist"]]
assert groups(["ö", "o"]) == [["o"], ["ö"]]
