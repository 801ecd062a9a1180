# SPDX-License-Identifier: Apache-2.0
"""Makes one page with plots of a run; it needs no other file.

page.py RUN.json PAGE.html     from the output of `brain.py --json RUN.json`
page.py RUN.json PICTURE.svg   the timeline of its first act alone
"""

import json
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path

from figures import STYLE, Drawing, decisions, latencies, timeline
from report import OBSERVER, TOPICS, Report, missed_text

WIDE, NARROW = 860, 380
PAGE_STYLE = """
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:900px;margin:0 auto;padding:16px}
h1{font-size:1.6em;margin:.4em 0}h2{font-size:1.25em;margin:1.6em 0 .3em}h3{font-size:1em;margin:1.4em 0 .2em}
p,figcaption,.note{color:var(--soft);margin:.3em 0}
figure{margin:0}svg{max-width:100%;height:auto;display:block}
.narrow{display:none}@media(max-width:700px){.wide{display:none}.narrow{display:block}}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.86em;font-variant-numeric:tabular-nums}
th,td{padding:3px 12px 3px 0;text-align:left;border-bottom:1px solid var(--grid);white-space:nowrap}
td.number,th.number{text-align:right}
ul{padding-left:0;list-style:none}li{margin:.25em 0;padding-left:1.6em;text-indent:-1.6em}
.kept::before{content:"\\2713";color:var(--green);display:inline-block;width:1.6em;text-indent:0}
.broken::before{content:"\\2717";color:var(--orange);display:inline-block;width:1.6em;text-indent:0}
.broken{color:var(--orange);font-weight:600}
"""


def figure(draw: Callable[[Report, int], Drawing], report: Report, caption: str) -> str:
    return (f'<figure><div class="wide">{draw(report, WIDE).svg()}</div>'
            f'<div class="narrow">{draw(report, NARROW).svg()}</div><figcaption>{escape(caption)}</figcaption></figure>')


def table(heads: list[str], rows: list[list[object]]) -> str:
    """Makes a table; numbers are right-aligned."""
    numbers = [all(isinstance(row[column], (int, float)) for row in rows) for column in range(len(heads))]

    def cells(tag: str, values: list[object]) -> str:
        return "".join(f'<{tag} class="{"number" if number else "text"}">{escape(str(value))}</{tag}>'
                       for value, number in zip(values, numbers, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{cells("th", heads)}</tr>{body}</table></div>'


def losses(report: Report) -> str:
    rows: list[list[object]] = []
    for account in sorted(report.accounts, key=lambda each: (each["key"], each["subscriber"], each["incarnation"])):
        if account["key"] in TOPICS:
            rows.append([account["key"], account["subscriber"], f"{account['first']} to {account['last']}",
                         account["received"], missed_text(account)])
    return table(["topic", "subscriber", "samples", "received", "missed"], rows)


def members(report: Report) -> str:
    rows: list[list[object]] = [[f"{event['at']:.3f}", event["by"], event["kind"], event["member"], event["reason"]]
                                for event in report.told if event["at"] >= 0 and OBSERVER not in event["member"]]
    return table(["at [s]", "told by", "event", "of", "because"], rows)


def codes(report: Report) -> str:
    rows: list[list[object]] = []
    for name, neurons in (("vision", 80), ("sensor", 128)):
        did = report.did.get(name)
        if did and did["messages"]:
            dense = neurons * 4
            rows.append([name, neurons, did["messages"], did["messages"] - did["lists"], did["lists"],
                         round(did["bytes"] / did["messages"], 1), dense])
    return table(["node", "neurons", "messages", "bitmaps", "lists", "bytes a message", "bytes as f32"], rows)


def act(report: Report) -> str:
    promises = "".join(f'<li class="{"kept" if promise["kept"] else "broken"}">{escape(promise["what"])}</li>'
                       for promise in report.promises)
    happened = "".join(f"<li>{mark['at']:.1f} s: {escape(mark['what'])}</li>" for mark in report.marks)
    return (f"<section><h2>{escape(report.title)}</h2>"
            + figure(timeline, report, "Shaded: a node was stopped, or dead. Every node has a clock of its own, at "
                     "100 Hz; samples are counted in quarters of a second.")
            + f"<h3>What was promised</h3><ul>{promises}</ul><h3>What happened</h3><ul>{happened}</ul>"
            + "<h3>How long samples were under way</h3>"
            + figure(latencies, report, "From publish() to the thread that took the sample, by the clock of this host, a second "
                     "after the first sample and later."
                     + "".join(f" What {outage['node']} took after it was stopped was under way all that time."
                               for outage in report.outages if outage["what"] == "stopped"))
            + "<h3>How long it took to know a digit</h3>"
            + figure(decisions, report, "Without the sensor PFC has to forget the digit before; the sensor tells it "
                     "that another one is shown.")
            + "<h3>What was lost: nothing, or exactly what</h3>" + losses(report)
            + '<p class="note">Each row is one incarnation of the publisher. What a subscriber missed has a reason: '
              "expired (too old to act upon), overflow (more than the publisher's history), reconnect, history.</p>"
            + "<h3>What nodes heard of each other</h3>" + members(report)
            + "<h3>How spikes travelled</h3>" + codes(report)
            + '<p class="note">A bitmap, or a list of addresses, what is shorter: the list below a density of '
              "1 / log2(neurons).</p></section>")


def page(reports: list[Report]) -> str:
    body = "".join(act(report) for report in reports)
    return ('<!doctype html><html lang="en" class="page"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            '<meta name="color-scheme" content="light dark"><title>A distributed brain</title>'
            f"<style>{STYLE}{PAGE_STYLE}</style></head><body><main><h1>A distributed brain</h1>"
            "<p>PFC, Language (two processes that compute as a group), Vision and Motor are programs in C++ and "
            "Python which publish and subscribe; they read handwritten digits with spiking neurons. What follows "
            f"was measured in one run.</p>{body}</main></body></html>\n")


def main(run: str, target: str) -> None:
    reports = [Report(**report) for report in json.loads(Path(run).read_text())]
    text = timeline(reports[0], WIDE).svg(style=STYLE) if target.endswith(".svg") else page(reports)
    Path(target).write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
