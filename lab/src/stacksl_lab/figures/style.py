"""Figures of the laboratory: one style, intervals always drawn, colors distinct for all eyes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stacksl_lab.study.rows import Row, half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C",
)  # fmt: skip
"""Okabe and Ito (2008), distinct under every common color blindness, and a gray."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Each color's own marker, so that no line depends on its color alone."""

_STYLE: Mapping[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "stacksl",
    "svg.fonttype": "none",
    "figure.constrained_layout.use": True,
}


@contextmanager
def styled() -> Iterator[None]:
    """Figures drawn inside have the laboratory's style."""
    import matplotlib as mpl

    with mpl.rc_context(cast("Any", _STYLE)):
        yield


def canvas(
    rows: int = 1, columns: int = 1, width: float = 6.4, height: float = 3.6
) -> tuple[Figure, Any]:
    """A figure of `rows` by `columns` axes, (rows, columns), that needs no display; inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def ends_of(row: Row) -> tuple[float, float]:
    """The ends of a row's 95% interval; its value where it has none."""
    value, half = row.value or 0.0, half_width(row) or 0.0
    return value - half, value + half


def dots(
    ax: Axes,
    series: Mapping[str, Sequence[Row]],
    names: Sequence[str],
    name_of: Callable[[Row], str],
    ends: Callable[[Row], tuple[float, float]] = ends_of,
    *,
    named: bool = True,
) -> None:
    """Series of rows as points with their intervals, a color and marker each.

    Args:
        ax: the axes.
        series: rows by the label of their series.
        names: the heights, from the top down; written on the left where `named`.
        name_of: the name of a row among them.
        ends: of a row's interval.
        named: see `names`.
    """
    for place, (label, rows) in enumerate(series.items()):
        shown = [row for row in rows if row.value is not None]
        aside = 0.16 * (place - (len(series) - 1) / 2)
        reach = [
            (max((r.value or 0.0) - low, 0.0), max(high - (r.value or 0.0), 0.0))
            for r in shown
            for low, high in [ends(r)]
        ]
        ax.errorbar(
            [row.value or 0.0 for row in shown],
            [names.index(name_of(row)) + aside for row in shown],
            xerr=list(zip(*reach, strict=True)),
            fmt=MARKERS[place],
            color=COLORS[place],
            label=label,
            ms=4,
            capsize=2,
        )
    ax.set_yticks(range(len(names)), names if named else [""] * len(names))
    ax.set_ylim(len(names) - 0.5, -0.5)


def log_ratio(ax: Axes) -> None:
    """A logarithmic axis of ratios, with plain numbers at 1, 2 and 5."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
    ax.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def log_log(ax: Axes, places: Sequence[float]) -> None:
    """Logarithmic axes, the lower one with the numbers `places` alone, thousands as `k`."""
    from matplotlib.ticker import NullFormatter

    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(list(places), [f"{p / 1000:g}k" if p >= 1000 else f"{p:g}" for p in places])
    ax.xaxis.set_minor_formatter(NullFormatter())


def curve(
    ax: Axes, rows: Sequence[Row], places: Sequence[float], name: str, number: int, **keywords: Any
) -> None:
    """Rows as a line over `places` with their intervals; color and marker are the `number`-th."""
    color = COLORS[number % len(COLORS)]
    ax.errorbar(
        places,
        [row.value if row.value is not None else float("nan") for row in rows],
        yerr=[half_width(row) or 0.0 for row in rows],
        label=name,
        color=color,
        marker=MARKERS[number % len(MARKERS)],
        ms=4,
        capsize=2,
        lw=1.3,
        **keywords,
    )


def save(figures: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Write each figure as NAME.svg in `folder`.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with styled():
        for name, figure in figures.items():
            written.append(folder / f"{name}.svg")
            figure.savefig(written[-1], metadata={"Date": None})
    return written
