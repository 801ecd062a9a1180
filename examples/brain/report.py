# SPDX-License-Identifier: Apache-2.0
"""The observations of one act of the demo, which its summary and its page show."""

from dataclasses import dataclass, field
from statistics import median

NODES = ("pfc", "vision", "motor", "language", "language-1")
TOPICS = ("pfc/control", "vision/objects", "lang/features", "motor/status", "sensor/new_data")
OBSERVER = "observer"
BIN_S = 0.25


@dataclass
class Report:
    """All that the page shows of one act, as JSON."""

    name: str
    title: str
    seconds: float = 0.0
    marks: list[dict] = field(default_factory=list)  # {"at", "what"}
    outages: list[dict] = field(default_factory=list)  # {"since", "until", "node", "what"}
    lives: list[dict] = field(default_factory=list)  # {"node", "since", "until", "end"}
    told: list[dict] = field(default_factory=list)  # member events of nodes
    rates: dict[str, list[float]] = field(default_factory=dict)
    arm: list[list[float]] = field(default_factory=list)
    shown: list[dict] = field(default_factory=list)  # {"since", "digit", "right", "decided_ms", "counts"}
    accounts: list[dict] = field(default_factory=list)
    did: dict[str, dict] = field(default_factory=dict)
    promises: list[dict] = field(default_factory=list)  # {"kept", "what", "timed"}

    def decision_times(self) -> dict[bool, list[float]]:
        """Returns the times until PFC was right [ms], without and with the sensor."""
        times: dict[bool, list[float]] = {False: [], True: []}
        for frame in self.shown:
            if frame["counts"] and frame["decided_ms"] is not None:
                times[frame["sensor"]].append(frame["decided_ms"])
        return times

    def steady_accounts(self) -> list[dict]:
        """Returns one account for each topic and subscriber; with several incarnations, the longest."""
        longest: dict[tuple[str, str], dict] = {}
        for account in self.accounts:
            name = (account["key"], account["subscriber"])
            if account["key"] not in TOPICS or account["subscriber"] == OBSERVER or account["timed"] == 0:
                continue
            if name not in longest or account["timed"] > longest[name]["timed"]:
                longest[name] = account
        return [longest[name] for name in sorted(longest)]

    def lines(self) -> list[str]:
        """Returns the summary for a terminal."""
        lines = [f"PFC was right {median(found):.0f} ms after a digit appeared "
                 f"{'with' if sensor else 'without'} the sensor (median of {len(found)})"
                 for sensor, found in self.decision_times().items() if found]
        lines.append("topic            subscriber   received   missed                          p50         p99")
        for account in sorted(self.accounts, key=lambda each: (each["key"], each["subscriber"], each["incarnation"])):
            if account["key"] in TOPICS and account["subscriber"] != OBSERVER:
                lines.append(f"{account['key']:<16} {account['subscriber']:<11} {account['received']:>9}   "
                             f"{missed_text(account):<26} {account['p50_us']:>7.0f} us  {account['p99_us']:>7.0f} us")
        lines += [f"{'kept  ' if promise['kept'] else 'BROKEN'}  {promise['what']}" for promise in self.promises]
        return lines


def missed_text(account: dict) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in account["missed"].items()) or "nothing"
