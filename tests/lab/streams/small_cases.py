"""Studies of streams that are measured in a second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stacksl_lab.streams.trial import StreamStudy, Trial
from stacksl_lab.synthetic.streams import make_stream


def shrunk(study: StreamStudy, rounds: int, dim: int) -> StreamStudy:
    trials = [
        Trial({**one.source, "rounds": rounds, "dim": dim}, one.lines) for one in study.trials(True)
    ]
    return replace(study, trials=lambda quick: trials)


def rows_by_line(study: StreamStudy, measure: Callable[..., Any]) -> dict[str, list[Any]]:
    """What `measure` finds of each line under the seeds 0 and 1."""
    return {
        line.row: [measure(make_stream(**one.source, seed=seed), line, seed) for seed in (0, 1)]
        for one in study.trials(True)
        for line in one.lines
    }
