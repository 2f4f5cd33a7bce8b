"""Figures of the laboratory: one style, intervals always drawn, colours all eyes tell apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stacksl.studies.rows import Row, half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C",
)  # fmt: skip
"""Okabe and Ito (2008), told apart under every common colour blindness, and a grey."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Each colour's own marker, so that no line is told by its colour alone."""

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
    """Whatever is drawn inside has the laboratory's style."""
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


def bars(rows: Sequence[Row], label: str, *, log: bool = False) -> Figure:
    """One metric of every row as a point with its 95 % interval, the paper's number as a cross."""
    with styled():
        figure, axes = canvas(height=0.8 + 0.22 * len(rows))
        ax = axes[0, 0]
        for place, row in enumerate(rows):
            half = half_width(row) or 0.0
            ax.errorbar(row.value, place, xerr=half, fmt="o", color=COLOURS[0], ms=4, capsize=2)
            if row.paper is not None:
                ax.plot(row.paper, place, "x", color=COLOURS[1], ms=6, mew=1.6)
        ax.set_yticks(range(len(rows)), [row.row for row in rows])
        ax.invert_yaxis()
        ax.set_xlabel(f"{label} (mean, 95 % interval over seeds; × the paper)")
        if log:
            ax.set_xscale("log")
    return figure


def curve(
    ax: Axes, rows: Sequence[Row], places: Sequence[float], name: str, number: int, **more: Any
) -> None:
    """Rows as a line over `places` with their intervals; colour and marker are the `number`-th."""
    colour = COLOURS[number % len(COLOURS)]
    ax.errorbar(
        places,
        [row.value if row.value is not None else float("nan") for row in rows],
        yerr=[half_width(row) or 0.0 for row in rows],
        label=name,
        color=colour,
        marker=MARKERS[number % len(MARKERS)],
        ms=4,
        capsize=2,
        lw=1.3,
        **more,
    )


def save(figures: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Write each figure as NAME.svg and NAME.png (200 dots an inch) in `folder`.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with styled():
        for name, figure in figures.items():
            for ending, more in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": 200})):
                path = folder / f"{name}.{ending}"
                figure.savefig(path, **more)
                written.append(path)
    return written
