# SPDX-License-Identifier: Apache-2.0
"""A distributed brain: starts its nodes, lets things happen to them, and shows what became of it.

brain.py --programs FOLDER [--fabric static] [--short] [--page PAGE.html] [--json FILE]

The nodes PFC, Language (two processes), Vision and Motor run on topics; a sensor joins meanwhile; Motor is
stopped for a while; Vision is killed, and comes back. Exit code 0 when all came out as promised.
"""

import argparse
import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from act import Broken, Pace
from children import Children
from observer import Observer
from page import page
from peers_act import PeersAct
from report import OBSERVER, Report
from spiking import HELD_OUT, TICKS_TO_READ, Learned, load_or_train

LEAST_ACCURACY = 0.9


def peer_to_peer(programs: Path, learned: Learned, accuracy: float, pace: Pace) -> Report:
    report = Report("peers", "Peer to peer: each node knows the addresses of those before it")
    with Children(programs, static=True) as children, Observer(children.joining(OBSERVER)) as observer:
        act = PeersAct(report, children, observer, learned, pace)
        act.promise(accuracy >= LEAST_ACCURACY, f"the spiking network reads {accuracy:.1%} of the held-out digits "
                                                f"(at least {LEAST_ACCURACY:.0%})")
        return act.run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=Path, required=True, help="where the nodes in C++ were built")
    parser.add_argument("--fabric", choices=["static"], default="static")
    parser.add_argument("--short", action="store_true", help="some seconds, for tests")
    parser.add_argument("--page", type=Path, help="writes a page with plots")
    parser.add_argument("--json", type=Path, help="writes all that the page shows")
    options = parser.parse_args()
    # A shell that starts it in the background may have it ignore Ctrl-C.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    learned = load_or_train(lambda text: print(text, flush=True))
    accuracy = learned.accuracy()
    print(f"the spiking network reads {accuracy:.1%} of {HELD_OUT} held-out digits in {TICKS_TO_READ} ticks")
    pace = Pace(1.5, 0.8, 1.0, 400, 0.5) if options.short else Pace()
    reports: list[Report] = []
    try:
        reports.append(peer_to_peer(options.programs, learned, accuracy, pace))
    except Broken as failure:
        print(f"brain: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("brain: interrupted; all nodes are ended", file=sys.stderr)
        return 130
    for report in reports:
        print("\n   " + "\n   ".join(report.lines()))
    if options.json:
        options.json.write_text(json.dumps([asdict(report) for report in reports]))
    if options.page:
        options.page.write_text(page(reports))
        print(f"\n   the page with the plots: {options.page}")
    return 0 if all(promise["kept"] for report in reports for promise in report.promises) else 1


if __name__ == "__main__":
    sys.exit(main())
