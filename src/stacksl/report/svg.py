"""A plot on a few functions: two linear scales and marks as SVG text.

Colours, strokes and fonts come from CSS classes of the page, so one drawing serves light, dark and
print. Coordinates are rounded to a tenth of a unit, so that equal numbers give equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

Points = Sequence[tuple[float, float | None]]


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
    y_words: Callable[[float], str],
    x_title: str,
) -> str:
    """Horizontal grid lines with their values, and the values and title under the box."""
    parts = []
    floor = frame.height - frame.bottom
    edge = frame.width - frame.right
    for value in y_ticks:
        at = frame.up(value)
        parts.append(f'<path class="grid" d="M{frame.left:.1f} {at:.1f}H{edge:.1f}"/>')
        parts.append(_text(frame.left - 8, at + 4, y_words(value), "end"))
    for value in x_ticks:
        at = frame.across(value)
        near_edge = at > edge - 12 and value == x_ticks[-1]
        anchor = "end" if near_edge else "middle"
        parts.append(_text(edge if near_edge else at, floor + 18, x_words(value), anchor))
    parts.append(f'<path class="axis" d="M{frame.left:.1f} {floor:.1f}H{edge:.1f}"/>')
    parts.append(_text(edge, frame.height - 4, x_title, "end", "title"))
    return "".join(parts)


def line(frame: Frame, points: Points, kind: str) -> str:
    """A line through the points in order; a point without a value breaks it."""
    steps = []
    pen = "M"
    for x, y in points:
        if y is None or not math.isfinite(y):
            pen = "M"
            continue
        steps.append(f"{pen}{frame.across(x):.1f} {frame.up(y):.1f}")
        pen = "L"
    return f'<path class="line {kind}" d="{"".join(steps)}"/>' if steps else ""


def area(frame: Frame, upper: Points, lower: Points, kind: str) -> str:
    """The area between two lines given at the same places."""
    there = [(x, y) for x, y in upper if y is not None]
    back = [(x, y) for x, y in reversed(lower) if y is not None]
    if len(there) < 2:
        return ""
    around = "L".join(f"{frame.across(x):.1f} {frame.up(y):.1f}" for x, y in there + back)
    return f'<path class="area {kind}" d="M{around}Z"/>'


def dots(frame: Frame, points: Points, kind: str) -> str:
    """One round mark a point, as a single path: thousands of them stay small and fast."""
    marks = "".join(
        f"M{frame.across(x):.1f} {frame.up(y):.1f}h0"
        for x, y in points
        if y is not None and math.isfinite(y)
    )
    return f'<path class="dots {kind}" d="{marks}"/>' if marks else ""


def _text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
