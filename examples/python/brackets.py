"""Are all brackets closed in the right order? If not: where is the first that is wrong?"""


def first_wrong(text):
    pairs, stack = {")": "(", "]": "[", "}": "{"}, []
    for i, c in enumerate(text):
        if c in pairs.values():
            stack.append((c, i))
        elif c in pairs:
            if not stack or stack.pop()[0] != pairs[c]:
                return i
    return stack[0][1] if stack else None


assert first_wrong("()[]{}") is None
assert first_wrong("([{}])") is None
assert first_wrong("(]") == 1
assert first_wrong("((a)") == 0
assert first_wrong("}") == 0
assert first_wrong("") is None
assert first_wrong("a" * 500 + "(" * 100 + ")" * 100) is None
