#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the CPU time of the steps of .ci/run with their budget.

check_budget.py BUDGET TIMES   prints each step's minutes beside its budget; exit code 1 if all together take half as
                               much again as they may have
check_budget.py --self-test    plants one fault per rule and expects each to be reported

BUDGET has lines `step: minutes of CPU`, and `speed: seconds`: the output of tools/machine_speed.sh on the machine
where the minutes were measured. TIMES has lines `step: wall seconds, CPU seconds` and `speed: seconds` of the run. CPU
time is divided by the ratio of the two speeds, so that a slow or busy machine does
not fail a run; `#` begins a comment.
"""

import sys
from pathlib import Path

# The budget of all steps together: 40 minutes of two cores.
RUN_MINUTES = 80
# A busy machine spends more CPU time on the same work, because of its caches.
TOLERANCE = 1.5


class Fault(Exception):
    """A file is unusable; the text says why."""


def read_table(name: str, text: str, columns: int) -> tuple[dict[str, list[float]], float]:
    """Returns the steps with this many numbers each, and the speed."""
    table: dict[str, list[float]] = {}
    speed = None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        step, colon, rest = line.rpartition(":")
        amounts = [amount.strip() for amount in rest.split(",")]
        wanted = 1 if step == "speed" else columns
        if not colon or len(amounts) != wanted or not all(a.replace(".", "", 1).isdecimal() for a in amounts):
            raise Fault(f"{name}:{number}: '{line}' is not `step: {', '.join(['number'] * wanted)}`")
        if step in table or (step == "speed" and speed is not None):
            raise Fault(f"{name}:{number}: '{step}' has two lines")
        if step == "speed":
            speed = float(amounts[0])
        else:
            table[step] = [float(amount) for amount in amounts]
    if not speed:
        raise Fault(f"{name}: no line `speed: seconds`")
    return table, speed


def check(budget: tuple[dict[str, list[float]], float],
          times: tuple[dict[str, list[float]], float]) -> tuple[list[str], list[str]]:
    """Returns the rows to print, and the faults."""
    limits, steps = budget[0], times[0]
    slower = times[1] / budget[1]
    rows = [f"  this machine takes {slower:.2f} times the CPU time of the one that the budget is of",
            f"  {'step':<20} {'wall':>6} {'CPU':>6} {'scaled':>6} {'budget':>6}"]
    faults = []

    def row(step: str, wall: float, cpu: float, allowed: float | None) -> str:
        return (f"  {step:<20} {wall / 60:6.1f} {cpu / 60:6.1f} {cpu / slower / 60:6.1f} "
                f"{'-' if allowed is None else f'{allowed:g}':>6}")

    for step, (wall, cpu) in steps.items():
        allowed = limits[step][0] if step in limits else None
        minutes = cpu / slower / 60
        rows.append(row(step, wall, cpu, allowed))
        if allowed is None:
            faults.append(f"the step '{step}' has no budget")
        elif minutes > allowed:
            rows.append(f"  note: the step '{step}' is above its budget; give it less to do, or take the time from another "
                        "step, and say why in the commit")
    faults += [f"'{step}' has a budget, and no step has that name" for step in limits if step not in steps]
    total = sum(limit[0] for limit in limits.values())
    if total > RUN_MINUTES:
        faults.append(f"the budgets add up to {total:g} min of CPU; together they have {RUN_MINUTES}")
    all_cpu = sum(cpu for _, cpu in steps.values())
    rows.append(row("all", sum(wall for wall, _ in steps.values()), all_cpu, total))
    if all_cpu / slower / 60 > RUN_MINUTES * TOLERANCE:
        faults.append(f"over budget: all steps together took {all_cpu / slower / 60:.1f} min of CPU, of {RUN_MINUTES}")
    return rows, faults


def self_test() -> None:
    budget = ({"test": [10.0], "lint": [5.0]}, 2.0)
    rows, faults = check(budget, ({"test": [400, 600], "lint": [6, 6]}, 2.0))
    assert not faults, faults
    assert [row.split() for row in rows[2:]] == [["test", "6.7", "10.0", "10.0", "10"], ["lint", "0.1", "0.1", "0.1", "5"],
                                                 ["all", "6.8", "10.1", "10.1", "15"]], rows
    _, faults = check(budget, ({"test": [400, 1200], "lint": [6, 6]}, 4.0))
    assert not faults, f"a machine of half the speed: {faults}"
    rows, faults = check(budget, ({"test": [400, 899], "lint": [6, 6]}, 2.0))
    assert not faults and "note: the step 'test'" in rows[3], rows
    planted = [
        (budget, {"test": [1, RUN_MINUTES * 90], "lint": [1, 6]}, "all steps together took"),
        (budget, {"test": [1, 600], "lint": [1, 6], "tsan": [1, 1]}, "'tsan' has no budget"),
        (budget, {"test": [1, 600]}, "no step has that name"),
        (({"test": [RUN_MINUTES + 1.0]}, 2.0), {"test": [1, 1]}, f"add up to {RUN_MINUTES + 1} min"),
    ]
    for limits, steps, rule in planted:
        _, faults = check(limits, (steps, 2.0))
        assert len(faults) == 1 and rule in faults[0], f"expected {rule!r}, reported {faults}"
    assert read_table("x", "# minutes\ntwo words: 1.5 # why\n\nspeed: 3", 1) == ({"two words": [1.5]}, 3.0)
    assert read_table("x", "test: 1, 2.5\nspeed: 3", 2) == ({"test": [1.0, 2.5]}, 3.0)
    unreadable = ["test 10", "test: ten", "test: -1", "test: 1.2.3", "test: 1\ntest: 2", "test: 1, 2", "test: 1",
                  "speed: 0", "speed: 1\nspeed: 1"]
    for text in unreadable:
        try:
            read_table("x", text if text in ("test: 1", "speed: 0") else text + "\nspeed: 1", 1)
        except Fault:
            continue
        sys.exit(f"self-test: {text!r} was not reported")
    print(f"each of {len(planted) + len(unreadable)} planted faults was reported")


def main() -> int:
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    try:
        budget, times = (read_table(path, Path(path).read_text(), columns)
                         for path, columns in zip(sys.argv[1:3], (1, 2), strict=True))
    except Fault as fault:
        print(fault)
        return 1
    rows, faults = check(budget, times)
    print("\n".join(rows + faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
