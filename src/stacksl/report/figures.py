"""The curve of the report as SVG, whose colors and fonts come from CSS classes of the page.

Coordinates are rounded to a tenth of a unit, so that equal numbers give equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from stacksl.report.quality import CurvePoint
from stacksl.report.wording import count, percent, plural

WIDTH, HEIGHT = 440, 230  # units, of which a phone shows 350 pixels
LEFT, TOP, RIGHT, BOTTOM = 46, 12, 14, 44  # margins, for the text of the axes


def accuracy_curve(curve: Sequence[CurvePoint]) -> str:
    """Accuracy against labels bought, with its 95% interval; empty with fewer than two points."""
    if len(curve) < 2:
        return ""
    final, max_labels = curve[-1], max(1, curve[-1].labels)
    low = math.floor(10 * min(point.low for point in curve) + 1e-9)
    high = math.ceil(10 * max(point.high for point in curve) - 1e-9)
    high = min(10, max(high, low + 3))  # tenths around the shares, three of them at least
    low = max(0, min(low, high - 3))
    floor, edge = HEIGHT - BOTTOM, WIDTH - RIGHT

    def across(labels: int) -> float:
        return LEFT + (edge - LEFT) * labels / max_labels

    def up(share: float) -> float:
        return floor - (floor - TOP) * (10 * share - low) / (high - low)

    def through(points: Iterable[tuple[int, float]], step: str = "L") -> str:
        return step.join(f"{across(labels):.1f} {up(share):.1f}" for labels, share in points)

    marks = []
    for tenth in range(low, high + 1, 1 if high - low <= 5 else 2):
        y = up(tenth / 10)
        marks.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{edge}"/>')
        marks.append(_text(LEFT - 8, y + 4, f"{10 * tenth}%", "end"))
    for labels in range(0, max_labels + 1, round_step(max_labels)):
        at_edge = across(labels) > edge - 12
        x = edge if at_edge else across(labels)
        marks.append(_text(x, floor + 18, count(labels), "end" if at_edge else "middle"))
    marks.append(f'<path class="axis" d="M{LEFT} {floor}H{edge}"/>')
    marks.append(_text(edge, HEIGHT - 6, "labels bought", "end"))
    middle = [(point.labels, point.accuracy) for point in curve]
    band = [(point.labels, point.high) for point in curve]
    band += [(point.labels, point.low) for point in reversed(curve)]
    marks.append(f'<path class="area" d="M{through(band)}Z"/>')
    marks.append(f'<path class="line" d="M{through(middle)}"/>')
    marks.append(f'<path class="dots" d="M{through(middle, "h0M")}h0"/>')
    label = (
        f"Accuracy against labels bought: {percent(curve[0].accuracy)} with "
        f"{plural(curve[0].labels, 'label')}, {percent(final.accuracy)} with {count(final.labels)}."
    )
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{escape(label)}">{"".join(marks)}</svg>'
    )


def round_step(max_labels: int) -> int:
    """The smallest of 1, 2, 5, 10, 20, ... of which four steps reach `max_labels`.

    >>> round_step(1), round_step(10003), round_step(2000)
    (1, 5000, 500)
    """
    steps: Iterator[int] = (
        times * 10**power for power in range(len(str(max_labels)) + 1) for times in (1, 2, 5)
    )
    return next(step for step in steps if 4 * step >= max_labels)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'
