#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the JUnit files of ctest and pytest: lists the skipped tests with their reasons, then the output of each failed
test, then the totals of all files and the names of the failed tests. The names are last: the end of a log shows
them, however much the tests printed.

tests/unsteady.txt lists the few tests that get a second try, each with its cause: a defect to fix, in the test
or in the tested code. A listed test is unsteady if it failed in NAME.xml and passed in NAME_again.xml; it is shown like
a failure and counted separately. The exit code is 1 if a test failed otherwise.

test_summary.py FILE...        the summary
test_summary.py --again FILE   the pattern of ctest's --tests-regex for the listed tests that failed in FILE
test_summary.py --check        checks tests/unsteady.txt against its rules
test_summary.py --self-test    plants faults and expects each to be reported

ctest's own --rerun-failed counts tests before it applies its filters: with a preset that leaves tests out it runs
tests other than the failed ones."""

import collections
import pathlib
import re
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

# GoogleTest prints this after the place of a GTEST_SKIP().
REASON = re.compile(r"^.*: Skipped\n(?P<reason>.*)$", re.MULTILINE)
# ctest appends the value of a test's parameter to its name.
PARAMETER = re.compile(r"\s+# GetParam\(\) = .*")
LINES_SHOWN = 80
UNSTEADY = pathlib.Path(__file__).resolve().parent.parent / "tests/unsteady.txt"
UNSTEADY_MAX = 3


def listed_in(text: str) -> dict[str, str]:
    """Returns the tests that get a second try, and why. `name: cause`, the name as ctest or pytest prints it."""
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {name.strip(): cause.strip() for name, _, cause in (line.partition(": ") for line in lines)}


def own_name(name: str) -> str:
    """Returns `Waits` for `unit_x.Suite/Kind.Waits/shm`, `test_waits` for `test_waits[shm]`."""
    return re.sub(r"\[.*", "", name).split(".")[-1].split("/")[0]


def faults_of_list(text: str, tests: str) -> list[str]:
    """Returns the rules that the list breaks; `tests` is the text of all tests."""
    listed = listed_in(text)
    faults = [f"{name}: no cause stands behind it" for name, cause in listed.items() if not cause]
    faults += [f"{name}: there is no such test" for name in listed
               if not re.search(rf"\b{re.escape(own_name(name))}\b", tests)]
    if len(listed) > UNSTEADY_MAX:
        faults.append(f"{len(listed)} tests are listed; at most {UNSTEADY_MAX} may be: mend one first")
    return faults


def skip_reason(case: ElementTree.Element) -> str:
    found = REASON.search(case.findtext("system-out") or "")
    if found:
        return found["reason"].strip()
    return case.find("skipped").get("message", "")


def printed(case: ElementTree.Element) -> list[str]:
    """Returns the output of a failed test; of a long text the beginning, which has the first error."""
    texts = [case.findtext("system-out"), *(element.text for element in case.findall("failure") + case.findall("error"))]
    lines = "\n".join(text.strip() for text in texts if text).splitlines()
    left_out = len(lines) - LINES_SHOWN
    return lines[:LINES_SHOWN] + ([f"... {left_out} more lines"] if left_out > 0 else [])


def cases_of(path: str) -> list[ElementTree.Element]:
    return list(ElementTree.parse(path).getroot().iter("testcase"))


def name_of(case: ElementTree.Element) -> str:
    return PARAMETER.sub("", case.get("name"))


def key_of(case: ElementTree.Element) -> tuple[str, str]:
    """Returns a unique name: pytest's names are unique only within a module."""
    return case.get("classname", ""), name_of(case)


def has_passed(case: ElementTree.Element) -> bool:
    return case.get("status", "run") == "run" and not case.findall("failure") + case.findall("error")


def failed_of(path: str) -> list[ElementTree.Element]:
    return [case for case in cases_of(path) if case.find("skipped") is None and not has_passed(case)]


def passed_again(path: str) -> set[tuple[str, str]]:
    again = pathlib.Path(path.removesuffix(".xml") + "_again.xml")
    return {key_of(case) for case in cases_of(str(again)) if has_passed(case)} if again.exists() else set()


def pattern_again(path: str, listed: dict[str, str]) -> str:
    failed = [name for case in failed_of(path) if (name := name_of(case)) in listed]
    names = (re.sub(r"([][.*+?()^$|\\])", r"\\\1", name) for name in failed)
    return f"^({'|'.join(names)})($| )" if failed else ""


def summary(paths: list[str], listed: dict[str, str]) -> tuple[list[str], bool]:
    """Returns the lines, and whether no test failed."""
    passed = 0
    skipped: collections.Counter[str] = collections.Counter()
    shown: dict[str, list[str]] = {"unsteady": [], "failed": []}
    names: dict[str, list[str]] = {"unsteady": [], "failed": []}
    for path in paths:
        steady_failures = {key_of(case) for case in failed_of(path)}
        steady_failures -= {key for key in passed_again(path) if key[1] in listed}
        for case in cases_of(path):
            name = name_of(case)
            if case.find("skipped") is not None:
                skipped[f"{name}: {skip_reason(case)}"] += 1
            elif has_passed(case):
                passed += 1
            else:
                kind = "failed" if key_of(case) in steady_failures else "unsteady"
                cause = f", {listed[name]}" if kind == "unsteady" else ""
                names[kind].append(f"  {name} ({path})")
                shown[kind] += [f"{kind}: {name} ({path}){cause}", *(f"  {line}" for line in printed(case))]
    lines = ["skipped:"] if skipped else []
    lines += [f"  {line}" + (f" ({times} times)" if times > 1 else "") for line, times in sorted(skipped.items())]
    unsteady = f"{len(names['unsteady'])} unsteady (failed, then passed when run again), " if names["unsteady"] else ""
    totals = f"{passed} passed, {len(names['failed'])} failed, {unsteady}{skipped.total()} skipped"
    last = ["failed tests:", *names["failed"]] if names["failed"] else []
    return [*lines, *shown["unsteady"], *shown["failed"], totals, *last], not names["failed"]


def self_test() -> None:
    def results(**status: str) -> str:
        cases = "".join(
            f'<testcase name="{name}" status="{value}">'
            + ("<failure/>" if value == "fail" else "")
            + "<system-out>said</system-out></testcase>"
            for name, value in status.items()
        )
        return f"<testsuite>{cases}</testsuite>"

    listed = listed_in("# why\n\nshaky: the kernel\nbad: a: b\n")
    assert listed == {"shaky": "the kernel", "bad": "a: b"}, listed
    with tempfile.TemporaryDirectory() as folder:
        first = pathlib.Path(folder) / "junit.xml"
        first.write_text(results(good="run", shaky="fail", bad="fail"))
        assert pattern_again(str(first), {}) == ""
        assert pattern_again(str(first), {"shaky": "x", "good": "x"}) == "^(shaky)($| )"
        assert pattern_again(str(first), listed) == "^(shaky|bad)($| )"
        lines, passed = summary([str(first)], listed)
        assert not passed and lines[-4] == "1 passed, 2 failed, 0 skipped", lines
        assert lines[-3:] == ["failed tests:", f"  shaky ({first})", f"  bad ({first})"], lines
        again = first.with_name("junit_again.xml")
        again.write_text(results(shaky="run", bad="fail"))
        lines, passed = summary([str(first)], listed)
        assert not passed and lines[-3].startswith("1 passed, 1 failed, 1 unsteady"), lines
        assert f"unsteady: shaky ({first}), the kernel" in lines and f"failed: bad ({first})" in lines, lines
        again.write_text(results(good="run"))
        assert not summary([str(first)], listed)[1], "another test's success is none of those that failed"
        again.write_text(results(shaky="run", bad="run"))
        assert summary([str(first)], listed)[1]
        assert not summary([str(first)], {"shaky": "x"})[1], "a test that is not listed has one try"
        first.write_text(results(good="run"))
        assert pattern_again(str(first), listed) == ""
        first.write_text(results(**{"a.B/0  # GetParam() = [x]": "fail"}))
        assert pattern_again(str(first), {"a.B/0": "x"}) == r"^(a\.B/0)($| )"
    assert faults_of_list("unit_x.Suite/Kind.Waits/shm: the kernel\ntest_waits: slow\n", "Waits test_waits(") == []
    for text, fault in (("unit_x.Suite.Waits\n", "no cause"), ("unit_x.Suite.Gone: x\n", "no such test"),
                        ("Waits: x\nWaits1: x\nWaits2: x\nWaits3: x\n", "at most 3")):
        assert any(fault in each for each in faults_of_list(text, "Waits Waits1 Waits2 Waits3")), text


def main(arguments: list[str]) -> int:
    if arguments == ["--self-test"]:
        self_test()
        return 0
    text = UNSTEADY.read_text()
    if arguments == ["--check"]:
        tests = (path.read_text(errors="replace") for path in UNSTEADY.parent.rglob("*test*") if path.is_file())
        faults = faults_of_list(text, "\n".join(tests))
        print("\n".join(f"{UNSTEADY.name}: {fault}" for fault in faults))
        return 1 if faults else 0
    listed = listed_in(text)
    if arguments[0] == "--again":
        print(pattern_again(arguments[1], listed))
        return 0
    lines, passed = summary(arguments, listed)
    print("\n".join(lines))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
