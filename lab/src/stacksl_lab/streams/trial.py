"""A study of synthetic streams: the streams, the lines of the table played on each, their rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias, final

from stacksl_lab.study.bench import Bench, Job, Wanted, program_hash
from stacksl_lab.study.rows import Row
from stacksl_lab.study.store import Numbers, Store
from stacksl_lab.study.study import QUICK, Line, Study, rows_of
from stacksl_lab.synthetic.streams import make_stream

if TYPE_CHECKING:
    from collections.abc import Iterable

Samples: TypeAlias = Mapping[str, Mapping[str, Sequence[float]]]
"""The numbers of each line (by its row's name) and metric, one a seed, in the order of seeds."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Lines that one process plays under one seed, on a stream that is made once.

    Attributes:
        source: everything that fixes the stream but the seed; plain values that JSON can hold.
        lines: what is played on it.
    """

    source: Mapping[str, Any]
    lines: tuple[Line, ...]

    def key(self, line: Line, seed: int, code: str) -> str:
        """A hash of what fixes the numbers of `line` under `seed`, `code` being the program's."""
        text = json.dumps(
            [self.source, line.settings, line.budget_fraction, seed, code], sort_keys=True
        )
        return blake2b(text.encode(), digest_size=12).hexdigest()


@final
@dataclass(frozen=True, slots=True)
class StreamStudy(Study):
    """A claim about the gate or the bounds, and the streams that test it.

    Attributes:
        trials: its streams; the argument asks for a few small ones that only show that the command
            works.
        measure: the numbers of one line on a stream under a seed.
        stream: makes the stream of a source under a seed. Other processes look for both functions
            by name, at the top level of their modules.
        derive: rows made of all seeds together (ratios, slopes), with intervals of their own.
        summary: what `--json` has under `summary`, one object a line.
    """

    trials: Callable[[bool], Sequence[Trial]]
    measure: Callable[[Any, Line, int], Numbers]
    stream: Callable[..., Any] = make_stream
    derive: Callable[[Samples], Sequence[Row]] | None = None
    summary: Callable[[Samples], Sequence[Mapping[str, Any]]] | None = None

    def store_file(self) -> str:
        """A file for each study: their program text differs."""
        return f"{self.name}.jsonl"

    def about(self, bench: Bench, seeds: Sequence[int]) -> Mapping[str, Any]:
        """See `Study.about`: its summary, where it has one."""
        if self.summary is None:
            return {}
        return {"summary": list(self.summary(samples(self.numbers(bench, seeds))))}

    def rows(self, bench: Bench, seeds: Sequence[int]) -> list[Row]:
        """See `Study.rows`."""
        return self.rows_from(self.numbers(bench, seeds), bench.quick)

    def numbers(self, bench: Bench, seeds: Sequence[int]) -> dict[str, list[Numbers]]:
        """The numbers of every line by its row's name, one mapping a seed, in their order.

        Raises:
            Wanted: some are missing.
        """
        trials, code = self.trials(bench.quick), program_hash()
        wanted = [j for t in trials for j in self._missing(t, seeds, bench.store, code)]
        if wanted:
            raise Wanted(wanted)
        return {
            line.row: [_numbers(bench.store, trial.key(line, seed, code)) for seed in seeds]
            for trial in trials
            for line in trial.lines
        }

    def rows_from(self, by_row: Mapping[str, Sequence[Numbers]], quick: bool = False) -> list[Row]:
        """The rows that these numbers make: means over seeds, then what is derived."""
        rows: list[Row] = []
        for trial in self.trials(quick):
            for line in trial.lines:
                marks = [*line.marks, *([QUICK] if quick else [])]
                settings = {**trial.source, **line.settings, "marks": marks}
                rows += rows_of(self, line, by_row[line.row], [settings], line.paper)
        return rows if self.derive is None else [*rows, *self.derive(samples(by_row))]

    def _missing(
        self, trial: Trial, seeds: Iterable[int], store: Store, code: str
    ) -> Iterator[Job]:
        """A job for each seed with the lines that are still to be measured under it."""
        for seed in seeds:
            keyed = [(trial.key(line, seed, code), line) for line in trial.lines]
            wanted = [(key, line) for key, line in keyed if store.get(key) is None]
            if wanted:
                keys, lines = zip(*wanted, strict=True)
                how = (self.stream, self.measure)
                yield Job(keys, play_trial, (*how, trial.source, lines, seed), f"seed {seed}")


def play_trial(
    stream: Callable[..., Any],
    measure: Callable[[Any, Line, int], Numbers],
    source: Mapping[str, Any],
    lines: Sequence[Line],
    seed: int,
) -> list[Numbers]:
    """The numbers of some lines of a trial under a seed, in their order."""
    instance = stream(**source, seed=seed)
    return [measure(instance, line, seed) for line in lines]


def _numbers(store: Store, key: str) -> Numbers:
    numbers = store.get(key)
    assert numbers is not None
    assert not isinstance(numbers, str)
    return numbers


def samples(by_row: Mapping[str, Sequence[Numbers]]) -> dict[str, dict[str, list[float]]]:
    """The same numbers by row, metric and seed; no metric that a seed has no number of."""
    return {
        row: {
            metric: [float(x) for x in values if x is not None]
            for metric in dict.fromkeys(name for numbers in per_seed for name in numbers)
            if None not in (values := [numbers.get(metric) for numbers in per_seed])
        }
        for row, per_seed in by_row.items()
    }
