#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the minutes that the steps of .ci/run took against their budget.

check_budget.py BUDGET TIMES   prints each step's minutes beside its budget; exit code 1 if any is over
check_budget.py --self-test    plants one fault per rule and expects each to be reported

BUDGET has lines `step: minutes`, TIMES has lines `step: seconds`; `#` begins a comment.
"""

import sys
from pathlib import Path

# What all steps have together.
RUN_MINUTES = 85


class Fault(Exception):
    """A file that cannot be used, in words."""


def read_table(name: str, text: str) -> dict[str, float]:
    table: dict[str, float] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        step, colon, amount = line.rpartition(":")
        if not colon or not amount.strip().replace(".", "", 1).isdecimal():
            raise Fault(f"{name}:{number}: '{line}' is not `step: number`")
        if step in table:
            raise Fault(f"{name}:{number}: the step '{step}' has two lines")
        table[step] = float(amount)
    return table


def check(budget: dict[str, float], seconds: dict[str, float]) -> tuple[list[str], list[str]]:
    """The rows to print, and the faults."""
    rows = []
    faults = []
    for step, taken in seconds.items():
        minutes = taken / 60
        allowed = budget.get(step)
        rows.append(f"  {step:<20} {minutes:5.1f} of {'-' if allowed is None else f'{allowed:g}':>4}")
        if allowed is None:
            faults.append(f"the step '{step}' has no budget")
        elif minutes > allowed:
            faults.append(f"over budget: the step '{step}' took {minutes:.1f} min of {allowed:g}; give it less to do, "
                          "or raise its budget and say why in the commit")
    faults += [f"'{step}' has a budget, and no step has that name" for step in budget if step not in seconds]
    total = sum(budget.values())
    if total > RUN_MINUTES:
        faults.append(f"the budgets add up to {total:g} min; together they have {RUN_MINUTES}")
    rows.append(f"  {'all':<20} {sum(seconds.values()) / 60:5.1f} of {total:>4g}")
    return rows, faults


def self_test() -> None:
    budget = {"test": 10.0, "lint": 5.0}
    rows, faults = check(budget, {"test": 600, "lint": 6})
    assert not faults, faults
    assert [row.split() for row in rows] == [["test", "10.0", "of", "10"], ["lint", "0.1", "of", "5"],
                                             ["all", "10.1", "of", "15"]], rows
    planted = [
        (budget, {"test": 601, "lint": 6}, "the step 'test' took"),
        (budget, {"test": 600, "lint": 6, "tsan": 1}, "'tsan' has no budget"),
        (budget, {"test": 600}, "no step has that name"),
        ({"test": RUN_MINUTES + 1.0}, {"test": 1}, f"add up to {RUN_MINUTES + 1} min"),
    ]
    for limits, seconds, rule in planted:
        _, faults = check(limits, seconds)
        assert len(faults) == 1 and rule in faults[0], f"expected {rule!r}, reported {faults}"
    assert read_table("x", "# minutes\ntwo words: 1.5 # why\n\n") == {"two words": 1.5}
    unreadable = ["test 10", "test: ten", "test: -1", "test: 1.2.3", "test: 1\ntest: 2"]
    for text in unreadable:
        try:
            read_table("x", text)
        except Fault:
            continue
        sys.exit(f"self-test: {text!r} was not reported")
    print(f"each of {len(planted) + len(unreadable)} planted faults was reported")


def main() -> int:
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    try:
        budget, seconds = (read_table(path, Path(path).read_text()) for path in sys.argv[1:3])
    except Fault as fault:
        print(fault)
        return 1
    rows, faults = check(budget, seconds)
    print("\n".join(rows + faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
