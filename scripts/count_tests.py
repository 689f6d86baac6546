#!/usr/bin/env python3
"""Sum the results of CTest's JUnit files: count_tests.py --floor N FILE.xml...

A Criterion program counts by its own "Synthesis" line; any other test counts as one. A program that CTest holds for
failed although its own line shows no failure (killed for time, a sanitizer's report) counts as one crash more. The
last line printed is the total in Criterion's form. Exit status 1 when something failed, when a file is missing, or when
fewer than N tests ran, so that tests that silently vanish are noticed.
"""
import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree

SYNTHESIS = re.compile(r"Synthesis: Tested: (\d+) \| Passing: (\d+) \| Failing: (\d+) \| Crashing: (\d+)")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--floor", type=int, default=1, metavar="N")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    total, bad = [0, 0, 0, 0], []
    for path in options.files:
        try:
            cases = ElementTree.parse(path).getroot().iter("testcase")
        except (OSError, ElementTree.ParseError) as error:
            bad.append(f"{path}: {error}")
            continue
        for case in cases:
            skipped = case.find("skipped")
            if skipped is not None and (skipped.get("message") or "").startswith("SKIP_"):
                print(f"SKIPPED {case.get('name')}: it said that it cannot run here")
                continue
            ok = case.get("status") == "run" and case.find("failure") is None
            lines = SYNTHESIS.findall(COLOURS.sub("", case.findtext("system-out") or ""))
            counts = [sum(int(line[i]) for line in lines) for i in range(4)]
            if not lines:
                counts = [1, int(ok), 0, int(not ok)]
            elif not ok and counts[2] + counts[3] == 0:
                counts[0] += 1
                counts[3] += 1
            if counts[0] == 0:
                bad.append(f"{case.get('name')}: ran no test")
            if not ok or counts[2] + counts[3]:
                bad.append(f"{case.get('name')}: {case.get('status')} ({counts[1]} of {counts[0]} passed)")
            total = [a + b for a, b in zip(total, counts)]
    if total[0] < options.floor:
        bad.append(f"only {total[0]} tests ran; at least {options.floor} are expected (scripts/test, floor)")
    for line in bad:
        print("FAILED", line)
    print("[====] Synthesis: Tested: {} | Passing: {} | Failing: {} | Crashing: {}".format(*total))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
