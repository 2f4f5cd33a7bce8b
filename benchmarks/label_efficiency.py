"""What a label buys: test accuracy of gates at equal budgets on the streams that users have.

Banking77 (77 intents of bank customers) with frozen sentence features, one pass, the final model
refitted on the bought labels, as `stacksl run` does it:

- `shuffled`: the training file in an order shuffled by the seed;
- `rare`: half of the intents, drawn by the seed, keep a tenth of their rows;
- `late`: three quarters of the rows of the early half of the intents come first, then the rest
  of them mixed with all rows of the late half.

    python benchmarks/label_efficiency.py $STACKSL_DATA/banking77 --json results.json
    python benchmarks/label_efficiency.py --from results.json --figure picture

The test file is the same, balanced one throughout, and nothing is ever chosen on it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _rows import interval, write_record

from stacksl import __version__
from stacksl.core.blocks import Block
from stacksl.core.heads.linear import refit
from stacksl.core.learner import Learner, presented
from stacksl.core.rng import generator
from stacksl.core.threads import one_thread
from stacksl.data import Dataset, read
from stacksl.features import make_features
from stacksl.runs.items.roles import order_of
from stacksl.runs.session.build_learner import build_learner
from stacksl.runs.settings.budget import parse_budget
from stacksl.runs.settings.resolve import resolve
from stacksl.types import Label
from stacksl_lab.baselines.capacity import with_corpus_capacity
from stacksl_lab.baselines.reserve import Reserve

STREAMS = ("shuffled", "rare", "late")
GATES = ("margin", "information", "reserve", "contested", "llf", "first", "random")
NAMES = {
    "margin": "margin (default)",
    "information": "information",
    "reserve": "reserve",
    "contested": "contested",
    "llf": "llf (the paper's)",
    "first": "first",
    "random": "random",
}


@dataclass(frozen=True)
class Cell:
    """One thing to measure: a stream, a gate, a budget, a seed."""

    stream: str
    gate: str
    budget: str
    seed: int


@dataclass(frozen=True)
class World:
    """Features and answers of the training and the test file."""

    block: Block
    answers: np.ndarray
    test: Block
    gold: np.ndarray
    classes: int


def load(folder: Path, features: str) -> World:
    """Read Banking77 and encode it once; a second call finds the vectors in the cache."""
    train = read(folder / "train.csv")
    test = read(folder / "test.csv", classes=train.classes, columns=train.columns)
    feature_map = make_features(features, classes=train.classes)
    feature_map.fit(train.items)
    blocks = [feature_map.transform(part.items, _show) for part in (train, test)]
    return World(blocks[0], _gold(train), blocks[1], _gold(test), len(train.classes or ()))


def _gold(dataset: Dataset) -> np.ndarray:
    return np.array([dataset.answers[item.id] for item in dataset.items])


def _show(done: int, total: int) -> None:
    if done == total or done % 1024 < 16:
        print(f"\rencoding {done} of {total}", end="", file=sys.stderr)


def order_for(cell: Cell, world: World) -> list[int]:
    """The rows of the training file in the order in which the stream shows them."""
    rows = order_of("shuffled", cell.seed, len(world.answers))
    if cell.stream == "shuffled":
        return rows
    rng = generator(cell.seed, f"stream/{cell.stream}")
    half = set(rng.permutation(world.classes)[: world.classes // 2].tolist())
    if cell.stream == "rare":
        return _thinned(rows, half, world, rng)
    early = [r for r in rows if int(world.answers[r]) not in half]
    cut = len(early) * 3 // 4
    rest = [r for r in rows if int(world.answers[r]) in half] + early[cut:]
    return early[:cut] + [rest[i] for i in rng.permutation(len(rest))]


def _thinned(rows: list[int], rare: set[int], world: World, rng: np.random.Generator) -> list[int]:
    """The rows in their order, with a tenth (rounded up) of those of each rare class.

    Which ones stay is drawn: keeping the first ones would bring the rare classes early.
    """
    stays = set(range(len(world.answers)))
    for label in sorted(rare):
        mine = np.flatnonzero(world.answers == label)
        stays -= set(rng.permutation(mine)[-(-len(mine) // 10) :].tolist())
    return [row for row in rows if row in stays]


def measure(cell: Cell, world: World) -> dict[str, Any]:
    """Play one cell with the learner of `stacksl run`, refit, and test the final model."""
    order = order_for(cell, world)
    labels = parse_budget(cell.budget, len(order), None).labels
    plugins = "stacksl_lab.baselines.plugin"  # of the gate `reserve`
    given = {"gate": cell.gate, "seed": cell.seed, "budget": cell.budget, "plugins": plugins}
    settings = resolve(given).settings
    learner = build_learner(settings, world.block, order, labels)
    if isinstance(learner.gate, Reserve):  # which a run's items may leave or join, but not here
        learner.gate = with_corpus_capacity(
            learner.gate, world.block.take(order), labels, learner.scorer
        )
    bought = buy(learner, world, order)
    head = refit(world.block.take(bought), world.answers[bought], learner.scorer.theta, cell.seed)
    if head is None:
        raise SystemExit(f"{cell}: fewer than two classes were bought")
    predicted = np.argmax(np.asarray(head.probabilities(world.test)), axis=1)
    return {
        "stream": cell.stream,
        "gate": cell.gate,
        "budget": cell.budget,
        "seed": cell.seed,
        "items": len(order),
        "labels": labels,
        "asked": len(bought),
        "accuracy": float((predicted == world.gold).mean()),
        "classes": len(set(world.answers[bought].tolist())),
        "C": head.strength.value,
    }


def buy(learner: Learner, world: World, order: list[int]) -> list[int]:
    """The rows whose labels the learner buys in one pass, answered at once."""
    bought: list[int] = []
    for row in order:
        inputs = [world.block[row]]
        shown = presented(inputs, learner.scorer, learner.top_k)
        decision = learner.decide([str(row)], inputs, shown, asked=len(bought))[0]
        if decision.status == "wanted":
            decision = decision.reserved()
        learner.adopt([decision], inputs)
        if decision.asked:
            learner.learn(decision, inputs[0], Label(int(world.answers[row])))
            bought.append(row)
    return bought


_WORLD: list[World] = []


def _begin(folder: str, features: str) -> None:
    _WORLD.append(load(Path(folder), features))


def _measure(cell: Cell) -> dict[str, Any]:
    with one_thread():
        return measure(cell, _WORLD[0])


def cells(seeds: int, quick: bool) -> list[Cell]:
    """What is measured: seven gates on three streams at 10%, the default and random at 25%, all.

    With all labels every gate buys the same, so one pass serves.
    """
    wanted = [Cell(s, g, "0.1", n) for n in range(seeds) for s in STREAMS for g in GATES]
    if not quick:
        wanted += [
            Cell("shuffled", g, "0.25", n) for n in range(seeds) for g in ("margin", "random")
        ]
        wanted += [Cell("shuffled", "margin", "all", n) for n in range(seeds)]
    return wanted


def table(rows: list[dict[str, Any]]) -> str:
    """The results as Markdown: mean ± half-width, and the paired gain over random."""
    lines = [
        "| stream | labels | gate | test accuracy | gain over random, paired |",
        "|---|---|---|---|---|",
    ]
    keys = {(r["budget"], STREAMS.index(r["stream"])) for r in rows}
    for budget, number in sorted(keys):
        stream = STREAMS[number]
        here = [r for r in rows if (r["stream"], r["budget"]) == (stream, budget)]
        base = {r["seed"]: r["accuracy"] for r in here if r["gate"] == "random"}
        for gate in GATES:
            mine = {r["seed"]: r["accuracy"] for r in here if r["gate"] == gate}
            if not mine:
                continue
            mean, half = interval(list(mine.values()))
            gain = ""
            if base and gate != "random":
                difference, wide = interval([mine[s] - base[s] for s in mine if s in base])
                gain = f"{difference:+.3f} ± {wide:.3f}"
            share = "all" if budget == "all" else f"{100 * float(budget):g}%"
            name = "all labels" if budget == "all" else NAMES[gate]
            lines.append(f"| {stream} | {share} | {name} | {mean:.3f} ± {half:.3f} | {gain} |")
    return "\n".join(lines)


def figure(rows: list[dict[str, Any]], stem: Path) -> None:
    """The picture next to the table: the gates at 10% on the three streams, with intervals."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "stacksl"
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "font.family": "DejaVu Sans"})
    picture, axes = plt.subplots(1, 3, figsize=(9.6, 2.9), sharey=True)
    titles = {
        "shuffled": "as it is, shuffled",
        "rare": "half of the classes rare",
        "late": "half of the classes late",
    }
    everything = [r["accuracy"] for r in rows if r["budget"] == "all"]
    for axis, stream in zip(axes, STREAMS, strict=True):
        for place, gate in enumerate(reversed(GATES)):
            values = [
                r["accuracy"]
                for r in rows
                if (r["stream"], r["gate"], r["budget"]) == (stream, gate, "0.1")
            ]
            mean, half = interval(values)
            color = "#0072B2" if gate == "margin" else "#6b6b6b"
            axis.errorbar(mean, place, xerr=half, fmt="o", color=color, capsize=3, markersize=6)
            axis.annotate(
                f"{mean:.3f}", (mean, place), (0, 7), textcoords="offset points", ha="center",
                color=color, fontsize=9,
            )  # fmt: skip
        if everything and stream == "shuffled":
            axis.axvline(float(np.mean(everything)), color="#999999", linestyle=":", linewidth=1)
            axis.annotate(
                "all labels", (float(np.mean(everything)), -0.55), (-3, 0), fontsize=8, ha="right",
                textcoords="offset points", color="#6b6b6b",
            )  # fmt: skip
        axis.set_title(titles[stream], fontsize=10)
        axis.set_yticks(range(len(GATES)), [NAMES[g] for g in reversed(GATES)])
        axis.set_ylim(-0.7, len(GATES) - 0.3)
        axis.grid(axis="x", color="#dddddd", linewidth=0.6)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
        axis.margins(x=0.15)
    axes[1].set_xlabel("test accuracy with 10% of the labels (mean and 95% interval over seeds)")
    picture.tight_layout()
    picture.savefig(stem.with_suffix(".svg"), metadata={"Date": None})


def main() -> None:
    """Measure or show; see the module's text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "folder", nargs="?", help="the folder of Banking77's train.csv and test.csv"
    )
    parser.add_argument("--features", default="sentences:minilm")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--quick", action="store_true", help="10% of the labels only")
    parser.add_argument("--json", type=Path, help="write the rows here, and go on from what it has")
    parser.add_argument("--from", dest="source", type=Path, help="show the rows of this file")
    parser.add_argument("--figure", type=Path, help="draw FIGURE.svg")
    words = parser.parse_args()
    if words.source:
        rows = json.loads(words.source.read_text())["rows"]
    elif words.folder:
        rows = run(words)
    else:
        parser.error("give the folder of Banking77, or --from FILE")
    print(table(rows))
    if words.figure:
        figure(rows, words.figure)


def run(words: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure every cell that the JSON file does not hold yet, over `--jobs` processes."""
    rows: list[dict[str, Any]] = []
    if words.json and words.json.exists():
        rows = json.loads(words.json.read_text())["rows"]
    done = {(r["stream"], r["gate"], r["budget"], r["seed"]) for r in rows}
    left = [c for c in cells(words.seeds, words.quick)
            if (c.stream, c.gate, c.budget, c.seed) not in done]  # fmt: skip
    load(Path(words.folder), words.features)  # fills the cache before the processes share it
    start = time.monotonic()
    begin = (words.folder, words.features)
    with ProcessPoolExecutor(words.jobs, initializer=_begin, initargs=begin) as workers:
        for number, row in enumerate(workers.map(_measure, left), start=1):
            rows.append(row)
            seconds_left = (time.monotonic() - start) / number * (len(left) - number)
            print(
                f"\r{number} of {len(left)}, {seconds_left / 60:.0f} min left ",
                end="",
                file=sys.stderr,
            )
            if words.json:
                save(words, rows)
    return rows


def save(
    words: argparse.Namespace, rows: list[dict[str, Any]], script: str = "label_efficiency.py"
) -> None:
    """Write the rows with what made them, whole or not at all."""
    command = f"python benchmarks/{script} BANKING77 --features {words.features}"
    record = {"version": __version__, "command": f"{command} --seeds {words.seeds}", "rows": rows}
    write_record(words.json, record)


if __name__ == "__main__":
    main()
