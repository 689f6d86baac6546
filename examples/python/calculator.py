"""Arithmetic with + - * / and brackets: tokenizer and recursive descent. One expression a line."""
import re
import sys


def tokens(text):
    return re.findall(r"\d+\.\d+|\d+|[-+*/()]", text) + ["end"]


def evaluate(text):
    todo = tokens(text)

    def factor():
        token = todo.pop(0)
        if token == "(":
            value = total()
            if todo.pop(0) != ")":
                raise ValueError("bracket not closed")
            return value
        if token == "-":
            return -factor()
        return float(token)

    def product():
        value = factor()
        while todo[0] in "*/":
            value = value * factor() if todo.pop(0) == "*" else value / factor()
        return value

    def total():
        value = product()
        while todo[0] in "+-":
            value = value + product() if todo.pop(0) == "+" else value - product()
        return value

    value = total()
    if todo != ["end"]:
        raise ValueError("rubbish behind the expression")
    return value


for line in sys.stdin:
    try:
        print(f"{evaluate(line):.10g}")
    except (ValueError, ZeroDivisionError) as problem:
        print("error:", type(problem).__name__)
