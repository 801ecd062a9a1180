#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the JUnit files of ctest and pytest: lists the skipped tests with their reasons, then what each failed test
printed, then the totals of all files. The failures stand last: a reader of only the end of a log sees them.

A test is unsteady if it failed in NAME.xml and passed in NAME_again.xml: a defect to mend, of the test or of what it
tests, shown like a failure and counted apart. The exit code is 1 if a test failed otherwise.

With --again FILE it prints the pattern of ctest's --tests-regex for the tests that failed in FILE, or nothing if they
are more than the environment variable UNSTEADY_LIMIT (0) allows. ctest's own --rerun-failed counts tests before its
filters have their say: with a preset that leaves tests out it runs others than those that failed."""

import collections
import os
import pathlib
import re
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

# What GoogleTest prints after the place of a GTEST_SKIP().
REASON = re.compile(r"^.*: Skipped\n(?P<reason>.*)$", re.MULTILINE)
# ctest writes the value of a test's parameter behind its name.
PARAMETER = re.compile(r"\s+# GetParam\(\) = .*")
LINES_SHOWN = 80


def skip_reason(case: ElementTree.Element) -> str:
    found = REASON.search(case.findtext("system-out") or "")
    if found:
        return found["reason"].strip()
    return case.find("skipped").get("message", "")


def printed(case: ElementTree.Element) -> list[str]:
    """What a failed test printed; of a long text its beginning, where the first error is."""
    texts = [case.findtext("system-out"), *(element.text for element in case.findall("failure") + case.findall("error"))]
    lines = "\n".join(text.strip() for text in texts if text).splitlines()
    left_out = len(lines) - LINES_SHOWN
    return lines[:LINES_SHOWN] + ([f"... {left_out} more lines"] if left_out > 0 else [])


def cases_of(path: str) -> list[ElementTree.Element]:
    return list(ElementTree.parse(path).getroot().iter("testcase"))


def name_of(case: ElementTree.Element) -> str:
    return PARAMETER.sub("", case.get("name"))


def key_of(case: ElementTree.Element) -> tuple[str, str]:
    """pytest names a test within its module only."""
    return case.get("classname", ""), name_of(case)


def has_passed(case: ElementTree.Element) -> bool:
    return case.get("status", "run") == "run" and not case.findall("failure") + case.findall("error")


def failed_of(path: str) -> list[ElementTree.Element]:
    return [case for case in cases_of(path) if case.find("skipped") is None and not has_passed(case)]


def passed_again(path: str) -> set[tuple[str, str]]:
    again = pathlib.Path(path.removesuffix(".xml") + "_again.xml")
    return {key_of(case) for case in cases_of(str(again)) if has_passed(case)} if again.exists() else set()


def pattern_again(path: str) -> str:
    failed = [name_of(case) for case in failed_of(path)]
    if not 0 < len(failed) <= int(os.environ.get("UNSTEADY_LIMIT", "0")):
        return ""
    names = (re.sub(r"([][.*+?()^$|\\])", r"\\\1", name) for name in failed)
    return f"^({'|'.join(names)})($| )"


def summary(paths: list[str]) -> tuple[list[str], bool]:
    """The lines, and whether no test failed."""
    passed = 0
    skipped: collections.Counter[str] = collections.Counter()
    shown: dict[str, list[str]] = {"unsteady": [], "failed": []}
    counts: collections.Counter[str] = collections.Counter()
    for path in paths:
        steady_failures = {key_of(case) for case in failed_of(path)} - passed_again(path)
        for case in cases_of(path):
            name = name_of(case)
            if case.find("skipped") is not None:
                skipped[f"{name}: {skip_reason(case)}"] += 1
            elif has_passed(case):
                passed += 1
            else:
                kind = "failed" if key_of(case) in steady_failures else "unsteady"
                counts[kind] += 1
                shown[kind] += [f"{kind}: {name} ({path})", *(f"  {line}" for line in printed(case))]
    lines = ["skipped:"] if skipped else []
    lines += [f"  {line}" + (f" ({times} times)" if times > 1 else "") for line, times in sorted(skipped.items())]
    unsteady = f"{counts['unsteady']} unsteady (failed, then passed when run again), " if counts["unsteady"] else ""
    totals = f"{passed} passed, {counts['failed']} failed, {unsteady}{skipped.total()} skipped"
    return [*lines, *shown["unsteady"], *shown["failed"], totals], counts["failed"] == 0


def self_test() -> None:
    def results(**status: str) -> str:
        cases = "".join(
            f'<testcase name="{name}" status="{value}">'
            + ("<failure/>" if value == "fail" else "")
            + "<system-out>said</system-out></testcase>"
            for name, value in status.items()
        )
        return f"<testsuite>{cases}</testsuite>"

    with tempfile.TemporaryDirectory() as folder:
        first = pathlib.Path(folder) / "junit.xml"
        first.write_text(results(good="run", shaky="fail", bad="fail"))
        for limit, pattern in (("0", ""), ("1", ""), ("2", "^(shaky|bad)($| )")):
            os.environ["UNSTEADY_LIMIT"] = limit
            assert pattern_again(str(first)) == pattern, limit
        lines, passed = summary([str(first)])
        assert not passed and lines[-1] == "1 passed, 2 failed, 0 skipped", lines
        again = first.with_name("junit_again.xml")
        again.write_text(results(shaky="run", bad="fail"))
        lines, passed = summary([str(first)])
        assert not passed and lines[-1].startswith("1 passed, 1 failed, 1 unsteady"), lines
        assert f"unsteady: shaky ({first})" in lines and f"failed: bad ({first})" in lines, lines
        again.write_text(results(good="run"))
        assert not summary([str(first)])[1], "another test's success is none of those that failed"
        again.write_text(results(shaky="run", bad="run"))
        assert summary([str(first)])[1]
        first.write_text(results(good="run"))
        assert pattern_again(str(first)) == ""
        first.write_text(results(**{"a.B/0  # GetParam() = [x]": "fail"}))
        assert pattern_again(str(first)) == r"^(a\.B/0)($| )", pattern_again(str(first))


def main(arguments: list[str]) -> int:
    if arguments == ["--self-test"]:
        self_test()
        return 0
    if arguments[0] == "--again":
        print(pattern_again(arguments[1]))
        return 0
    lines, passed = summary(arguments)
    print("\n".join(lines))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
