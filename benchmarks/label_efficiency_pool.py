"""What a label buys in a pool: test accuracy with class names and neighbours in the final model.

Banking77 with frozen sentence features, played as `stacksl run --mode pool` plays it, ledger
included: batches of 25 that cover the items in doubt (`coverage`, the default) or have the smallest
margins and are spread (`margin`, `--no-coverage`) under a head of labels and class names, the final
model chosen among plain, names, and names and graph by folds of the bought labels. Streams and test
file are those of `label_efficiency.py`; the test file judges, and nothing is chosen on it. Smaller
budgets of coverage are the beginning of the largest one.

With names the first batch is ranked too, so nothing but ties and folds depends on the order of the
rows: on `shuffled` all seeds buy the same labels, and their agreement says nothing of how far
another set of rows would be from it. The seeds of `rare` draw other classes and rows.

    python benchmarks/label_efficiency_pool.py $STACKSL_DATA/banking77 --json results.json
    python benchmarks/label_efficiency_pool.py $STACKSL_DATA/banking77 --coverage --json more.json
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
from label_efficiency import Cell, World, interval, load, order_for, save

from stacksl.core.threads import one_thread
from stacksl.data import read
from stacksl.features import make_features
from stacksl.lab.pools.arena import Pool as Drawn
from stacksl.lab.pools.ours import game_of
from stacksl.runs.loop.choosers import Pool
from stacksl.runs.loop.class_names import name_rows, name_texts
from stacksl.runs.loop.final_model import make_final
from stacksl.runs.loop.game import play
from stacksl.runs.loop.linear_trainer import linear_trainer
from stacksl.runs.settings.budget import parse_budget
from stacksl.runs.settings.fields import Settings

BARS = {("shuffled", "500"): 0.860, ("shuffled", "1000"): 0.893, ("rare", "0.1"): 0.71}
AIMS = {
    ("shuffled", "100"): 0.72,
    ("shuffled", "150"): 0.79,
    ("shuffled", "300"): 0.86,
    ("shuffled", "500"): 0.89,
    ("shuffled", "1000"): 0.91,
    ("rare", "300"): None,
    ("rare", "0.1"): 0.79,
}
"""Of coverage; at 300 labels of `rare` it is to be no worse than margin."""
OVER_RANDOM = {("rare", "0.1"): 0.09, ("late", "0.1"): 0.015}


ALL = list(dict.fromkeys([*BARS, *OVER_RANDOM]))
GATES = ("margin", "random")


def names_of(folder: Path, features: str) -> np.ndarray:
    """The rows of the class names, by the features of the run."""
    train = read(folder / "train.csv")
    assert train.classes is not None
    feature_map = make_features(features, classes=train.classes, seed=0)
    feature_map.fit(train.items)
    return name_rows(feature_map, name_texts(train.classes))


def measure(cell: Cell, world: World, names: np.ndarray | None) -> dict[str, Any]:
    """Buy one cell's labels from the pool of its stream's rows, and test the final model."""
    rows = order_for(cell, world)
    labels = parse_budget(cell.budget, len(rows), None).labels
    with tempfile.TemporaryDirectory() as folder:
        game = game_of(pool_of(cell, world, rows, names), cell.gate, labels, Path(folder))
        for posted in play(game, Pool(cell.seed, coverage=False)):
            if not posted[0].asked:
                break  # only the certificates of what was never asked are left
        trainer = linear_trainer(game)
        trainer.finish()
        game.ledger.close()
    assert trainer.head is not None
    predicted = np.argmax(np.asarray(trainer.head.probabilities(world.test)), axis=1)
    return {
        "stream": cell.stream,
        "gate": cell.gate,
        "names": names is not None,
        "budget": cell.budget,
        "seed": cell.seed,
        "items": len(rows),
        "labels": labels,
        "asked": len(game.examples.bought),
        "accuracy": float((predicted == world.gold).mean()),
        "made_by": trainer.made_by,
        "tried": dict(trainer.tried),
        "classes": len({label for _, label, _ in game.examples.bought}),
    }


def covered(
    stream: str, gate: str, seed: int, world: World, names: np.ndarray
) -> list[dict[str, Any]]:
    """The rows of `AIMS` for a stream: one purchase to the largest budget, a model at each."""
    rows = order_for(Cell(stream, gate, "", seed), world)
    budgets = [b for s, b in AIMS if s == stream and (gate == "coverage" or AIMS[s, b] is None)]
    counts = {b: parse_budget(b, len(rows), None).labels for b in budgets}
    with tempfile.TemporaryDirectory() as folder:
        pool, most = pool_of(Cell(stream, gate, "", seed), world, rows, names), max(counts.values())
        game = game_of(pool, "margin", most, Path(folder))
        for posted in play(game, Pool(seed, coverage=gate == "coverage")):
            if not posted[0].asked:
                break
        source = linear_trainer(game).source()
        game.ledger.close()
    bought = np.array([(row, label) for row, label, _ in game.examples.bought])
    found = []
    for budget, count in counts.items():
        made = make_final(game.learner.scorer, source, *bought[:count].T)
        assert made.head is not None
        right = np.argmax(np.asarray(made.head.probabilities(world.test)), axis=1) == world.gold
        found.append(
            {
                "stream": stream,
                "gate": gate,
                "names": True,
                "budget": budget,
                "seed": seed,
                "items": len(rows),
                "labels": count,
                "asked": len(bought[:count]),
                "accuracy": float(right.mean()),
                "made_by": made.made_by,
                "tried": dict(made.tried),
                "classes": len(set(bought[:count, 1].tolist())),
            }
        )
    return found


def pool_of(cell: Cell, world: World, rows: list[int], names: np.ndarray | None) -> Drawn:
    """The rows of a stream as a pool, in its order."""
    block, gold = world.block.take(rows), world.answers[rows]
    return Drawn(block, gold, names, range(len(rows)), Settings(seed=cell.seed))


def cells(seeds: int) -> list[Cell]:
    """The cells that have a bar, and their counterparts bought at random."""
    margin = [Cell(stream, "margin", b, n) for n in range(seeds) for stream, b in ALL]
    others = [Cell(stream, "random", b, n) for n in range(seeds) for stream, b in OVER_RANDOM]
    return margin + others


def table(rows: list[dict[str, Any]]) -> str:
    """The results as Markdown: mean ± half-width of a 95 % interval over seeds, and the bars.

    Margin and random are compared seed by seed: rows and classes are the same for both.
    """
    lines = [
        "| stream | labels | margin | bar | random | gain over random, paired | bar |",
        "|---|---|---|---|---|---|---|",
    ]
    for stream, budget in ALL:
        for named in (True, False):
            margin, other = (_by_seed(rows, stream, g, budget, named) for g in GATES)
            if not margin:
                continue
            bar, over = BARS.get((stream, budget)), OVER_RANDOM.get((stream, budget))
            both = [margin[seed] - other[seed] for seed in sorted(margin.keys() & other.keys())]
            cells = (
                stream if named else f"{stream}, labels alone",
                "10 %" if budget == "0.1" else budget,
                _shown(list(margin.values())),
                f"{bar:.3f}" if bar and named else "",
                _shown(list(other.values())),
                _shown(both, "+.3f"),
                f"+{over:.3f}" if over and named else "",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def coverage_table(rows: list[dict[str, Any]]) -> str:
    """Coverage, its aims, and margin on the same rows, with paired differences."""
    lines = [
        "| stream | labels | coverage (default) | aim | seeds | margin | gain, paired |",
        "|---|---|---|---|---|---|---|",
    ]
    for (stream, budget), aim in AIMS.items():
        ours, theirs = (_by_seed(rows, stream, g, budget, True) for g in ("coverage", "margin"))
        both = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
        wanted = "margin" if aim is None else f"{aim:.2f}"
        share = "10 %" if budget == "0.1" else budget
        cells = [stream, share, _shown(list(ours.values())), wanted, str(len(ours))]
        lines.append(
            f"| {' | '.join([*cells, _shown(list(theirs.values())), _shown(both, '+.3f')])} |"
        )
    return "\n".join(lines)


def _by_seed(
    rows: list[dict[str, Any]], stream: str, gate: str, budget: str, named: bool
) -> dict[int, float]:
    wanted = (stream, gate, budget, named)
    keys = ("stream", "gate", "budget", "names")
    return {r["seed"]: r["accuracy"] for r in rows if tuple(r[k] for k in keys) == wanted}


def _shown(values: list[float], form: str = ".3f") -> str:
    if not values:
        return ""
    mean, half = interval(values)
    same = max(values) == min(values)  # the same purchases each time are one measurement
    return f"{mean:{form}}" if same else f"{mean:{form}} ± {half:.3f}"


def run(words: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure every cell that the JSON file does not hold yet."""
    rows: list[dict[str, Any]] = []
    if words.json and words.json.exists():
        rows = json.loads(words.json.read_text())["rows"]
    done = {(r["stream"], r["gate"], r["budget"], r["seed"], r["names"]) for r in rows}
    world = load(Path(words.folder), words.features)
    names = None if words.plain else names_of(Path(words.folder), words.features)
    for cell in cells(words.seeds):
        if (cell.stream, cell.gate, cell.budget, cell.seed, not words.plain) in done:
            continue
        with one_thread():
            rows.append(measure(cell, world, names))
        print(f"\r{len(rows)} cells measured ", end="", file=sys.stderr)
        if words.json:
            save(words, rows, "label_efficiency_pool.py")
    return rows


def run_coverage(words: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the coverage that the JSON file does not hold yet, and margin where it is the aim."""
    rows: list[dict[str, Any]] = []
    if words.json and words.json.exists():
        rows = json.loads(words.json.read_text())["rows"]
    world = load(Path(words.folder), words.features)
    names = names_of(Path(words.folder), words.features)
    for seed in range(words.seeds):
        for stream, gate in (("shuffled", "coverage"), ("rare", "coverage"), ("rare", "margin")):
            budget = "300" if stream == "rare" else "100"
            if seed in _by_seed(rows, stream, gate, budget, True):
                continue
            with one_thread():
                rows += covered(stream, gate, seed, world, names)
            print(f"\r{len(rows)} cells measured ", end="", file=sys.stderr)
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
    parser.add_argument("--plain", action="store_true", help="without names and graph")
    parser.add_argument("--coverage", action="store_true", help="the default choice of items")
    parser.add_argument("--json", type=Path, help="write the rows here, and go on from what it has")
    parser.add_argument("--from", dest="source", type=Path, help="show the rows of this file")
    words = parser.parse_args()
    if words.source:
        rows = json.loads(words.source.read_text())["rows"]
    elif words.folder:
        rows = run_coverage(words) if words.coverage else run(words)
    else:
        parser.error("give the folder of Banking77, or --from FILE")
    print(table(rows))
    if any(row["gate"] == "coverage" for row in rows):
        print(coverage_table(rows))


if __name__ == "__main__":
    main()
