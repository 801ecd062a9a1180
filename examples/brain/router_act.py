# SPDX-License-Identifier: Apache-2.0
"""The second act: all nodes are clients of one router. It is killed and restarted; then the sensor joins."""

import os

from act import Act
from children import RoutedChildren
from node_program import boottime_ns
from report import TOPICS

ROUTER = RoutedChildren.ROUTER


class RouterAct(Act):
    children: RoutedChildren

    def prepare(self) -> None:
        os.environ["TENDON_ROUTER"] = self.children.endpoint  # for the observer, which is in this process
        self._start_router()

    def _start_router(self) -> int:
        pid = self.start(ROUTER)
        self.wait_for("the router answers", self.children.router_answers)
        return pid

    def play(self) -> None:
        self.say(f"all of them are clients of one router (pid {self.children.pid(ROUTER)}, {self.children.endpoint})")
        self.pass_time(self.pace.part_s)
        killed_ns = boottime_ns()
        pid = self.children.pid(ROUTER)
        self.children.kill(ROUTER)
        self.dies(ROUTER, killed_ns, "killed")
        self.say(f"the router is killed (SIGKILL, pid {pid}): links between nodes do not need it", mark=True)

        def told() -> dict[str, float]:
            """Returns the nodes that reported the loss of discovery, with the delay in seconds."""
            return {event["by"]: (event["at_ns"] - killed_ns) / 1e9 for event in self.observer.member_events()
                    if event["kind"] == "undiscoverable" and event["at_ns"] > killed_ns}

        self.wait_for("PFC, Language and Motor say that discovery is gone",
                      lambda: {"pfc", "language", "motor"} <= told().keys())
        said = ", ".join(f"{name} ({after:.1f} s after)" for name, after in sorted(told().items()))
        self.say(f"the others are undiscoverable, and their links live, say {said}")
        self.promise(True, f"the nodes reported that discovery was gone: {said}")
        self.pass_time(self.pace.outage_s)
        started_ns = boottime_ns()
        self.went_on("without a router all went on", [key for key in TOPICS if key != "sensor/new_data"], killed_ns,
                     started_ns)
        self.say(f"the router is started again (pid {self._start_router()})", mark=True)
        self.report.outages.append({"node": ROUTER, "what": "gone", "since": self.seconds(killed_ns),
                                    "until": self.seconds(boottime_ns())})
        self.sensor_joins()
        self.promise(True, "a node that joined afterwards was found: PFC used the sensor "
                           f"{(boottime_ns() - started_ns) / 1e9:.1f} s after the router was started again")
        self.pass_time(self.pace.part_s)
        # The router publishes nothing about its end.
        self.dies(ROUTER, boottime_ns(), "ended")
        self.children.kill(ROUTER)

    def may_miss(self) -> set[str]:
        return set()

    def judge(self) -> None:
        lost = [event for event in self.report.told if event["kind"] == "lost"]
        self.promise(not lost, "nobody took the router's death for that of a node" +
                     "".join(f"; {event['by']} lost {event['member']}" for event in lost))
