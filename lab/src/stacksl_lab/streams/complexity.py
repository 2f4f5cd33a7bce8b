"""`complexity`: growth of time and memory of a run with d, K, B and T.

One of the four is varied at a time, the others stay at `BASE`. A time is the median of `REPEATS`
runs of the same stream, after one that warms up; it belongs to the machine that measured it, and
only its slope is a claim.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stacksl.core.rng import generator
from stacksl_lab.engines import StreamResult
from stacksl_lab.figures.complexity import figures, layout
from stacksl_lab.statistics.intervals import bootstrapped, slope_over
from stacksl_lab.streams.trial import Samples, StreamStudy, Trial
from stacksl_lab.study.rows import Row
from stacksl_lab.study.store import Numbers
from stacksl_lab.study.study import Line
from stacksl_lab.synthetic.playing import play
from stacksl_lab.synthetic.streams import SyntheticStream, sphere

AXES: Sequence[str] = ("d", "K", "B", "T")
BASE: Mapping[str, int] = {"d": 128, "K": 8, "B": 400, "T": 4000}
SWEEPS: Mapping[str, Sequence[int]] = {
    "d": (128, 192, 256, 384, 512),
    "K": (2, 4, 8, 16, 32),
    "B": (125, 250, 500, 1000, 2000),
    "T": (1000, 2000, 4000, 8000, 16_000),
}
QUICK_BASE: Mapping[str, int] = {"d": 8, "K": 4, "B": 20, "T": 200}
QUICK_SWEEPS: Mapping[str, Sequence[int]] = {
    "d": (8, 16), "K": (4, 8), "B": (20, 40), "T": (200, 400),
}  # fmt: skip
REPEATS = 3
NOISE = 0.3

Count = Callable[[int, int, int, int], float]
"""Products counted, as a function of d, K, B, T: what time should be a multiple of."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to play whose cost is measured.

    Attributes:
        gate, action: the gate's parameters, and the scorer's action.
        certificates: whether every round is certified.
        counted: the products that the engine is meant to make.
    """

    gate: Mapping[str, Any]
    action: str
    certificates: bool
    counted: Count


def _widths(d: int, k: int, b: int, t: int) -> float:
    """A width of every candidate in every round: T·K·d²."""
    return float(t * k * d * d)


def _early_widths(d: int, k: int, b: int, t: int) -> float:
    """Widths while labels are left, of which LLF buys one per round; scores: B·K·d² + T·K·d."""
    return float(b * k * d * d + t * k * d)


def _no_widths(d: int, k: int, b: int, t: int) -> float:
    """Scores, and the update of V⁻¹ when a label comes: T·K·d + B·d²."""
    return float(t * k * d + b * d * d)


def paper_time(d: int, k: int, b: int, t: int) -> float:
    """The paper's count, Section 4: B·d·K + (T − B)·d."""
    return float(b * d * k + (t - b) * d)


def paper_memory(d: int, k: int, b: int, t: int) -> float:
    """The paper's memory, Section 4: d² + d·K."""
    return float(d * d + d * k)


def held(d: int, k: int, b: int, t: int) -> float:
    """Numbers that a stream holds: V⁻¹, a round's images, seven columns of a line a round."""
    return float(d * d + d * k + 7 * t)


KINDS: Mapping[str, Kind] = {
    "LLF, UCB every round": Kind({"name": "llf"}, "ucb", False, _widths),
    "LLF, greedy": Kind({"name": "llf"}, "greedy", False, _early_widths),
    "first, greedy": Kind({"name": "first"}, "greedy", False, _no_widths),
    "contested, certified": Kind(
        {"name": "contested", "width_scale": 1.0}, "greedy", True, _widths
    ),
}
"""Algorithm 2 as printed; with D6; what needs no widths; and what needs them in every round."""


def _row(kind: str, axis: str, value: int) -> str:
    return f"{kind}, {axis} = {value:,}"


def trials(quick: bool) -> Sequence[Trial]:
    """One stream for each size; a size that several sweeps share is in each of them."""
    base, sweeps = (QUICK_BASE, QUICK_SWEEPS) if quick else (BASE, SWEEPS)
    streams = []
    for axis, values in sweeps.items():
        for value in values:
            sizes = {**base, axis: value}
            lines = [
                Line(_row(kind, axis, value), {"kind": kind, "axis": axis}, sizes["B"] / sizes["T"])
                for kind in KINDS
            ]
            streams.append(Trial(sizes, tuple(lines)))
    return streams


def stream_of(seed: int, d: int, K: int, B: int, T: int) -> SyntheticStream:
    """Rewards of T rounds; B is the lines' own."""
    rng = generator(seed, "complexity", d, K, T)
    features, truth = sphere(rng, T, K, d), rng.normal(size=d)
    values = features @ truth
    rewards = values + NOISE * rng.normal(size=(T, 1))
    tests = features[:1]
    return SyntheticStream(features, values, rewards, None, truth, NOISE, K, tests, values[:1])


def measure(stream: SyntheticStream, line: Line, seed: int) -> Numbers:
    """Seconds of one run, and the most memory it holds besides its input."""
    kind, budget = KINDS[line.settings["kind"]], line.budget(stream.horizon)

    def run() -> StreamResult:
        settings = {"action": kind.action}
        return play(
            stream, kind.gate, budget, settings=settings, seed=seed, certificates=kind.certificates
        )

    run()  # loads what is compiled, which is neither time nor memory of a run
    played, peak = _traced(run)
    times = [_timed(run) for _ in range(REPEATS)]
    return {
        "milliseconds": 1e3 * statistics.median(times),
        "peak_mib": peak / 2**20,
        "asked_fraction": float(played.asked.mean()),
    }


def _timed(run: Callable[[], object]) -> float:
    """Seconds of processor time, which other processes lengthen less than the clock's."""
    start = time.process_time()
    run()
    return time.process_time() - start


def _traced(run: Callable[[], StreamResult]) -> tuple[StreamResult, int]:
    """What it gives and the most bytes it held at once."""
    tracemalloc.start()
    try:
        played = run()
        return played, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def derive(samples: Samples) -> list[Row]:
    """Slopes of log time and log memory over d, K, B, T: of all points, and of the last two."""
    complete = _row(next(iter(KINDS)), "d", SWEEPS["d"][-1]) in samples
    base, sweeps = (BASE, SWEEPS) if complete else (QUICK_BASE, QUICK_SWEEPS)
    machine = _machine()
    return [
        row
        for kind in KINDS
        for axis, places in sweeps.items()
        for row in _slopes(kind, axis, places, base, machine, samples)
    ]


def _slopes(
    kind: str,
    axis: str,
    places: Sequence[int],
    base: Mapping[str, int],
    machine: str,
    samples: Samples,
) -> Iterator[Row]:
    """Slopes of time and of memory along `axis`: of all points, then of the last two."""
    numbers = [samples[_row(kind, axis, value)] for value in places]
    settings = {"kind": kind, "axis": axis, "machine": machine}
    ours = {"milliseconds": KINDS[kind].counted, "peak_mib": held}
    for metric, count in ours.items():
        for name, start in (("slope", 0), ("end slope", -2)):
            ends = places[start:]
            sizes = [_sizes({**base, axis: value}) for value in ends]
            over = [sample[metric] for sample in numbers[start:]]
            yield _slope_row(metric, name, over, ends, sizes, count, settings)


def _slope_row(
    metric: str,
    name: str,
    over: Sequence[Sequence[float]],
    places: Sequence[int],
    sizes: Sequence[tuple[int, int, int, int]],
    count: Count,
    settings: Mapping[str, Any],
) -> Row:
    """A measured slope with that of the paper's count and that of `count` over the same points."""
    paper = {"milliseconds": paper_time, "peak_mib": paper_memory}[metric]
    value, error = bootstrapped(slope_over(places), over)
    return Row(
        "complexity", f"{settings['kind']}, over {settings['axis']}", f"{name} of {metric}",
        value, error, len(over[0]), paper=_slope_of(paper, places, sizes),
        settings={**settings, "counted": _slope_of(count, places, sizes)},
    )  # fmt: skip


def _sizes(source: Mapping[str, int]) -> tuple[int, int, int, int]:
    return source["d"], source["K"], source["B"], source["T"]


def _slope_of(
    count: Count, places: Sequence[int], sizes: Sequence[tuple[int, int, int, int]]
) -> float:
    """The slope that a count has over the very points that were measured."""
    return round(float(slope_over(places)(np.array([count(*size) for size in sizes]))), 6)


def _machine() -> str:
    """What the numbers were measured on: processor, cores, system."""
    name, cpus = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if cpus.is_file():
        models = [n for n in cpus.read_text().splitlines() if n.startswith("model name")]
        name = models[0].partition(":")[2].strip() if models else name
    return f"{name}, {os.cpu_count()} cores, {platform.system()}"


COMPLEXITY = StreamStudy(
    name="complexity",
    title="Time and memory of a run",
    claim="time is O(BdK + (T − B)d) and memory O(d² + dK)",
    cost="80 lines of up to 16,000 rounds per seed, about 3 minutes of one core for five seeds,"
    " with `--jobs 1`",
    metrics=("milliseconds", "peak_mib"),
    seeds=5,
    trials=trials,
    measure=measure,
    stream=stream_of,
    derive=derive,
    table=layout,
    figures=figures,
)
