"""What each difference between the presets is worth, measured in small synthetic worlds.

Every cell plays the real `Learner` on an array stream whose oracle answers at once, over seeds
that no other table of the project uses. A number is a mean over seeds with the half-width of its
95% t-interval; a study's first row is what the others are compared with, paired by seed.

    python benchmarks/preset_differences.py --json benchmarks/results/preset_differences.json
    python benchmarks/preset_differences.py --from benchmarks/results/preset_differences.json
    python benchmarks/preset_differences.py --from FILE --write docs/presets.md
    python benchmarks/preset_differences.py --quick --only gate

The worlds are in `_worlds.py`, the cells in `STUDIES`, the tables that the docs show in `SHOWN`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _cells import STUDIES, Cell
from _worlds import WORLDS, World

from stacksl import __version__
from stacksl.core import Gate, Scorer
from stacksl.core.calibration import calibrate_gate_scale, warmup_length, warmup_spreads
from stacksl.core.heads.linear import refit
from stacksl.core.learner import Learner, presented
from stacksl.runs.session.build_learner import build_learner
from stacksl.runs.settings.resolve import resolve
from stacksl.types import Decision
from stacksl_lab.baselines.registry import make_gate
from stacksl_lab.gradient import StudySettings, make_study_scorer
from stacksl_lab.language.cells import names_in_run
from stacksl_lab.learner import StudyLearner
from stacksl_lab.rewards import RewardRidge
from stacksl_lab.statistics.estimates import holds

FIRST_SEED = 7000
LONG = "paper's table"


def learner_of(cell: Cell, world: World, seed: int) -> tuple[Learner, bool]:
    """The cell's learner, and whether its final model is a refit."""
    budget = round(cell.labels * world.horizon) if cell.labels <= 1 else int(cell.labels)
    if cell.preset is not None:
        flags = {**cell.preset, "seed": seed, "budget": str(budget)}
        preset = flags.pop("preset", None)
        settings = resolve(names_in_run(flags), preset=preset).settings
        every = np.arange(world.horizon)
        learner = build_learner(settings, world.block(every), every.tolist(), budget)
        return learner, settings.refit
    bound = 1.0 if world.truth is None else float(np.linalg.norm(world.truth))
    wanted = StudySettings(**{"norm_bound": bound, **cell.settings})
    dim = int(world.rows.shape[-1])
    scorer = (
        make_study_scorer(cell.scorer, dim=dim, classes=world.classes, settings=wanted)
        if world.rewards is None
        else RewardRidge(dim, wanted)
    )
    learner = StudyLearner(
        scorer, gate_of(cell, world, scorer), budget=budget, horizon=world.horizon, seed=seed,
        kl_on_skips=cell.kl_on_skips,
    )  # fmt: skip
    return learner, True


def gate_of(cell: Cell, world: World, scorer: Scorer) -> Gate:
    """The cell's gate; `llf` gets c by the median rule under its cap unless c is given."""
    parameters = dict(cell.parameters)
    if cell.gate == "llf":
        warm = [world.inputs(t) for t in range(warmup_length(world.horizon))]
        spreads = warmup_spreads(scorer, warm, presented(warm, scorer, None))
        times = parameters.pop("medians", None)  # c without its cap
        if times is not None:
            parameters["gate_scale"] = times * float(np.median(spreads))
        kappa = parameters.pop("kappa", 1.0)
        parameters.setdefault("gate_scale", calibrate_gate_scale(spreads, kappa))
    return make_gate(cell.gate, **parameters)


def play(learner: Learner, world: World, watch: Callable[[], None]) -> list[Decision]:
    """One pass, each want reserved and answered at once."""
    played, asked = [], 0
    for t in range(world.horizon):
        block = [world.inputs(t)]
        shown = presented(block, learner.scorer, learner.top_k)
        [decision] = learner.decide([str(t)], block, shown, asked=asked)
        if decision.status == "wanted":
            decision = decision.reserved()
        learner.adopt([decision], block)
        if decision.asked:
            asked += 1
            learner.learn(decision, block[0], world.feedback(t, decision.choice))
        played.append(decision)
        watch()
    return played


def measure(cell: Cell, seed: int) -> dict[str, float]:
    """The cell's metrics for one seed."""
    world = WORLDS[cell.world](seed)
    learner, refits = learner_of(cell, world, seed)
    covered: list[bool] = []
    looks = "coverage" in cell.metrics
    played = play(learner, world, lambda: covered.append(looks and covers(learner, world)))
    bought = np.array([t for t, d in enumerate(played) if d.asked], dtype=np.int64)
    scorer: Any = learner.scorer
    numbers: dict[str, Callable[[], float]] = {
        "regret": lambda: regret(played, world),
        "total": lambda: regret(played, world) * world.horizon,
        "asked": lambda: len(bought) / world.horizon,
        "late": lambda: float((bought >= len(bought)).mean()) if len(bought) else 0.0,
        "coverage": lambda: float(np.mean(covered)),
        "radius": lambda: scorer.bounds(world.inputs(0), (0, 1)).radius,
        "accuracy": lambda: last(scorer, world),
        "refit": lambda: refitted(scorer, world, bought, seed),
        "final": lambda: refitted(scorer, world, bought, seed) if refits else last(scorer, world),
        "clipped": lambda: scorer.clipped / max(1, len(bought)),
        "moved": lambda: moved(scorer, world),
    }
    return {name: numbers[name]() for name in cell.metrics}


def regret(played: list[Decision], world: World) -> float:
    """Best true score minus the choice's, a round; for classes the share of wrong answers."""
    values = world.values[: len(played)]
    got = values[np.arange(len(played)), [d.choice for d in played]]
    return float((values.max(axis=1) - got).mean())


def covers(learner: Learner, world: World) -> bool:
    """Whether θ* lies in the scorer's confidence set now."""
    scorer: Any = learner.scorer
    trust = scorer.confidence if hasattr(scorer, "confidence") else scorer.tracker.blocks[0]
    radius = scorer.bounds(world.inputs(0), (0, 1)).radius
    return holds(trust, world.truth, scorer.theta, radius)


def moved(scorer: Any, world: World) -> float:
    """The largest change of an entry of θ by one KL-only step, over a hundred unseen items."""
    before, changes = scorer.theta.copy(), []
    for t in range(world.horizon, world.horizon + 100):
        inputs = world.inputs(t)
        scorer.step(inputs, tuple(range(inputs.size)), 0, None)
        changes.append(float(np.abs(scorer.theta - before).max()))
        before = scorer.theta.copy()
    return max(changes)


def tests(world: World) -> range:
    return range(world.horizon, len(world.rows))


def last(scorer: Scorer, world: World) -> float:
    """The test accuracy of θ as the pass left it."""
    return right([scorer.scores(world.inputs(t)) for t in tests(world)], world)


def refitted(scorer: Scorer, world: World, bought: np.ndarray, seed: int) -> float:
    """The test accuracy of the refit on the bought labels."""
    head = refit(world.block(bought), world.gold[bought], scorer.theta, seed)
    if head is None:
        return 0.0
    return right(list(head.probabilities(world.block(np.array(tests(world))))), world)


def right(scores: list[np.ndarray], world: World) -> float:
    """The share of test items whose truly best candidate scores highest."""
    best = world.values[world.horizon :].argmax(axis=1)
    return float(np.mean([int(s.argmax()) == b for s, b in zip(scores, best, strict=True)]))


def rows_of(study: str, cells: list[Cell], seeds: list[int]) -> list[dict[str, Any]]:
    """One row a metric: the mean, the half-width of its 95% interval, and each seed's value."""
    rows = []
    for cell in cells:
        measured = [measure(cell, seed) for seed in seeds]
        for metric in cell.metrics:
            values = [round(one[metric], 8) for one in measured]
            mean, half = interval(values)
            rows.append({
                "study": study, "row": cell.row, "settings": describe(cell), "metric": metric,
                "value": mean, "half": half, "seeds": len(seeds), "values": values,
            })  # fmt: skip
    return rows


def describe(cell: Cell) -> dict[str, Any]:
    """What differs from a default cell."""
    return {k: v for k, v in vars(cell).items()
            if k not in ("row", "metrics") and v not in ({}, None, False)}  # fmt: skip


def interval(values: list[float]) -> tuple[float, float | None]:
    """The mean and the half-width of its 95% t-interval; None for a single value."""
    from scipy.stats import t

    n = len(values)
    if n < 2:
        return float(np.mean(values)), None
    half = t.ppf(0.975, n - 1) * np.std(values, ddof=1) / math.sqrt(n)
    return float(np.mean(values)), float(half)


DECIMALS = {"regret": 4, "coverage": 2, "radius": 2, "total": 0}


def shown(values: list[float], metric: str, sign: bool = False) -> str:
    """Mean ± half-width; the mean alone where every seed gave the same, 0 where all are 0."""
    mean, half = interval(values)
    if not any(values):
        return "0"
    places = DECIMALS.get(metric, 3)
    if metric == "regret" and abs(mean) < 0.005:
        places = 5
    text = f"{mean:{'+' if sign else ''}.{places}f}".replace("-", "\u2212")
    return text if not half else f"{text} ± {half:.{places}f}"


def table(record: dict[str, Any], study: str) -> str:
    """A study as Markdown."""
    rows = [r for r in record["rows"] if r["study"] == study]
    metrics = list(dict.fromkeys(r["metric"] for r in rows))
    lines = [
        "| | " + " | ".join(HEADS[m] for m in metrics) + " |",
        "|---" * (len(metrics) + 1) + "|",
    ]
    for name in dict.fromkeys(r["row"] for r in rows):
        cells = {r["metric"]: shown(r["values"], r["metric"]) for r in rows if r["row"] == name}
        lines.append(f"| {name} | " + " | ".join(cells.get(m, "") for m in metrics) + " |")
    return "\n".join(lines)


HEADS = {
    "regret": "regret / T",
    "total": "regret",
    "asked": "labels / T",
    "late": "labels after round B",
    "coverage": "coverage",
    "radius": "radius at the end",
    "accuracy": "test accuracy of the last θ",
    "refit": "test accuracy of the refit",
    "final": "test accuracy of the final model",
    "clipped": "share clipped",
    "moved": "largest change of θ by a KL-only step",
}

BLOCK = re.compile(r"<!-- table: (.+?) -->\n.*?<!-- end -->", re.DOTALL)
INLINE = re.compile(r"[+\u2212]?\d[\d.]*(?: ± [\d.]+)?<!--([^>]+)-->")


def refreshed(text: str, record: dict[str, Any]) -> str:
    """`text` with its tables and its marked numbers as the record has them.

    A table stands between `<!-- table: STUDY -->` and `<!-- end -->`. A number is followed by
    `<!--STUDY/ROW/METRIC-->`, or by `<!--STUDY/ROW/METRIC/OTHER-->` for the paired difference
    of two rows.
    """
    text = BLOCK.sub(lambda m: f"<!-- table: {m[1]} -->\n{table(record, m[1])}\n<!-- end -->", text)
    return INLINE.sub(lambda m: f"{number(record, m[1])}<!--{m[1]}-->", text)


def number(record: dict[str, Any], name: str) -> str:
    """The number that a marker names."""
    study, row, metric, *other = name.split("/")
    values = {r["row"]: r["values"] for r in record["rows"]
             if (r["study"], r["metric"]) == (study, metric)}  # fmt: skip
    if not other:
        return shown(values[row], metric)
    pairs = zip(values[row], values[other[0]], strict=True)
    return shown([a - b for a, b in pairs], metric, sign=True)


def run(studies: list[str], seeds: list[int], json_file: Path | None) -> dict[str, Any]:
    """Measure the studies and, with `json_file`, write what was found."""
    start, rows = time.process_time(), []
    if json_file and json_file.exists() and set(studies) < set(STUDIES):
        before = json.loads(json_file.read_text(encoding="utf-8"))["rows"]
        rows = [r for r in before if r["study"] not in studies]
    for study in studies:
        rows += rows_of(study, STUDIES[study], seeds)
        print(f"{study}: {time.process_time() - start:.0f} s", file=sys.stderr)
    rows.sort(key=lambda r: list(STUDIES).index(r["study"]))
    record = {
        "version": __version__,
        "command": f"python benchmarks/preset_differences.py --seeds {len(seeds)}",
        "seeds": seeds,
        "rows": rows,
    }
    if json_file:
        json_file.write_text(json.dumps(record, indent=None, separators=(",", ":"))
                             .replace('{"study"', '\n{"study"') + "\n")  # fmt: skip
    return record


def main() -> None:
    """Measure, show, or refresh the docs; see the module's text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="the first seed")
    parser.add_argument("--quick", action="store_true", help="two seeds, without the long streams")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(STUDIES),
        help="these studies alone; others in --json stay",
    )
    parser.add_argument("--json", type=Path, help="write the rows here; --only keeps the others")
    parser.add_argument("--from", dest="source", type=Path, help="show the rows of this file")
    parser.add_argument("--write", type=Path, nargs="+", help="refresh the numbers of these pages")
    words = parser.parse_args()
    if words.source:
        record = json.loads(words.source.read_text(encoding="utf-8"))
    else:
        studies = words.only or [s for s in STUDIES if not (words.quick and s == LONG)]
        seeds = range(words.first, words.first + (2 if words.quick else words.seeds))
        record = run(studies, list(seeds), words.json)
    for page in words.write or ():
        page.write_text(refreshed(page.read_text(encoding="utf-8"), record), encoding="utf-8")
    if not words.write:
        for study in dict.fromkeys(r["study"] for r in record["rows"]):
            print(f"\n{study}\n\n{table(record, study)}")


if __name__ == "__main__":
    main()
