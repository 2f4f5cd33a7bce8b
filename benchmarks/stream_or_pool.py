"""Whether a file is better played as a stream or as a pool, by the rule in `docs/decisions.md`.

Both are judged on a split of training rows, by the final models that 2, 5 and 10% of the labels
make, with class names and neighbors and without. A pool at a smaller budget is the beginning of
the same pool at a larger one; a stream paces itself by its budget and is played for each.

    python benchmarks/stream_or_pool.py --data $STACKSL_DATA --json results.json
    python benchmarks/stream_or_pool.py --from results.json

Test files are not read.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from label_efficiency import World, buy

from stacksl import __version__
from stacksl.core.blocks import SharedBlock
from stacksl.core.heads.linear import refit
from stacksl.core.scorers import Scorer
from stacksl.core.threads import one_thread
from stacksl.data import Dataset, read
from stacksl.data.sample import sample
from stacksl.features import make_features
from stacksl.runs.loop.choosers import Pool
from stacksl.runs.loop.class_names import name_rows, name_texts
from stacksl.runs.loop.game import play
from stacksl.runs.loop.head_fitting import Source, make_final
from stacksl.runs.session.build_learner import build_learner
from stacksl.runs.settings.fields import Settings
from stacksl_lab.pools.ours import game_of
from stacksl_lab.pools.split import Pool as Drawn

SHARES = (0.02, 0.05, 0.1)
SEEDS = (1000, 1001, 1002)
HELD_OUT = {"banking77": 3003}  # rows to judge by; a quarter elsewhere
SETS = (("banking77", "sentences:minilm"), ("sample", "hashing"), ("sample", "sentences:minilm"))


def encoded(name: str, features: str, data: Path) -> tuple[SharedBlock, np.ndarray, np.ndarray]:
    """The training rows of a set, their answers, and the rows of its class names."""
    train: Dataset = sample()[0] if name == "sample" else read(data / name / "train.csv")
    assert train.classes is not None
    feature_map = make_features(features, classes=train.classes)
    feature_map.fit(train.items)
    block = feature_map.transform(train.items)
    assert isinstance(block, SharedBlock)
    answers = np.array([train.answers[item.id] for item in train.items], dtype=np.int64)
    return block, answers, name_rows(feature_map, name_texts(train.classes))


def split(block: SharedBlock, answers: np.ndarray, seed: int, held: int) -> World:
    """The rows to choose from, in the order of the run, and those to judge by."""
    order = np.random.default_rng(seed).permutation(len(answers))
    test, train = order[:held].tolist(), order[held:]
    train = train[np.random.default_rng(seed + 7).permutation(len(train))].tolist()
    return World(block.take(train), answers[train], block.take(test), answers[test], block.classes)


def bought(
    world: World, mode: str, names: np.ndarray | None, labels: int, seed: int
) -> tuple[np.ndarray, Scorer]:
    """The rows whose labels are bought, in the order in which they were, and the online scorer."""
    rows = list(range(len(world.answers)))
    if mode == "stream":
        learner = build_learner(Settings(seed=seed, budget=str(labels)), world.block, rows, labels)
        return np.array(buy(learner, world, rows)), learner.scorer
    with tempfile.TemporaryDirectory() as folder:
        drawn = Drawn(world.block, world.answers, names, rows, Settings(seed=seed))
        game = game_of(drawn, "margin", labels, Path(folder))
        for _ in play(game, Pool(seed, coverage=True)):
            pass
        game.ledger.close()
    return np.array([row for row, _, _ in game.examples.bought]), game.learner.scorer


def measure(
    world: World, names: np.ndarray, mode: str, named: bool, seed: int
) -> list[dict[str, Any]]:
    """The accuracy of the final models of one mode, one a share of the labels."""
    counts = [round(share * len(world.answers)) for share in SHARES]
    whole, scorer = bought(world, mode, names if named else None, counts[-1], seed)
    found = []
    for share, count in zip(SHARES, counts, strict=True):
        rows = whole[:count]
        if mode == "stream" and count < len(whole):
            rows, scorer = bought(world, mode, None, count, seed)
        head = refit(world.block.take(rows.tolist()), world.answers[rows], scorer.theta, seed)
        if named:
            source = Source(world.block, names, frozenset(), seed)
            head, _ = make_final(source, rows, world.answers[rows])
        assert head is not None
        right = np.argmax(np.asarray(head.probabilities(world.test)), axis=1) == world.gold
        found.append({"share": share, "accuracy": float(right.mean())})
    return found


def run(data: Path, only: str | None) -> list[dict[str, Any]]:
    """Every set, seed and mode, with names and graph and without."""
    rows = []
    for name, features in SETS:
        if only not in (None, name):
            continue
        block, answers, names = encoded(name, features, data)
        for seed in SEEDS:
            world = split(block, answers, seed, HELD_OUT.get(name, len(answers) // 4))
            for mode in ("stream", "pool"):
                for named in (True, False):
                    about = {"set": name, "features": features, "seed": seed, "mode": mode}
                    with one_thread():
                        made = measure(world, names, mode, named, seed)
                    rows += [{**about, "names": named, **row} for row in made]
                    print(rows[-1], flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Means over seeds as Markdown, a line a set, with names and graph and without."""
    columns = [f"{100 * share:g}% {mode}" for share in SHARES for mode in ("stream", "pool")]
    lines = [f"| set | names and graph | {' | '.join(columns)} | stream | pool |"]
    lines.append("|---" * (len(columns) + 4) + "|")
    for name, features in SETS:
        for named in (True, False):
            here = [
                r for r in rows if (r["set"], r["features"], r["names"]) == (name, features, named)
            ]
            if not here:
                continue
            means = {
                (share, mode): np.mean(
                    [r["accuracy"] for r in here if (r["share"], r["mode"]) == (share, mode)]
                )
                for share in SHARES
                for mode in ("stream", "pool")
            }
            cells = [f"{value:.3f}" for value in means.values()]
            for mode in ("stream", "pool"):
                cells.append(f"{np.mean([means[share, mode] for share in SHARES]):.3f}")
            lines.append(
                f"| {name}, {features} | {'yes' if named else 'no'} | {' | '.join(cells)} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure or show; see the module's text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="the folder that holds banking77")
    parser.add_argument("--only", choices=[name for name, _ in SETS], help="this set alone")
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--from", dest="source", type=Path, help="show the rows of this file")
    words = parser.parse_args()
    if words.source:
        rows = json.loads(words.source.read_text())["rows"]
    elif words.data:
        rows = run(words.data, words.only)
    else:
        parser.error("give --data, or --from FILE")
    if words.json:
        command = "python benchmarks/stream_or_pool.py --data DATA"
        record = {"version": __version__, "command": command, "rows": rows}
        words.json.write_text(json.dumps(record, indent=0))
    print(table(rows))


if __name__ == "__main__":
    main()
