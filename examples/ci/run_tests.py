"""Run the unittest files named on the command line (none: all of tests/) and write JUnit XML.

Exit status 0 when all passed, 1 when not, as a test runner does.
"""
import argparse
import glob
import importlib
import os
import sys
import time
import unittest
from xml.sax.saxutils import escape, quoteattr


class Result(unittest.TextTestResult):
    """Keeps a row a test: (test, seconds, kind, message, text)."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.rows = []

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def row(self, test, kind, message="", text=""):
        began = getattr(self, "began", None)
        self.rows.append((test, time.monotonic() - began if began else 0.0, kind, message, text))

    def bad(self, test, kind, err):
        message = "%s: %s" % (err[0].__name__, err[1])
        self.row(test, kind, message.split("\n")[0], self._exc_info_to_string(err, test))

    def addSuccess(self, test):
        super().addSuccess(test)
        self.row(test, "passed")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.bad(test, "failure", err)

    def addError(self, test, err):
        super().addError(test, err)
        self.bad(test, "error", err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.row(test, "skipped", reason)


def element(row):
    test, seconds, kind, message, text = row
    parts = test.id().rsplit(".", 1)
    head = "<testcase classname=%s name=%s time=\"%.6f\"" % (
        quoteattr(parts[0]), quoteattr(parts[-1]), seconds)
    if kind == "passed":
        return head + "/>"
    return "%s><%s message=%s>%s</%s></testcase>" % (head, kind, quoteattr(message), escape(text), kind)


def write_xml(path, rows):
    kinds = [row[2] for row in rows]
    with open(path, "w", encoding="utf-8") as f:
        f.write("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n")
        f.write("<testsuite name=\"ledger\" tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\">\n"
                % (len(kinds), kinds.count("failure"), kinds.count("error"), kinds.count("skipped")))
        for row in rows:
            f.write(element(row) + "\n")
        f.write("</testsuite>\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--xml")
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()
    files = args.files or sorted(glob.glob("tests/test_*.py"))
    sys.path.insert(0, os.getcwd())
    suite = unittest.TestSuite()
    for path in files:
        module = importlib.import_module(path[:-len(".py")].replace("/", "."))
        suite.addTests(unittest.defaultTestLoader.loadTestsFromModule(module))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=Result).run(suite)
    if args.xml:
        write_xml(args.xml, result.rows)
    os.makedirs("logs", exist_ok=True)
    with open("logs/files.txt", "w", encoding="utf-8") as f:
        f.write("\n".join(files) + "\n")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
