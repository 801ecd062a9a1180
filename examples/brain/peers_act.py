# SPDX-License-Identifier: Apache-2.0
"""The first act: direct links, no broker. A sensor joins, Motor stops for a while, Vision is killed and restarted."""

import signal

from act import Act, pid_of
from node_program import boottime_ns
from report import TOPICS


class PeersAct(Act):
    _back_s = 0.0

    def play(self) -> None:
        self.pass_time(self.pace.part_s)
        self.sensor_joins()
        self.pass_time(self.pace.part_s)
        self._motor_stops()
        self.pass_time(self.pace.part_s / 2)
        self._vision_dies()
        self.pass_time(self.pace.part_s)

    def _motor_stops(self) -> None:
        stopped_ns = boottime_ns()
        self.children.signal("motor", signal.SIGSTOP)
        self.say(f"motor is stopped for {self.pace.stop_s} s (SIGSTOP): nobody waits for it", mark=True)
        self.pass_time(self.pace.stop_s)
        self.children.signal("motor", signal.SIGCONT)
        self.blind("motor", "stopped", stopped_ns, boottime_ns())
        self.say("motor goes on; what is too old by now moves nothing", mark=True)

    def _vision_dies(self) -> None:
        pid = self.children.pid("vision")
        killed_ns = boottime_ns()
        self.children.kill("vision")
        self.dies("vision", killed_ns, "killed")
        self.say(f"vision is killed (SIGKILL, pid {pid})", mark=True)

        def told() -> dict[str, float]:
            """Returns the nodes that reported the loss, with the delay [ms]."""
            return {event["by"]: (event["at_ns"] - killed_ns) / 1e6 for event in self.observer.member_events()
                    if event["kind"] == "lost" and pid_of(event["member"]) == pid}

        self.wait_for("PFC and Motor say that vision was lost", lambda: {"pfc", "motor"} <= told().keys())
        said = told()
        self.say("vision was lost, say " + ", ".join(f"{name} ({after:.1f} ms after)" for name, after in said.items()))
        self.promise(True, f"the loss of vision was noticed and named by {' and '.join(said)}, "
                           f"{min(said.values()):.1f} to {max(said.values()):.1f} ms after its death")
        self.pass_time(self.pace.outage_s)
        started_ns = boottime_ns()
        self.went_on("the others went on without it", [key for key in TOPICS if key != "vision/objects"], killed_ns,
                     started_ns)
        self.say(f"vision is started again (pid {self.start('vision')})", mark=True)
        self.wait_for("PFC hears the new vision", lambda: self._incarnations() == 2)
        back_ns = boottime_ns()
        after_ms = (back_ns - started_ns) / 1e6
        self.say(f"PFC hears the new vision {after_ms:.0f} ms after its start")
        self.promise(True, f"vision came back, as another incarnation, {after_ms:.0f} ms after it was started")
        self.blind("vision", "gone", killed_ns, back_ns)
        self._back_s = self.seconds(back_ns)

    def _incarnations(self) -> int:
        return len({source["incarnation"] for source in (self.observer.status("pfc") or {"inbox": []})["inbox"]
                    if source["key"] == "vision/objects"})

    def may_miss(self) -> set[str]:
        return {"motor"}

    def judge(self) -> None:
        report = self.report
        onsets = report.did["pfc"]["onsets"]
        self.promise(onsets > 0, f"the sensor was seen and used: PFC took {onsets} changes from it")
        again = [frame for frame in report.shown if frame["counts"] and frame["since"] > self._back_s]
        self.promise(any(frame["right"] for frame in again), "the arm points at what the new vision sees", timed=True)
        motor = [account for account in report.accounts if account["subscriber"] == "motor"]
        missed = sum(sum(account["missed"].values()) for account in motor)
        reasons = sorted({reason for account in motor for reason in account["missed"]})
        self.promise(missed > 0 and set(reasons) <= {"expired", "overflow"},
                     f"what motor did not take while it was stopped is known exactly: {missed} samples "
                     f"({', '.join(reasons)})")
        # The killed publisher may have died between its sends to two subscribers. Its last samples may also have been
        # too old for a reader that refuses old ones.
        old = min(account["incarnation"] for account in report.accounts if account["key"] == "vision/objects")
        last = {account["subscriber"]: account["last"] for account in report.accounts
                if account["key"] == "vision/objects" and account["incarnation"] == old
                and account["subscriber"] not in self.may_miss()}
        self.promise(max(last.values()) - min(last.values()) <= 1,
                     "what the killed vision had published came: " +
                     ", ".join(f"{name} has all up to {number}" for name, number in sorted(last.items())))
