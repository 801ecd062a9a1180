# SPDX-License-Identifier: Apache-2.0
"""Draws times by size, both logarithmic, as an SVG that is readable on light and on dark pages."""

import math
import statistics
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 860, 460
LEFT, RIGHT, TOP, BOTTOM = 76, 210, 58, 52
LABEL_GAP = 18
# Wong's colours, which people with colour-blindness can distinguish; (on light, on dark).
COLOURS = [("#0072b2", "#56b4e9"), ("#009e73", "#2fcf9f"), ("#d55e00", "#ff8f3f"),
           ("#a8588c", "#e29bc8"), ("#6b6b6b", "#b0b0b0"), ("#8a6d00", "#e6c229")]
STYLE = """text {{ font: 13px "DejaVu Sans", Verdana, Helvetica, Arial, sans-serif; fill: #1a1a1a }}
.title {{ font-weight: bold; font-size: 16px }}
.page {{ fill: #ffffff }}
.grid {{ stroke: #d8d8d8; stroke-width: 1 }}
.line {{ fill: none; stroke-width: 2.5 }}
.range {{ stroke-width: 1.5 }}
{light}
@media (prefers-color-scheme: dark) {{
text {{ fill: #e8e8e8 }}
.page {{ fill: #0d1117 }}
.grid {{ stroke: #3c3c3c }}
{dark}
}}"""


def colour_rules(which: int) -> str:
    return "\n".join(f".s{i} {{ stroke: {pair[which]} }} .f{i} {{ fill: {pair[which]} }}"
                     for i, pair in enumerate(COLOURS))


def spread_labels(heights: list[float]) -> list[float]:
    """Returns the heights in the same order, moved down where two labels would overlap."""
    placed = list(heights)
    order = sorted(range(len(heights)), key=heights.__getitem__)
    for upper, lower in zip(order, order[1:]):
        placed[lower] = max(placed[lower], placed[upper] + LABEL_GAP)
    return placed


def time_text(time_us: float) -> str:
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        if time_us >= scale:
            return f"{time_us / scale:g} {unit}"
    return f"{time_us:g} µs"


@dataclass(frozen=True)
class Panel:
    """series: name -> {size in bytes: microseconds of each round}; has at least one point."""

    title: str
    what: str
    series: dict[str, dict[int, list[float]]]


def colour_of(name: str, drawn: list[str]) -> int:
    """Returns the colour: Tendon's series have the first colours in every plot, then its peers."""
    own = [each for each in drawn if each.startswith("Tendon")]
    peers = [each for each in drawn if each not in own]
    return own.index(name) if name in own else (max(2, len(own)) + peers.index(name)) % len(COLOURS)


def drawn_panel(panel: Panel, size_names: dict[int, str], sizes_of: str) -> list[str]:
    times = [time_us for points in panel.series.values() for rounds in points.values()
             for time_us in rounds]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    high = max(high, low + 1)
    first, last = math.log10(min(size_names)), math.log10(max(size_names))

    def x_of(size_bytes: int) -> float:
        return LEFT + (math.log10(size_bytes) - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def y_of(time_us: float) -> float:
        return TOP + (high - math.log10(time_us)) / (high - low) * (HEIGHT - TOP - BOTTOM)

    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = [f'<text x="{LEFT}" y="24" class="title">{escape(panel.title)}</text>',
             f'<text x="{LEFT}" y="44">{escape(panel.what)}, p50: median of the rounds, bars from '
             "the least to the greatest; both axes logarithmic, lower is better</text>"]
    for exponent in range(low, high + 1):
        y = y_of(10.0**exponent)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/><text x="{LEFT - 8}" '
                     f'y="{y + 4:.1f}" text-anchor="end">{time_text(10.0**exponent)}</text>')
    for size_bytes, name in size_names.items():
        x = x_of(size_bytes)
        parts.append(f'<path class="grid" d="M{x:.1f} {TOP}V{bottom}"/><text x="{x:.1f}" '
                     f'y="{bottom + 20}" text-anchor="middle">{escape(name)}</text>')
    parts.append(f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">'
                 f"{escape(sizes_of)}</text>")

    drawn = {name: sorted(points.items()) for name, points in panel.series.items() if points}
    labels = spread_labels([y_of(statistics.median(points[-1][1])) for points in drawn.values()])
    for (name, points), label_y in zip(drawn.items(), labels):
        colour = colour_of(name, list(drawn))
        places = [(x_of(size), y_of(statistics.median(rounds)), y_of(max(rounds)),
                   y_of(min(rounds))) for size, rounds in points]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y, _, _ in places)
        parts.append(f'<path class="line s{colour}" d="M{path}"/>')
        parts += [f'<path class="range s{colour}" d="M{x:.1f} {top:.1f}V{end:.1f}"/>'
                  f'<circle class="f{colour}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
                  for x, y, top, end in places]
        parts.append(f'<text x="{right + 12}" y="{label_y + 4:.1f}" '
                     f'style="font-weight:bold" class="f{colour}">{escape(name)}</text>')
    return parts


def times_by_size(panels: list[Panel], size_names: dict[int, str],
                  sizes_of: str = "size of the batch") -> str:
    """Stacks the panels vertically."""
    height = HEIGHT * len(panels)
    style = STYLE.format(light=colour_rules(0), dark=colour_rules(1))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
             f'width="{WIDTH}" height="{height}" role="img">',
             f"<title>{escape('; '.join(panel.title for panel in panels))}</title>",
             f"<style>{style}</style>", f'<rect class="page" width="{WIDTH}" height="{height}"/>']
    for i, panel in enumerate(panels):
        parts += [f'<g transform="translate(0 {i * HEIGHT})">',
                  *drawn_panel(panel, size_names, sizes_of), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"
