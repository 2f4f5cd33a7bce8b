"""The engines of many dimensions: bars 4, 5, 8, 9, 14, 15 and 17 in one interleaved run.

    python benchmarks/engines.py [--json FILE] [--repetitions 5] [--case 384,4] [--quick]

The round is that of `learner_round.py`: Algorithm 1 with every round labelled. One process and one
thread; jobs in turn, a ratio inside each repetition, its median over them. Times are CPU seconds
of the process, since neighbours load the machine. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy is imported: it reads them once

import numpy as np  # noqa: E402
from contenders import ours, peers  # noqa: E402
from contenders.cases import SETTINGS, Absent, Case, Job  # noqa: E402
from scipy.linalg import blas, solve_triangular  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from stacksl.game import LLF, Contested, First, ScorerSettings  # noqa: E402
from stacksl.game.engines import run_stream  # noqa: E402
from stacksl.game.engines.blocked import block_of  # noqa: E402

PRECISIONS = ("exact", "mixed", "float32")

# (bar, case, slower, faster, at least so many times)
BARS = (
    (4, "(384, 4)", "naive", "exact", 130.0),
    (4, "(384, 4)", "numpy", "exact", 3.5),
    (4, "(384, 4)", "contextualbandits", "exact", 13.0),
    (5, "(384, 4)", "naive", "mixed", 155.0),
    (5, "(384, 4)", "numpy", "mixed", 4.5),
    (5, "(384, 4)", "naive", "float32", 210.0),
    (5, "(384, 4)", "numpy", "float32", 6.0),
    (8, "(2560, 5)", "naive", "exact", 550.0),
    (8, "(2560, 5)", "naive", "float32", 1050.0),
    (8, "(2560, 5)", "numpy", "exact", 7.5),
    (8, "(2560, 5)", "numpy", "float32", 14.0),
)


def cpu_timed(job: Job) -> Job:
    """The job on the process's CPU clock: its own clock is replaced, its rounds stay."""

    def timed() -> float:
        for module in (ours, peers):
            module.perf_counter = time.process_time
        return job()

    return timed


def engine_job(case: Case, engine: str, precision: str) -> Job:
    """`run_stream` as a user calls it, every round labelled, certificates off."""

    def job() -> float:
        start = time.process_time()
        run_stream(
            "sgd",
            case.phi,
            labels=case.labels,
            gate=LLF(0.0),
            budget=case.rounds,
            settings=SETTINGS,
            certificates=False,
            engine=engine,  # type: ignore[arg-type]
            precision=precision,  # type: ignore[arg-type]
        )
        return (time.process_time() - start) / case.rounds

    return job


def floor_job(case: Case) -> Job:
    """The bare products of a block: images of its rows, and the update of one triangle."""
    block = block_of(case.candidates, 1)
    rows = case.phi[:block].reshape(-1, case.dim)
    gram_inv, images = np.eye(case.dim), np.empty_like(rows)
    halves = np.full((block, case.dim), 1e-9)

    def job() -> float:
        blocks = max(1, case.rounds // block)
        start = time.process_time()
        for _ in range(blocks):
            np.dot(rows, gram_inv, out=images)
            blas.dsyrk(-1.0, halves.T, 1.0, gram_inv.T, overwrite_c=1)
        return (time.process_time() - start) / (blocks * block)

    return job


def few_rounds(case: Case, rounds: int, make: Callable[[Case], Job]) -> Job:
    """A slow contender on the first rounds only: its cost does not depend on t."""
    short = Case(case.dim, case.candidates, rounds)
    short.__dict__["phi"], short.__dict__["labels"] = case.phi[:rounds], case.labels[:rounds]
    return make(short)


def jobs_of(case: Case, naive: bool) -> tuple[dict[str, Job], dict[str, str]]:
    """The jobs of a case by name, and why others are absent."""
    wide = case.dim > 1000
    jobs = {precision: engine_job(case, "blocked", precision) for precision in PRECISIONS}
    jobs["stepwise"] = engine_job(case, "stepwise", "exact")
    jobs["floor"] = floor_job(case)
    absent: dict[str, str] = {}
    slow = {"numpy": few_rounds(case, min(case.rounds, 24 if wide else 1000), sherman)}
    if naive:
        slow["naive"] = few_rounds(case, 1 if wide else 6, ours.inverting)
    try:
        slow["contextualbandits"] = peers.contextualbandits(case)
    except Absent as reason:
        absent["contextualbandits"] = str(reason)
    if wide:
        slow.pop("contextualbandits", None)
        absent["contextualbandits"] = "K matrices of 52 MB"
    return jobs | {name: cpu_timed(job) for name, job in slow.items()}, absent


def sherman(case: Case) -> Job:
    return ours.sherman_morrison(case)


def measure(jobs: dict[str, Job], repetitions: int) -> list[dict[str, float]]:
    """Seconds a round of every job, a row a repetition; the first repetition is thrown away."""
    rows = [{name: job() for name, job in jobs.items()} for _ in range(repetitions + 1)]
    return rows[1:]


def ratio(rows: list[dict[str, float]], slow: str, fast: str) -> float:
    """The median over repetitions of how many times as long `slow` takes."""
    return statistics.median(row[slow] / row[fast] for row in rows)


def timed_case(case: Case, repetitions: int, naive: bool) -> tuple[list[Any], list[Any]]:
    """The rows of a case, and its bars."""
    jobs, absent = jobs_of(case, naive)
    rows = measure(jobs, repetitions)
    table = [
        {
            "case": case.name,
            "contender": name,
            "microseconds": statistics.median(row[name] for row in rows) * 1e6,
            "times_exact": ratio(rows, name, "exact"),
        }
        for name in jobs
    ]
    table += [{"case": case.name, "contender": name, "absent": why} for name, why in absent.items()]
    bars = [
        bar(number, f"{name}: {fast} against {slow}", ratio(rows, slow, fast), least=least)
        for number, name, slow, fast, least in BARS
        if name == case.name and slow in jobs
    ]
    over = ratio(rows, "exact", "floor")
    bars.append(bar(9, f"{case.name}: exact over bare GEMM + syrk", over, most=1.35))
    return table, bars


def bar(
    number: int, what: str, measured: float, least: float | None = None, most: float | None = None
) -> dict[str, Any]:
    """A bar with what was measured."""
    met = (least is None or measured >= least) and (most is None or measured <= most)
    limit = {"least": least} if most is None else {"most": most}
    return {"number": number, "bar": what, **limit, "measured": measured, "met": bool(met)}


def unit(generator: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    """Rows of norm 1."""
    drawn = generator.normal(size=shape)
    return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)


def width_error(phi: np.ndarray[Any, Any], ridge: float, precision: str) -> float:
    """The largest relative error of a width after all rounds: fresh rows and the last item's."""
    rounds, _, dim = phi.shape
    played = run_stream(
        "ridge",
        phi,
        rewards=np.random.default_rng(3).normal(size=phi.shape[:2]),
        gate=First(),
        budget=rounds,
        settings=ScorerSettings(ridge=ridge, action="ucb"),
        certificates=False,
        engine="blocked",
        precision=precision,  # type: ignore[arg-type]
    )
    assert played.gram_inv is not None
    gram = ridge * np.eye(dim, dtype=np.longdouble)
    for part in np.array_split(np.arange(rounds), max(1, rounds // 10_000)):
        chosen = phi[part, played.choices[part]].astype(np.longdouble)
        gram += chosen.T @ chosen
    probes = np.vstack([unit(np.random.default_rng(4), 256, dim), phi[-1]])
    factor = np.linalg.cholesky(gram.astype(np.float64))
    truth = np.linalg.norm(solve_triangular(factor, probes.T, lower=True), axis=0)
    squares = np.einsum("ij,jk,ik->i", probes, played.gram_inv, probes)
    return float(np.abs(np.sqrt(np.maximum(squares, 0.0)) / truth - 1.0).max())


def width_bars(quick: bool) -> list[dict[str, Any]]:
    """Bars 14 and 15: a million updates, and a hundred thousand by five candidates."""
    generic, repeats = (50_000, 10_000) if quick else (1_000_000, 100_000)
    generator = np.random.default_rng(5)
    fresh = unit(generator, generic, 1, 20)
    again = np.repeat(unit(generator, 1, 5, 20), repeats, axis=0)
    found = [bar(14, f"{generic} updates", width_error(fresh, 1.0, "exact"), most=1e-9)]
    for number, precision, most in (
        (14, "exact", 1e-5),
        (15, "mixed", 1e-4),
        (15, "float32", 1e-4),
    ):
        error = width_error(again, 1e-3, precision)
        found.append(bar(number, f"{repeats} repeats: {precision}", error, most=most))
    return found


def agreement_bars() -> list[dict[str, Any]]:
    """Bar 17: decisions of the engines against the loop's; the naive ones are in the tests."""
    found = []
    for candidates, rounds in ((4, 200), (10, 200), (512, 20)):
        phi = unit(np.random.default_rng(6), rounds, candidates, 24)
        labels = np.random.default_rng(7).integers(candidates, size=rounds)
        given: dict[str, Any] = {"gate": Contested(), "budget": rounds // 2, "labels": labels}
        loop = run_stream("newton", phi, **given, engine="loop")
        for engine in ("fused", "blocked", "stepwise"):
            played = run_stream("newton", phi, **given, engine=engine)
            differ = int(
                (played.choices != loop.choices).sum() + (played.asked != loop.asked).sum()
            )
            apart = float(np.abs(played.theta - loop.theta).max())
            found.append(
                bar(17, f"K = {candidates}: {engine}, decisions that differ", differ, most=0)
            )
            found.append(bar(17, f"K = {candidates}: {engine}, theta", apart, most=1e-10))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--case", help="d,K of one case, such as 384,4, or 'none'")
    parser.add_argument("--no-naive", action="store_true", help="leave out V inverted every round")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, for a busy machine")
    options = parser.parse_args()
    load = os.getloadavg()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    cases = (
        Case(384, 4, 1_364 if options.quick else 6_820),
        Case(2560, 5, 405 if options.quick else 810),
    )
    rows: list[Any] = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of other libraries
        bars = width_bars(options.quick) + agreement_bars()
        for case in cases:
            if options.case in (None, f"{case.dim},{case.candidates}"):
                table, found = timed_case(case, options.repetitions, not options.no_naive)
                rows, bars = rows + table, bars + found
    for row in rows:
        print(row)
    for one in bars:
        print(f"bar {one['number']:2} {'met   ' if one['met'] else 'MISSED'} {one['bar']}: "
              f"{one['measured']:.4g} of {one.get('least', one.get('most')):g}")  # fmt: skip
    if options.json:
        facts = {
            "command": "python benchmarks/engines.py " + " ".join(sys.argv[1:]),
            "load": {"before": load, "after": os.getloadavg()},
            "repetitions": options.repetitions,
            "rounds": {case.name: case.rounds for case in cases},
            "python": sys.version.split()[0],
            "numpy": np.__version__,
            "rows": rows,
            "bars": bars,
        }
        options.json.write_text(json.dumps(facts, indent=1) + "\n")
    return 0 if all(one["met"] for one in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
