"""The command line and the file of rows that several benchmarks share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from stacksl.core.threads import one_thread
from stacksl.version import __version__

Row = dict[str, Any]
Cell = TypeVar("Cell", bound=tuple[Hashable, ...])


FLAGS: dict[str, dict[str, Any]] = {
    "--data": {"type": Path, "help": "the folder of the sets"},
    "--seeds": {"type": int, "default": 10},
    "--json": {"type": Path, "help": "write the rows here"},
    "--from": {"type": Path, "dest": "source", "help": "show the rows of this file"},
}


def words_of(text: str | None, *flags: str, goes_on: bool = False) -> Any:
    """The words of a call, with `data` or with `source`, the file whose rows are shown alone.

    Args:
        text: what the benchmark is; its help.
        flags: those it takes, "--data" and "--from" among them.
        goes_on: whether the rows that the file of "--json" has are kept.
    """
    parser = argparse.ArgumentParser(description=text)
    for flag in flags:
        kept = {"help": "write the rows here, and go on from what it has"}
        parser.add_argument(flag, **FLAGS[flag] | (kept if goes_on and flag == "--json" else {}))
    words = parser.parse_args()
    if words.source is None and words.data is None:
        parser.error("give --data DIR or --from FILE")
    return words


def interval(values: Any) -> tuple[float, float]:
    """Mean and half-width of its 95% t-interval over seeds."""
    from scipy.stats import t

    n = len(values)
    half = t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n) if n > 1 else float("nan")
    return float(np.mean(values)), float(half)


def read(file: Path) -> list[Row]:
    """The rows of a file."""
    rows: list[Row] = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return rows


def write(file: Path, rows: list[Row]) -> None:
    """Keep the rows, a line each, with the version that measured them."""
    lines = ",\n".join(json.dumps(row) for row in rows)
    text = f'{{"version": "{__version__}", "rows": [\n{lines}\n]}}\n'
    file.write_text(text, encoding="utf-8")


def write_record(file: Path, record: Row) -> None:
    """Write a record; a kill leaves the old one."""
    part = file.with_suffix(".part")
    part.write_text(json.dumps(record, indent=0) + "\n", encoding="utf-8")
    part.replace(file)


def go_on(
    file: Path | None,
    cells: Iterable[Cell],
    cell_of: Callable[[Row], Cell],
    measured: Callable[..., Iterable[Row]],
) -> list[Row]:
    """Measure the cells that the file does not hold yet, each kept before the next."""
    rows = read(file) if file is not None and file.exists() else []
    done = {cell_of(row) for row in rows}
    for cell in cells:
        if cell in done:
            continue
        with one_thread():
            rows += measured(*cell)
        print(*cell, file=sys.stderr)
        if file is not None:
            write(file, rows)
    return rows
