# SPDX-License-Identifier: Apache-2.0
"""The common parts of the demo's acts: nodes, time, observations, and promises about them."""

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from children import Children
from node_program import boottime_ns
from observer import Observer
from report import BIN_S, NODES, OBSERVER, TOPICS, Report
from spiking import Learned
from world import World

PATIENCE_S = 120
SETTLED_NS = 400_000_000  # after a change an arm needs some time to reach its goal
RATE_HZ = 100
ON_MARK = 0.5
CLEAR_LINE = "\r\033[K" if sys.stdout.isatty() else ""


class Broken(Exception):
    """A step on which everything else depends has failed."""


@dataclass(frozen=True)
class Pace:
    """The length of each part [s], how long each digit is shown [ms], and how often the arm must be right."""

    part_s: float = 6.0
    stop_s: float = 1.5
    outage_s: float = 4.0
    digit_ms: int = 500
    least_right: float = 0.75


class Act:
    """The base of the two acts: nodes, an observer, a clock, and the promises."""

    observer: Observer

    def __init__(self, report: Report, children: Children, learned: Learned, pace: Pace) -> None:
        self.report = report
        self.children = children
        self.pace = pace
        self._learned = learned
        world = f"{boottime_ns()} {pace.digit_ms * 1_000_000} {boottime_ns() % 1000}"
        self._world = World.of(world, learned.labels)
        children.environment["BRAIN_WORLD"] = world
        self._began_ns = 0
        self._born: dict[str, int] = {}
        self._shown_at = 0.0
        self._blind: list[tuple[int, int]] = []  # when the arm cannot know the digit
        self._with_sensor_ns = 0

    def run(self) -> Report:
        self.prepare()
        with Observer(self.children.joining(OBSERVER)) as self.observer:
            for name in NODES:
                self.start(name)
            self.wait_for("the nodes find each other", self._is_complete)
            self._began_ns = boottime_ns()
            self.say(f"{len(NODES)} nodes run, each on its own clock at {RATE_HZ} Hz: {', '.join(NODES)}", mark=True)
            self.play()
            ended_ns = boottime_ns()
            self.children.end(PATIENCE_S)
            self._collect(ended_ns)
        self._judge_all()
        print(CLEAR_LINE, end="")
        return self.report

    def prepare(self) -> None:
        """Prepares everything that must exist before the nodes."""

    def play(self) -> None:
        """Runs the act once all nodes have found each other."""
        raise NotImplementedError

    def judge(self) -> None:
        """Checks the promises of this act beyond those of all acts."""
        raise NotImplementedError

    def may_miss(self) -> set[str]:
        """Returns the subscribers that this act makes miss samples."""
        raise NotImplementedError

    # Time and progress lines.

    def seconds(self, time_ns: int) -> float:
        return (time_ns - self._began_ns) / 1e9

    def say(self, text: str, *, mark: bool = False) -> None:
        at = max(0.0, self.seconds(boottime_ns())) if self._began_ns else 0.0
        if mark:
            self.report.marks.append({"at": at, "what": text})
        print(f"{CLEAR_LINE}{at:6.1f} s  {text}", flush=True)

    def show(self) -> None:
        """Shows the present state: on a terminal one line that is overwritten, else a line now and then."""
        if time.monotonic() - self._shown_at < (0.2 if CLEAR_LINE else 2):
            return
        self._shown_at = time.monotonic()
        print(f"{CLEAR_LINE}{self.seconds(boottime_ns()):6.1f} s  {self._now_line()}",
              end="" if CLEAR_LINE else "\n", flush=True)

    def _check_children(self) -> None:
        if ended := self.children.ended():
            raise Broken(", ".join(f"{name} ended with exit code {code}" for name, code in ended.items()))

    def pass_time(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
            self._check_children()
            self.show()

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            self._check_children()
            if time.monotonic() > end:
                raise Broken(f"{what}: not within {PATIENCE_S} s")
            time.sleep(0.01)

    def _now_line(self) -> str:
        observer = self.observer
        now_ns = boottime_ns()
        rates = " ".join(f"{key.split('/')[0]} {observer.count(key, now_ns - 1_000_000_000, now_ns):3d}/s"
                         for key in TOPICS)
        shown = self._learned.labels[self._world.image_at(now_ns)]
        decision, arm = observer.last(observer.decisions), observer.last(observer.arm)
        word = observer.last(observer.words)
        decided = "-" if decision is None or decision[1] < 0 else decision[1]
        return (f"{rates} | shown {shown}: pfc {decided}, {word[1] if word and word[1] else '-':5}, "
                f"arm {arm[1] if arm else 0:.1f}")

    # Nodes.

    def start(self, name: str) -> int:
        pid = self.children.start(name)
        self._born[name] = boottime_ns()
        return pid

    def sensor_joins(self) -> None:
        self.say(f"a sensor joins (pid {self.start('sensor')})", mark=True)
        self.wait_for("PFC uses the sensor",
                      lambda: (self.observer.status("pfc") or {}).get("did", {}).get("onsets", 0) > 0)
        self._with_sensor_ns = boottime_ns()
        self.say("PFC uses it: it learns from sensor/new_data that another digit is shown")

    def _hears(self, name: str, keys: set[str]) -> bool:
        status = self.observer.status(name)
        return status is not None and keys <= {source["key"] for source in status["inbox"]}

    def _is_complete(self) -> bool:
        return (all(self.observer.status(name) for name in NODES)
                and self._hears("pfc", {"vision/objects", "lang/features"})
                and self._hears("motor", {"vision/objects", "pfc/control"})
                and self._hears("vision", {"pfc/control"}) and self._hears("language", {"pfc/control"}))

    def dies(self, name: str, at_ns: int, how: str) -> None:
        self.report.lives.append({"node": name, "since": self.seconds(self._born.pop(name)),
                                  "until": self.seconds(at_ns), "end": how})

    def blind(self, node: str, what: str, since_ns: int, until_ns: int) -> None:
        """Notes that in this time, and until it has settled, the arm cannot point at the shown digit."""
        self.report.outages.append({"node": node, "what": what, "since": self.seconds(since_ns),
                                    "until": self.seconds(until_ns)})
        self._blind.append((since_ns, until_ns + SETTLED_NS))

    def went_on(self, what: str, keys: list[str], since_ns: int, until_ns: int) -> None:
        """Promises that these topics were published in this time."""
        rates = {key: self.observer.count(key, since_ns, until_ns) * 1e9 / (until_ns - since_ns) for key in keys}
        self.promise(all(rate > RATE_HZ / 4 for rate in rates.values()),
                     f"{what}: " + ", ".join(f"{key} {rate:.0f}/s" for key, rate in rates.items()), timed=True)

    def promise(self, kept: bool, what: str, timed: bool = False) -> None:
        """Notes a promise. timed: a machine that is busy otherwise may be too slow to keep it."""
        self.report.promises.append({"kept": bool(kept), "what": what, "timed": timed})

    # Observations.

    def _score(self, until_ns: int) -> None:
        """Notes for each shown digit where the arm was at its end, and when PFC was right."""
        observer = self.observer
        first = self._world.frame_at(self._began_ns) + 1
        for frame in range(first, self._world.frame_at(until_ns)):
            since_ns = self._world.since_ns + frame * self._world.period_ns
            end_ns = since_ns + self._world.period_ns
            digit = int(self._learned.labels[self._world.image_at(since_ns)])
            arm = observer.last(observer.arm, end_ns)
            right = arm is not None and arm[0] >= since_ns and abs(arm[1] - digit) < ON_MARK
            decided = next((stamp for stamp, found in observer.decisions
                            if since_ns <= stamp < end_ns and found == digit), None)
            self.report.shown.append({
                "since": self.seconds(since_ns), "digit": digit, "right": right,
                "decided_ms": None if decided is None else (decided - since_ns) / 1e6,
                "sensor": bool(self._with_sensor_ns) and since_ns >= self._with_sensor_ns,
                "counts": not any(since_ns < until and end_ns > since for since, until in self._blind)})

    def _collect(self, until_ns: int) -> None:
        report, observer = self.report, self.observer
        report.seconds = self.seconds(until_ns)
        for name, born in self._born.items():
            report.lives.append({"node": name, "since": self.seconds(born), "until": report.seconds, "end": "in order"})
        for event in observer.member_events():
            at_ns = event.pop("at_ns")
            report.told.append(event | {"at": self.seconds(at_ns)})
        bins = np.arange(0, report.seconds + BIN_S, BIN_S)
        for key in observer.keys():
            at = [self.seconds(stamp) for stamp in observer.stamps(key)]
            report.rates[key] = (np.histogram(at, bins)[0] / BIN_S).tolist()
        report.arm = [[round(self.seconds(stamp), 3), round(position, 2)] for stamp, position, _, _ in observer.arm]
        report.accounts = observer.accounts()
        for name in (*NODES, "sensor"):
            if status := observer.status(name):
                report.did[name] = status["did"] | {"ticks": status["ticks"], "skipped": status["skipped"]}
        self._score(until_ns)

    def _judge_all(self) -> None:
        self.judge()
        self._judge_arm()
        self._judge_words()
        self._judge_accounts(self.may_miss())
        failed = {name: code for name, code in self.children.exit_codes.items() if code != 0}
        self.promise(not failed, "all nodes ended in order" +
                     "".join(f"; {name} with exit code {code}" for name, code in failed.items()))

    def _judge_accounts(self, may_miss: set[str]) -> None:
        accounts = self.report.accounts
        wrong = [account for account in accounts
                 if account["received"] + sum(account["missed"].values()) != account["last"] - account["first"] + 1]
        missed = [account for account in accounts if account["missed"] and account["subscriber"] not in may_miss]
        received = sum(account["received"] for account in accounts)
        self.promise(not wrong, f"every sample is accounted for: {received} received, each other one in a gap "
                                "with its reason" + describe(wrong))
        except_for = f", {' and '.join(sorted(may_miss))} apart," if may_miss else ""
        # A sample expires where its reader, or the whole machine, is slower than the sample's time to live.
        only_expired = bool(missed) and all(set(account["missed"]) <= {"expired"} for account in missed)
        self.promise(not missed, f"no subscriber{except_for} missed a sample" + describe(missed), timed=only_expired)

    def _judge_arm(self) -> None:
        counted = [frame for frame in self.report.shown if frame["counts"]]
        right = sum(frame["right"] for frame in counted)
        self.promise(counted and right >= self.pace.least_right * len(counted),
                     f"the arm pointed at the digit that was shown: {right} of {len(counted)} times "
                     f"(at least {self.pace.least_right:.0%})", timed=True)

    def _judge_words(self) -> None:
        did = self.report.did.get("pfc", {})
        self.promise(did.get("words", 0) > 0 and did["words"] == did["words_right"],
                     f"both halves of language together spelled what PFC decided: {did.get('words_right', 0)} of "
                     f"{did.get('words', 0)} words")
        self.promise(did.get("refused", 1) == 0, "PFC could read every message of the others")


def describe(accounts: list[dict]) -> str:
    return "".join(f"; {account['subscriber']} from {account['publisher']} on {account['key']}: "
                   f"{account['received']} received, {account['missed']}, {account['first']} to {account['last']}"
                   for account in accounts[:4])


def pid_of(member: str) -> int | None:
    found = re.search(r"pid (\d+)", member)
    return int(found[1]) if found else None
