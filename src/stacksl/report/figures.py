"""The figures of the report, each drawn twice: wide for a desk and paper, narrow for a phone.

A figure that has nothing to show is an empty string; the page then says so in one sentence.

Colors, strokes and fonts come from CSS classes of the page, so one drawing serves light, dark and
print. Coordinates are rounded to a tenth of a unit, so that equal numbers give equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from stacksl.report.facts import Facts
from stacksl.report.quality import Calibration
from stacksl.report.wording import count, percent, plural

WIDE, NARROW = 640, 350


def _share(value: float) -> str:
    return f"{100 * value:.0f}%"


def accuracy_curve(facts: Facts) -> str:
    """Accuracy against labels bought, with the band of its 95% interval."""
    curve = facts.curve
    if len(curve) < 2:
        return ""
    chance = facts.test.chance if facts.test else None
    values = [value for point in curve for value in (point.low, point.high)]
    low, high = math.floor(10 * min(values) + 1e-9) / 10, math.ceil(10 * max(values) - 1e-9) / 10
    high = min(1.0, max(high, low + 0.3))  # tenths around the shares, three of them at least
    y = max(0.0, min(low, high - 0.3)), high
    x = (0.0, float(max(1, curve[-1].labels)))
    last = curve[-1]
    label = (
        f"Accuracy against labels bought: {percent(curve[0].accuracy)} with "
        f"{plural(curve[0].labels, 'label')}, {percent(last.accuracy)} with {count(last.labels)}."
    )

    def draw(width: int, height: int, most: int) -> str:
        frame = Frame(width, height, x, y)
        low = [(float(point.labels), point.low) for point in curve]
        high = [(float(point.labels), point.high) for point in curve]
        middle = [(float(point.labels), point.accuracy) for point in curve]
        guess = [(x[0], chance), (x[1], chance)] if chance and y[0] <= chance <= y[1] else []
        across = ticks(*x, most, whole=True)
        upwards = [value for value in ticks(*y, 5) if 0 <= value <= 1]
        return drawing(
            frame,
            label,
            axes(frame, across, upwards, lambda value: count(int(value)), "labels bought"),
            area(frame, high, low, "one"),
            line(frame, guess, "guide"),
            line(frame, middle, "one"),
            dots(frame, middle, "one big"),
            kind="wide" if width == WIDE else "narrow",  # the page's style shows the one that fits
        )

    return draw(WIDE, 230, 8) + draw(NARROW, 240, 4)


def calibration(measured: Calibration | None) -> str:
    """Accuracy against confidence by bin; on the diagonal the probabilities are right."""
    if measured is None or not measured.bins:
        return ""
    label = f"Accuracy against confidence in {plural(len(measured.bins), 'bin')}."
    frame = Frame(380, 360, (0.0, 1.0), (0.0, 1.0))
    fifths = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    most = max(entry.n for entry in measured.bins)
    marks = []
    for entry in measured.bins:
        x, y = frame.across(entry.confidence), frame.up(entry.accuracy)
        reach = 3.5 + 8 * math.sqrt(entry.n / most)
        marks.append(
            f'<path class="line gap" d="M{x:.1f} {frame.up(entry.confidence):.1f}V{y:.1f}"/>'
        )
        tooltip = (
            f"{percent(entry.confidence)} sure, {percent(entry.accuracy)} right, "
            f"{plural(entry.n, 'item')}"
        )
        marks.append(
            f'<circle class="bin" cx="{x:.1f}" cy="{y:.1f}" r="{reach:.1f}">'
            f"<title>{tooltip}</title></circle>"
        )
    return drawing(
        frame,
        label,
        axes(frame, fifths, fifths, _share, "confidence of the final model"),
        line(frame, [(0.0, 0.0), (1.0, 1.0)], "guide"),
        *marks,
        kind="square",
    )


Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Frame:
    """A box of `width` by `height` units with margins, and the data ranges its inside shows.

    Attributes:
        x, y: (low, high) of the data; y grows upwards.
        left, top, right, bottom: margins in units, for the text of the axes.
    """

    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]
    left: float = 46
    top: float = 12
    right: float = 14
    bottom: float = 40

    def across(self, value: float) -> float:
        """The horizontal place of a data value, in units from the left."""
        low, high = self.x
        inside = self.width - self.left - self.right
        return self.left + inside * (value - low) / (high - low)

    def up(self, value: float) -> float:
        """The vertical place of a data value, in units from the top, kept inside the box."""
        low, high = self.y
        inside = self.height - self.top - self.bottom
        share = (min(max(value, low), high) - low) / (high - low)
        return self.height - self.bottom - inside * share


def ticks(low: float, high: float, most: int, *, whole: bool = False) -> list[float]:
    """At most `most` + 1 round numbers, apart by 1, 2 or 5 times a power of ten, in [low, high].

    >>> ticks(0, 10003, 6)
    [0.0, 2000.0, 4000.0, 6000.0, 8000.0, 10000.0]
    >>> ticks(0, 1, 5, whole=True)
    [0.0, 1.0]
    """
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= raw * (1 - 1e-9))
    if whole:
        step = max(1.0, step)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(f"{index * step:.12g}") + 0.0 for index in range(first, last + 1)]


def drawing(frame: Frame, label: str, *marks: str, kind: str = "") -> str:
    """The marks as one SVG element, with the sentence that a screen reader says."""
    size = f"0 0 {frame.width:g} {frame.height:g}"
    body = "".join(marks)
    return (
        f'<svg class="plot {kind}" viewBox="{size}" role="img" '
        f'aria-label="{escape(label, quote=True)}">{body}</svg>'
    )


def axes(
    frame: Frame,
    x_ticks: Sequence[float],
    y_ticks: Sequence[float],
    x_words: Callable[[float], str],
    x_title: str,
) -> str:
    """Horizontal grid lines with their shares, and the values and title under the box."""
    parts = []
    floor = frame.height - frame.bottom
    edge = frame.width - frame.right
    for value in y_ticks:
        at = frame.up(value)
        parts.append(f'<path class="grid" d="M{frame.left:.1f} {at:.1f}H{edge:.1f}"/>')
        parts.append(_text(frame.left - 8, at + 4, _share(value), "end"))
    for value in x_ticks:
        at = frame.across(value)
        near_edge = at > edge - 12 and value == x_ticks[-1]
        anchor = "end" if near_edge else "middle"
        parts.append(_text(edge if near_edge else at, floor + 18, x_words(value), anchor))
    parts.append(f'<path class="axis" d="M{frame.left:.1f} {floor:.1f}H{edge:.1f}"/>')
    parts.append(_text(edge, frame.height - 4, x_title, "end", "title"))
    return "".join(parts)


def line(frame: Frame, points: Points, kind: str) -> str:
    """A line through the points in order."""
    steps = "L".join(f"{frame.across(x):.1f} {frame.up(y):.1f}" for x, y in points)
    return f'<path class="line {kind}" d="M{steps}"/>' if points else ""


def area(frame: Frame, upper: Points, lower: Points, kind: str) -> str:
    """The area between two lines given at the same places."""
    edge = [*upper, *reversed(lower)]
    around = "L".join(f"{frame.across(x):.1f} {frame.up(y):.1f}" for x, y in edge)
    return f'<path class="area {kind}" d="M{around}Z"/>'


def dots(frame: Frame, points: Points, kind: str) -> str:
    """One round mark a point, as a single path."""
    marks = "".join(f"M{frame.across(x):.1f} {frame.up(y):.1f}h0" for x, y in points)
    return f'<path class="dots {kind}" d="{marks}"/>'


def _text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
