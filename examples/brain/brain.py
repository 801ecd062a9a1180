# SPDX-License-Identifier: Apache-2.0
"""A distributed brain: starts its nodes, disturbs them, and shows the results.

brain.py --programs FOLDER [--tendon COMMAND] [--fabric static] [--short] [--page PAGE.html] [--json FILE]

The nodes PFC, Language (two processes), Vision and Motor run on topics. In the first act a sensor joins,
Motor is stopped for a while, and Vision is killed and restarted. In the second act all nodes are clients of
a router, which is killed and restarted. Exit code 0 if every promise was kept.
"""

import argparse
import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from act import Broken, Pace
from children import Children, RoutedChildren, StaticChildren
from page import page
from peers_act import PeersAct
from report import Report
from router_act import RouterAct
from spiking import HELD_OUT, TICKS_TO_READ, Learned, load_or_train

LEAST_ACCURACY = 0.9


def peers_act(options: argparse.Namespace, learned: Learned, pace: Pace) -> Report:
    static = options.fabric == "static"
    how = "each node knows the addresses of those before it" if static else "nodes find each other by themselves"
    report = Report("peers", f"Peer to peer: {how}")
    accuracy = learned.accuracy()
    report.promises.append({"kept": accuracy >= LEAST_ACCURACY, "timed": False, "what":
                            f"the spiking network reads {accuracy:.1%} of {HELD_OUT} held-out digits in "
                            f"{TICKS_TO_READ} ticks (at least {LEAST_ACCURACY:.0%})"})
    print(report.promises[0]["what"])
    with (StaticChildren if static else Children)(options.programs) as children:
        return PeersAct(report, children, learned, pace).run()


def router_act(options: argparse.Namespace, learned: Learned, pace: Pace) -> Report:
    with RoutedChildren(options.programs, options.tendon) as children:
        return RouterAct(Report("router", "As clients of one router, which dies and comes back"), children, learned,
                         pace).run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=Path, required=True, help="where the nodes in C++ were built")
    parser.add_argument("--fabric", choices=["zenoh", "static"], default="zenoh",
                        help="how nodes find each other: by Zenoh (the default), or by addresses; that is the first "
                             "act alone, and needs no Zenoh")
    parser.add_argument("--tendon", type=Path, default="tendon", help="the command, which has the router")
    parser.add_argument("--short", action="store_true", help="some seconds, for tests: what a busy machine is too slow for is shown, and not judged")
    parser.add_argument("--page", type=Path, help="writes a page with plots")
    parser.add_argument("--json", type=Path, help="writes all that the page shows")
    options = parser.parse_args()
    # A shell that starts it in the background may have made it ignore Ctrl-C.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    learned = load_or_train(lambda text: print(text, flush=True))
    pace = Pace(1.5, 0.8, 1.0, 400, 0.5) if options.short else Pace()
    reports: list[Report] = []
    try:
        for act in (peers_act,) if options.fabric == "static" else (peers_act, router_act):
            reports.append(act(options, learned, pace))
            print("\n   " + "\n   ".join(reports[-1].lines()), flush=True)
    except Broken as failure:
        print(f"brain: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("brain: interrupted; all nodes are ended", file=sys.stderr)
        return 130
    if options.json:
        options.json.write_text(json.dumps([asdict(report) for report in reports]))
    if options.page:
        options.page.write_text(page(reports))
        print(f"\n   the page with the plots: {options.page}")
    return 0 if all(promise["kept"] or (options.short and promise["timed"])
                    for report in reports for promise in report.promises) else 1


if __name__ == "__main__":
    sys.exit(main())
