"""A study of the laboratory: lines of a table, the streams they share, and what plays them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias

from stacksl.studies.rows import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["LabStudy", "Line", "Numbers", "Samples", "Trial"]

Numbers: TypeAlias = Mapping[str, float | None]
"""What one line gives under one seed, by metric; `asked_fraction` is no metric of its own."""

Samples: TypeAlias = Mapping[str, Mapping[str, Sequence[float]]]
"""The numbers of each line (by its row's name) and metric, one a seed, in the order of seeds."""


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table, as it is asked for.

    Attributes:
        row: its name, no other line of the study's has it.
        settings: everything that fixes it beside its world; plain values that JSON can hold.
        budget_fraction: labels that may be bought / rounds; None where no labels are bought.
        paper: the paper's numbers, by metric.
        marks: sentences that stand beside the row.
    """

    row: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    budget_fraction: float | None = None
    paper: Mapping[str, float] = field(default_factory=dict)
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """Lines that one process plays under one seed, on a stream that is made once.

    Attributes:
        world: everything that fixes the stream but the seed; plain values that JSON can hold.
        lines: what is played on it.
    """

    world: Mapping[str, Any]
    lines: tuple[Line, ...]

    def key(self, line: Line, seed: int, code: str) -> str:
        """A hash of what fixes the numbers of `line` under `seed`, `code` being the program's."""
        text = json.dumps(
            [self.world, line.settings, line.budget_fraction, seed, code], sort_keys=True
        )
        return blake2b(text.encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class LabStudy:
    """A claim about the gate or the bounds, and the streams that test it.

    Attributes:
        name: what `stacksl reproduce` takes.
        title: of its table.
        claim: what is claimed, one sentence.
        cost: what it takes, one sentence.
        metrics: in the order of the table's columns.
        seeds: how many it has unless told otherwise, from 0.
        trials: its grid; the argument asks for a small one that only shows that the command works.
        play: what gives the numbers of some lines of a world under a seed, in their order: a
            function at the top level of a module, since other processes look for it by name.
        derive: rows made of all seeds together (ratios, slopes), with intervals of their own.
        summary: what `--json` has under `summary`, a line each.
        layout: the rows as markdown, where a metric a column does not read well.
        figures: the study's figures by file name, from its rows.
    """

    name: str
    title: str
    claim: str
    cost: str
    metrics: tuple[str, ...]
    seeds: int
    trials: Callable[[bool], Sequence[Trial]]
    play: Callable[[Mapping[str, Any], Sequence[Line], int], Sequence[Numbers]]
    derive: Callable[[Samples], Sequence[Row]] | None = None
    summary: Callable[[Samples], Sequence[Mapping[str, Any]]] | None = None
    layout: Callable[[Sequence[Row]], str] | None = None
    figures: Callable[[Sequence[Row]], Mapping[str, Figure]] | None = None
