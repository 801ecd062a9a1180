# SPDX-License-Identifier: Apache-2.0
"""Plots of one act of the brain, as SVG: the timeline, latencies, decisions."""

import math
from html import escape
from statistics import median

from report import BIN_S, NODES, TOPICS, Report

# Colours that people with red-green blindness can distinguish (Okabe and Ito): a darker set on light ground and a
# lighter one on dark ground.
STYLE = """
.page{--ground:#fff;--ink:#1a1f24;--soft:#55606b;--grid:#d8dee4;--band:#f3e3d3;
--blue:#0072b2;--orange:#b34a00;--green:#00785a;--purple:#9c4f80;--line:#1a1f24}
@media(prefers-color-scheme:dark){.page{--ground:#10151a;--ink:#e8ebee;--soft:#a3adb8;--grid:#303840;--band:#3a2c1d;
--blue:#56b4e9;--orange:#f0953a;--green:#35c79b;--purple:#e0a3c6;--line:#e8ebee}}
.page text{font:13px system-ui,sans-serif;fill:var(--ink)}
.page text.soft{fill:var(--soft);font-size:12px}
.page .grid{stroke:var(--grid);fill:none}
.page .band{fill:var(--band)}
.page .blue{stroke:var(--blue)}.page .orange{stroke:var(--orange)}
.page .green{stroke:var(--green)}.page .purple{stroke:var(--purple)}
.page .grey{stroke:var(--soft)}.page .line{stroke:var(--line)}
.page .blue.on{fill:var(--blue)}.page .orange.on{fill:var(--orange)}
.page .green.on{fill:var(--green)}.page .purple.on{fill:var(--purple)}.page .grey.on{fill:var(--soft)}
.page .curve{fill:none;stroke-width:1.8;stroke-linejoin:round}
"""
NODE_COLOURS = {"pfc": "blue", "vision": "orange", "motor": "green", "language": "purple", "language-1": "purple",
                "sensor": "grey", "router": "blue"}
TOPIC_COLOURS = {"pfc/control": "blue", "vision/objects": "orange", "lang/features": "purple",
                 "motor/status": "green", "sensor/new_data": "grey"}
RIGHT = 14
STILL_S = 0.3
NARROW = 600  # a narrower drawing is for a phone


class Drawing:
    """Elements of one SVG."""

    def __init__(self, width: int, title: str) -> None:
        self.width = width
        self.height = 0
        self._title = title
        self._parts: list[str] = []

    def text(self, x: float, y: float, text: str, *, soft: bool = False, anchor: str = "start") -> None:
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{"soft" if soft else "loud"}">'
                           f"{escape(text)}</text>")

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self._parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>')

    def box(self, x: float, y: float, width: float, height: float, kind: str, says: str = "") -> None:
        self._parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" '
                           f'class="{kind}" stroke="none">{_title(says)}</rect>')

    def dot(self, x: float, y: float, radius: float, kind: str, says: str = "") -> None:
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" class="{kind}">{_title(says)}</circle>')

    def curve(self, points: list[tuple[float, float]], kind: str) -> None:
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polyline points="{text}" class="curve {kind}"/>')

    def svg(self, *, style: str = "") -> str:
        ground = f'<rect width="{self.width}" height="{self.height}" fill="var(--ground)"/>' if style else ""
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" class="page" role="img">'
                f"<title>{escape(self._title)}</title>{f'<style>{style}</style>' if style else ''}{ground}"
                + "".join(self._parts) + "</svg>")


def _title(says: str) -> str:
    return f"<title>{escape(says)}</title>" if says else ""


class Timeline:
    """Panels below each other that share an axis of time."""

    def __init__(self, report: Report, width: int) -> None:
        self._report = report
        self._drawing = Drawing(width, "What happened, over time")
        self._narrow = width < NARROW
        self._left = 92 if self._narrow else 132
        self._y = 8.0

    def _x(self, seconds: float) -> float:
        share = min(max(seconds / self._report.seconds, 0.0), 1.0)
        return self._left + share * (self._drawing.width - self._left - RIGHT)

    def draw(self) -> Drawing:
        drawing = self._drawing
        self._arm()
        self._lives()
        self._rates()
        bottom = self._y
        step = 10 if self._narrow else 5
        for second in range(0, int(self._report.seconds) + 1, step):
            drawing.line(self._x(second), bottom - 4, self._x(second), bottom, "grid")
            drawing.text(self._x(second), bottom + 14, f"{second}", soft=True, anchor="middle")
        drawing.text((self._left + drawing.width - RIGHT) / 2, bottom + 32, "time [s]", soft=True, anchor="middle")
        drawing.height = int(bottom + 42)
        return drawing

    def _bands(self, top: float, height: float) -> None:
        for outage in self._report.outages:
            since, until = self._x(outage["since"]), self._x(outage["until"])
            self._drawing.box(since, top, until - since, height, "band", f"{outage['node']} {outage['what']}, "
                              f"{outage['since']:.1f} to {outage['until']:.1f} s")

    def _arm(self) -> None:
        drawing, top, height = self._drawing, self._y + 22, 150.0

        def y(digit: float) -> float:
            return top + height - 8 - digit / 9 * (height - 16)

        drawing.text(4, self._y + 12, "What was shown (bars), and where the arm pointed (line)")
        self._bands(top, height)
        for digit in range(10):
            drawing.line(self._left, y(digit), drawing.width - RIGHT, y(digit), "grid")
            if digit % 3 == 0:
                drawing.text(self._left - 8, y(digit) + 4, f"{digit}", soft=True, anchor="end")
        drawing.text(4, y(4.5) + 4, "digit", soft=True)
        shown = self._report.shown
        for frame, end in zip(shown, [*(each["since"] for each in shown[1:]), self._report.seconds], strict=True):
            since = self._x(frame["since"])
            drawing.box(since, y(frame["digit"]) - 4, self._x(end) - since - 1, 8, "blue on",
                        f"{frame['since']:.1f} s: {frame['digit']} was shown, the arm "
                        f"{'pointed at it' if frame['right'] else 'did not reach it'}")
        stretch: list[tuple[float, float]] = []
        for at, position in self._report.arm:
            if stretch and at > last + STILL_S:  # the arm was stopped: its path in between is unknown
                drawing.curve(stretch, "line")
                stretch = []
            # Two points are enough for a straight line.
            if len(stretch) > 1 and stretch[-1][1] == stretch[-2][1] == y(position):
                stretch.pop()
            stretch.append((self._x(at), y(position)))
            last = at
        drawing.curve(stretch, "line")
        self._y = top + height + 12

    def _lives(self) -> None:
        drawing, top, row = self._drawing, self._y + 22, 20.0
        names = [name for name in (*NODES, "sensor", "router")
                 if any(life["node"] == name for life in self._report.lives)]
        drawing.text(4, self._y + 12, "Which processes lived")
        self._bands(top, row * len(names))
        for number, name in enumerate(names):
            y = top + row * number
            drawing.text(4, y + 14, name)
            for life in self._report.lives:
                if life["node"] != name:
                    continue
                since, until = self._x(life["since"]), self._x(life["until"])
                colour = NODE_COLOURS[name]
                drawing.box(since, y + 4, until - since, row - 8, f"{colour} on",
                            f"{name}: {life['since']:.1f} to {life['until']:.1f} s, {life['end']}")
                if life["end"] == "killed":
                    drawing.text(until + 5, y + 14, "killed" if self._narrow else self._noticed(life), soft=True)
        self._y = top + row * len(names) + 14

    def _noticed(self, life: dict) -> str:
        """Returns the text about when the other nodes noticed a death."""
        after = sorted(event["at"] - life["until"] for event in self._report.told if event["kind"] == "lost"
                       and event["member"].startswith(life["node"]) and event["at"] >= life["until"] - STILL_S)
        return f"known in {max(after[0], 0) * 1e3:.0f} ms" if after else "killed"

    def _rates(self) -> None:
        drawing, row, most = self._drawing, 44.0, 130.0
        keys = [key for key in TOPICS if key in self._report.rates]
        drawing.text(4, self._y + 12, "Samples a second on each topic [1/s]")
        top = self._y + 22
        self._bands(top, row * len(keys))
        for number, key in enumerate(keys):
            base = top + row * (number + 1) - 4

            def y(rate: float, base: float = base) -> float:
                return base - min(rate, most) / most * (row - 8)

            drawing.line(self._left, base, drawing.width - RIGHT, base, "grid")
            drawing.line(self._left, y(100), drawing.width - RIGHT, y(100), "grid")
            drawing.text(self._left - 6, y(100) + 4, "100", soft=True, anchor="end")
            drawing.text(self._left - 6, base + 3, "0", soft=True, anchor="end")
            drawing.text(4, base - 12, key.split("/")[0] if self._narrow else key, soft=True)
            rates = self._report.rates[key]
            drawing.curve([(self._x((index + 0.5) * BIN_S), y(rate)) for index, rate in enumerate(rates[:-1])],
                          TOPIC_COLOURS[key])
        self._y = top + row * len(keys) + 4


def timeline(report: Report, width: int) -> Drawing:
    return Timeline(report, width).draw()


def latencies(report: Report, width: int) -> Drawing:
    """Plots the latency that 50 % and 99 % of the samples stayed within, for each topic and subscriber."""
    rows = report.steady_accounts()
    drawing = Drawing(width, "How long samples were under way")
    left, row, top = (130 if width < NARROW else 240), 22.0, 30.0
    low, high = 10.0, 10_000.0
    high = max([high, *(account["p99_us"] * 1.3 for account in rows)])

    def x(microseconds: float) -> float:
        share = math.log(max(microseconds, low) / low) / math.log(high / low)
        return left + share * (width - left - RIGHT)

    bottom = top + row * len(rows)
    decade = low
    while decade <= high:
        drawing.line(x(decade), top, x(decade), bottom, "grid")
        says = f"{decade:.0f} us" if decade < 1000 else f"{decade / 1000:.0f} ms"
        drawing.text(x(decade), bottom + 16, says, soft=True, anchor="middle")
        decade *= 10
    drawing.text((left + width - RIGHT) / 2, bottom + 36, "time under way (logarithmic)", soft=True,
                 anchor="middle")
    drawing.dot(left + 4, 12, 4, "blue on")
    drawing.text(left + 13, 16, "half of all (p50)", soft=True)
    drawing.dot(left + 124, 12, 4, "orange on")
    drawing.text(left + 133, 16, "99 of 100 (p99)", soft=True)
    for number, account in enumerate(rows):
        y = top + row * (number + 0.5)
        says = f"{account['key']} to {account['subscriber']}: p50 {account['p50_us']:.0f} us, " \
               f"p99 {account['p99_us']:.0f} us of {account['timed']}"
        key = account["key"].split("/")[0] if width < NARROW else account["key"]
        drawing.text(4, y + 4, f"{key} to {account['subscriber']}", soft=True)
        drawing.line(x(account["p50_us"]), y, x(account["p99_us"]), y, "line")
        drawing.dot(x(account["p50_us"]), y, 4.5, "blue on", says)
        drawing.dot(x(account["p99_us"]), y, 4.5, "orange on", says)
    drawing.height = int(bottom + 46)
    return drawing


def decisions(report: Report, width: int) -> Drawing:
    """Plots for each digit how long PFC took to decide on the right one."""
    drawing = Drawing(width, "Until PFC knew the digit")
    frames = [frame for frame in report.shown if frame["counts"] and frame["decided_ms"] is not None]
    left, top, height = 64.0, 30.0, 160.0
    most = 100 * math.ceil(max([100.0, *(frame["decided_ms"] for frame in frames)]) / 100)

    def x(seconds: float) -> float:
        return left + seconds / report.seconds * (width - left - RIGHT)

    def y(milliseconds: float) -> float:
        return top + height - milliseconds / most * height

    for value in range(0, most + 1, 100):
        drawing.line(left, y(value), width - RIGHT, y(value), "grid")
        drawing.text(left - 6, y(value) + 4, f"{value}", soft=True, anchor="end")
    drawing.text(4, top - 12, "[ms]", soft=True)
    drawing.dot(left + 8, 12, 4, "orange on")
    drawing.text(left + 17, 16, "without the sensor", soft=True)
    drawing.dot(left + 148, 12, 4, "blue on")
    drawing.text(left + 157, 16, "with it", soft=True)
    for frame in frames:
        drawing.dot(x(frame["since"]), y(frame["decided_ms"]), 4, "blue on" if frame["sensor"] else "orange on",
                    f"{frame['digit']}, shown at {frame['since']:.1f} s: {frame['decided_ms']:.0f} ms")
    for sensor, found in report.decision_times().items():
        if found:
            drawing.line(left, y(median(found)), width - RIGHT, y(median(found)), "blue" if sensor else "orange")
    for second in range(0, int(report.seconds) + 1, 10 if width < NARROW else 5):
        drawing.text(x(second), top + height + 16, f"{second}", soft=True, anchor="middle")
    drawing.text((left + width - RIGHT) / 2, top + height + 34, "when the digit appeared [s]; lines: medians",
                 soft=True, anchor="middle")
    drawing.height = int(top + height + 44)
    return drawing
