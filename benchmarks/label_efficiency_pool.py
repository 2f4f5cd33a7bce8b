"""What a label buys in a pool: test accuracy of the default, of margin and of random labels.

Banking77 with frozen sentence features, played as `stacksl run --mode pool` plays it, ledger
included, in batches of 25:

- `coverage`, the default: batches that cover uncertain items, under labels and class names;
- `margin` (`--gate margin`): the smallest margins, spread;
- `random`: the same final model, the mixture that folds of the bought labels choose; and
  `labels alone`, a logistic regression on the same random labels.

Streams and test file are those of `label_efficiency.py`; the test file judges, and nothing is
chosen on it. One purchase goes to the largest budget of a stream, smaller ones are its beginning.

With names the first batch is ranked too, so nothing but ties and folds depends on the order of the
rows: on `shuffled` all seeds buy the same labels by coverage and by margin, and their agreement
says nothing of how far another set of rows would be from it. The seeds of `rare` draw other classes
and rows.

    python benchmarks/label_efficiency_pool.py $STACKSL_DATA/banking77 --json results.json
    python benchmarks/label_efficiency_pool.py --from results.json
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _rows import interval
from label_efficiency import Cell, World, load, order_for, save

from stacksl.core.threads import one_thread
from stacksl.data import read
from stacksl.features import make_features
from stacksl.runs.loop.choosers import Pool
from stacksl.runs.loop.class_names import name_rows, name_texts
from stacksl.runs.loop.game import play
from stacksl.runs.loop.head_fitting import Component, make_final
from stacksl.runs.loop.linear_trainer import linear_trainer
from stacksl.runs.settings.budget import parse_budget
from stacksl.runs.settings.fields import Settings
from stacksl_lab.pools.ours import game_of
from stacksl_lab.pools.split import Pool as Drawn

BUDGETS = {"shuffled": ("100", "150", "300", "500", "1000"), "rare": ("300", "0.1")}
CELLS = [(stream, budget) for stream in BUDGETS for budget in BUDGETS[stream]]
GATES = ("coverage", "margin", "random")


def names_of(folder: Path, features: str) -> np.ndarray:
    """The rows of the class names, by the features of the run."""
    train = read(folder / "train.csv")
    assert train.classes is not None
    feature_map = make_features(features, classes=train.classes)
    feature_map.fit(train.items)
    return name_rows(feature_map, name_texts(train.classes))


def measure(
    stream: str, gate: str, seed: int, world: World, names: np.ndarray
) -> list[dict[str, Any]]:
    """A row for each budget of a stream: one purchase to the largest, and a model at each."""
    order = order_for(Cell(stream, gate, "", seed), world)
    counts = {b: parse_budget(b, len(order), None).labels for b in BUDGETS[stream]}
    block, gold = world.block.take(order), world.answers[order]
    pool = Drawn(block, gold, names, range(len(order)), Settings(seed=seed))
    with tempfile.TemporaryDirectory() as folder:
        by = "margin" if gate == "coverage" else gate
        game = game_of(pool, by, max(counts.values()), Path(folder))
        for _ in play(game, Pool(seed, coverage=gate == "coverage")):
            pass
        source = linear_trainer(game).source()
        game.ledger.close()
    bought = np.array([(row, label) for row, label, _ in game.examples.bought])
    found = []
    for budget, count in counts.items():
        rows, labels = bought[:count].T
        row = {
            "stream": stream,
            "gate": gate,
            "budget": budget,
            "seed": seed,
            "items": len(order),
            "labels": count,
            "asked": len(rows),
            "classes": len(set(labels.tolist())),
        }
        for alone in (False, True) if gate == "random" else (False,):
            head, mixture = make_final(source, rows, labels, (Component("plain"),) * alone)
            right = np.argmax(np.asarray(head.probabilities(world.test)), axis=1) == world.gold
            weights = {part.kind: part.weight for part in mixture}
            about = {"alone": alone, "mixture": weights, "accuracy": float(right.mean())}
            found.append({**row, **about})
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """The results as Markdown: mean ± half-width of a 95% interval over seeds.

    Gains of coverage are over labels bought otherwise, with the same kind of final model, seed by
    seed.
    """
    head = ["labels", "coverage", "margin", "random", "random, labels alone"]
    lines = _head("items", *head, "over margin", "over random")
    for stream, budget in CELLS:
        ours, margin, other, alone = _cell(rows, stream, budget)
        gains = [
            {seed: ours[seed] - each[seed] for seed in sorted(ours.keys() & each.keys())}
            for each in (margin, other)
        ]
        shown = [_shown(values) for values in (ours, margin, other, alone)]
        lines.append(_line(stream, _share(budget), *shown, *(_shown(g, "+.3f") for g in gains)))
    return "\n".join(lines)


def _head(*cells: str) -> list[str]:
    return [_line(*cells), f"|{'---|' * len(cells)}"]


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _share(budget: str) -> str:
    return "10%" if budget == "0.1" else budget


def _cell(rows: list[dict[str, Any]], stream: str, budget: str) -> list[dict[int, float]]:
    """The accuracies of coverage, margin, random and random with labels alone, by seed."""
    by_gate = [_by_seed(rows, stream, gate, budget) for gate in GATES]
    return [*by_gate, _by_seed(rows, stream, "random", budget, alone=True)]


def _by_seed(
    rows: list[dict[str, Any]], stream: str, gate: str, budget: str, alone: bool = False
) -> dict[int, float]:
    wanted = (stream, gate, budget, alone)
    keys = ("stream", "gate", "budget", "alone")
    return {r["seed"]: r["accuracy"] for r in rows if tuple(r[k] for k in keys) == wanted}


def _shown(by_seed: dict[int, float], form: str = ".3f") -> str:
    values = list(by_seed.values())
    if not values:
        return ""
    mean, half = interval(values)
    same = max(values) == min(values)  # the same purchases each time are one measurement
    return f"{mean:{form}}" if same else f"{mean:{form}} ± {half:.3f}"


def run(words: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure what the JSON file does not hold yet."""
    rows: list[dict[str, Any]] = []
    if words.json and words.json.exists():
        rows = json.loads(words.json.read_text())["rows"]
    done = {(row["stream"], row["gate"], row["seed"]) for row in rows}
    world = load(Path(words.folder), words.features)
    names = names_of(Path(words.folder), words.features)
    todo = [(s, g, n) for n in range(words.seeds) for s in BUDGETS for g in GATES]
    for stream, gate, seed in todo:
        if (stream, gate, seed) in done:
            continue
        with one_thread():
            rows += measure(stream, gate, seed, world, names)
        print(f"\r{len(rows)} rows measured ", end="", file=sys.stderr)
        if words.json:
            save(words, rows, "label_efficiency_pool.py")
    return rows


def main() -> None:
    """Measure or show; see the module's text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", nargs="?", help="the folder of Banking77")
    parser.add_argument("--features", default="sentences:minilm")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write the rows here, and go on from what it has")
    parser.add_argument("--from", dest="source", type=Path, help="show the rows of this file")
    words = parser.parse_args()
    if words.source:
        rows = json.loads(words.source.read_text())["rows"]
    elif words.folder:
        rows = run(words)
    else:
        parser.error("give the folder of Banking77, or --from FILE")
    print(table(rows))


if __name__ == "__main__":
    main()
