#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the skipped tests of the JUnit files of ctest and pytest with their reasons, then the totals of all files."""

import re
import sys
import xml.etree.ElementTree as ElementTree

# What GoogleTest prints after the place of a GTEST_SKIP().
REASON = re.compile(r"^.*: Skipped\n(?P<reason>.*)$", re.MULTILINE)


def skip_reason(case: ElementTree.Element) -> str:
    found = REASON.search(case.findtext("system-out") or "")
    if found:
        return found["reason"].strip()
    return case.find("skipped").get("message", "")


def main(paths: list[str]) -> None:
    passed = failed = 0
    skipped = []
    for path in paths:
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            if case.find("skipped") is not None:
                skipped.append(f"{case.get('name')}: {skip_reason(case)}")
            elif case.get("status", "run") == "run" and not case.findall("failure") + case.findall("error"):
                passed += 1
            else:
                failed += 1
    if skipped:
        print("skipped:")
        for line in sorted(skipped):
            print(f"  {line}")
    print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")


if __name__ == "__main__":
    main(sys.argv[1:])
