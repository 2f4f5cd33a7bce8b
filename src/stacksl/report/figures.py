"""The figures of the report, each drawn twice: wide for a desk and paper, narrow for a phone.

A figure that has nothing to show is an empty string; the page then says so in one sentence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from stacksl.report.facts import Facts
from stacksl.report.quality import Calibration
from stacksl.report.svg import Frame, area, axes, dots, drawing, line, ticks
from stacksl.report.wording import count, number, percent, plural

WIDE, NARROW = 640, 350


def _both(draw: Callable[[int, int], str]) -> str:
    """The drawing in both sizes; the page's style shows the one that fits."""
    return draw(WIDE, 230).replace('class="plot ', 'class="plot wide ', 1) + draw(
        NARROW, 240
    ).replace('class="plot ', 'class="plot narrow ', 1)


def _whole(value: float) -> str:
    return count(int(value))


def _share(value: float) -> str:
    return f"{100 * value:.0f}%"


def _share_range(values: Sequence[float]) -> tuple[float, float]:
    """A range of tenths around shares, at least three tenths high, inside 0..1."""
    low = math.floor(10 * min(values) + 1e-9) / 10
    high = math.ceil(10 * max(values) - 1e-9) / 10
    high = min(1.0, max(high, low + 0.3))
    return max(0.0, min(low, high - 0.3)), high


def accuracy_curve(facts: Facts) -> str:
    """Accuracy against labels bought, with the band of its 95% interval."""
    curve = facts.curve
    if len(curve) < 2:
        return ""
    chance = facts.test.chance if facts.test else None
    values = [value for point in curve for value in (point.low, point.high)]
    y = _share_range(values)
    x = (0.0, float(max(1, curve[-1].labels)))
    last = curve[-1]
    label = (
        f"Accuracy against labels bought: {percent(curve[0].accuracy)} with "
        f"{plural(curve[0].labels, 'label')}, {percent(last.accuracy)} with {count(last.labels)}."
    )

    def draw(width: int, height: int) -> str:
        frame = Frame(width, height, x, y)
        low = [(float(point.labels), point.low) for point in curve]
        high = [(float(point.labels), point.high) for point in curve]
        middle = [(float(point.labels), point.accuracy) for point in curve]
        guess = [(x[0], chance), (x[1], chance)] if chance and y[0] <= chance <= y[1] else []
        return drawing(
            frame,
            label,
            _grid(frame, width, "labels bought", _share),
            area(frame, high, low, "one"),
            line(frame, guess, "guide"),
            line(frame, middle, "one"),
            dots(frame, middle, "one big"),
        )

    return _both(draw)


def spending(facts: Facts) -> str:
    """Labels spent against rounds, beside the even pace that would spend the budget."""
    series = facts.rounds
    if not series.round:
        return ""
    horizon = float(max(facts.budget.horizon, series.round[-1]))
    measuring = facts.budget.audit + facts.budget.progress  # bought before round 1
    budget = facts.budget.labels - measuring
    top = float(max(1, budget, series.spent[-1]))
    label = f"Labels spent over rounds: {count(series.spent[-1])} of {count(budget)}."

    def draw(width: int, height: int) -> str:
        frame = Frame(width, height, (0.0, horizon), (0.0, top))
        spent = [(0.0, 0.0), *zip(map(float, series.round), map(float, series.spent), strict=True)]
        return drawing(
            frame,
            label,
            _grid(frame, width, "round", _whole),
            line(frame, [(0.0, 0.0), (horizon, float(budget))], "guide"),
            line(frame, spent, "one"),
        )

    return _both(draw)


def statistic_range(facts: Facts) -> tuple[tuple[float, float], int]:
    """The range that the statistic's figure shows, and how many of its dots are outside it.

    All values where they are of one size; the middle 98 % where a few would flatten the rest.
    """
    kept = [value for value in facts.rounds.statistic if _finite(value)]
    lines = [value for value in facts.rounds.threshold if _finite(value)]
    values = sorted(value for value in kept + lines if value is not None)
    if not values:
        return (0.0, 1.0), 0
    edge = len(values) // 100
    inner = (values[edge], values[-1 - edge])
    spread = inner[1] - inner[0]
    low, high = inner if values[-1] - values[0] > 4 * spread > 0 else (values[0], values[-1])
    margin = 0.04 * (high - low) or max(0.5, abs(high) / 10)
    low, high = low - margin, high + margin
    outside = sum(1 for value in kept if value is not None and not low <= value <= high)
    return (low, high), outside


def statistic(facts: Facts) -> str:
    """The gate's statistic of each round, bought or skipped, and its threshold."""
    series = facts.rounds
    if not any(_finite(value) for value in series.statistic):
        return ""
    y, _ = statistic_range(facts)
    horizon = float(max(facts.budget.horizon, series.round[-1]))
    label = f"The gate's statistic and threshold over {plural(len(series.round), 'round')}."
    rows = list(zip(map(float, series.round), series.statistic, series.asked, strict=True))

    def draw(width: int, height: int) -> str:
        frame = Frame(width, height, (0.0, horizon), y, left=52)
        threshold = list(zip(map(float, series.round), series.threshold, strict=True))
        return drawing(
            frame,
            label,
            _grid(frame, width, "round", number),
            dots(frame, [(at, value) for at, value, asked in rows if not asked], "mute"),
            dots(frame, [(at, value) for at, value, asked in rows if asked], "one"),
            line(frame, threshold, "two"),
        )

    return _both(draw)


def calibration(found: Calibration | None) -> str:
    """Accuracy against confidence by bin; on the diagonal the probabilities are right."""
    if found is None or not found.bins:
        return ""
    label = f"Accuracy against confidence in {plural(len(found.bins), 'bin')}."
    frame = Frame(380, 360, (0.0, 1.0), (0.0, 1.0))
    fifths = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    most = max(entry.n for entry in found.bins)
    marks = []
    for entry in found.bins:
        x, y = frame.across(entry.confidence), frame.up(entry.accuracy)
        reach = 3.5 + 8 * math.sqrt(entry.n / most)
        marks.append(
            f'<path class="line gap" d="M{x:.1f} {frame.up(entry.confidence):.1f}V{y:.1f}"/>'
        )
        said = (
            f"{percent(entry.confidence)} sure, {percent(entry.accuracy)} right, "
            f"{plural(entry.n, 'item')}"
        )
        marks.append(
            f'<circle class="bin" cx="{x:.1f}" cy="{y:.1f}" r="{reach:.1f}">'
            f"<title>{said}</title></circle>"
        )
    return drawing(
        frame,
        label,
        axes(frame, fifths, fifths, _share, _share, "confidence of the final model"),
        line(frame, [(0.0, 0.0), (1.0, 1.0)], "guide"),
        *marks,
        kind="square",
    )


def _grid(frame: Frame, width: int, x_title: str, y_words: Callable[[float], str]) -> str:
    """Axes with a number of ticks that fits the width; whole numbers across."""
    low, high = frame.x
    across = ticks(max(0.0, low), high, 8 if width == WIDE else 4, whole=True)
    upwards = ticks(*frame.y, 5, whole=y_words is _whole)
    if y_words is _share:
        upwards = [value for value in upwards if 0 <= value <= 1]
    return axes(frame, across, upwards, _whole, y_words, x_title)


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
