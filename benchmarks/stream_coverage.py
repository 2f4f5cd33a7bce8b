"""Whether a stream should ask by doubt and coverage, its default, or by `margin` alone.

Each cell is played by the loop of a run, with its chooser, trainer and final model; `margin` is
`--gate margin`.

    python benchmarks/stream_coverage.py --data $STACKSL_DATA

Training rows are split as in `stream_or_pool.py`. Test files are not read. Seeds 1000 to 1002 chose
the constants. On seeds 1010 to 1019, the default, coverage gains over `margin` in points, at 75,
150 and 300 labels and at 10%: Banking77 3.9 ± 2.9, 3.5 ± 1.1, 3.6 ± 1.0, 1.0 ± 0.5, *rare*
1.3 ± 1.4, 1.9 ± 2.1, 1.4 ± 1.6, 1.7 ± 1.5; the sample by hashing 4.8 ± 2.3, 2.5 ± 1.9, 1.7 ± 3.0,
1.9 ± 3.7, by sentences 1.1 ± 3.5, -0.6 ± 1.3, 0.4 ± 2.4, 0.8 ± 4.0. Over `random`: Banking77
3.6 ± 3.2, 4.8 ± 1.8, 7.1 ± 2.2, 3.6 ± 0.3, *rare* 1.7 ± 2.2, 2.8 ± 1.8, 5.5 ± 1.8, 6.5 ± 2.5.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from _rows import interval
from label_efficiency import Cell, World, order_for
from stream_or_pool import HELD_OUT, SETS, encoded, split

from stacksl.core.threads import one_thread
from stacksl.runs.loop.choosers import Stream
from stacksl.runs.loop.covering import StreamCoverage
from stacksl.runs.loop.game import play
from stacksl.runs.loop.linear_trainer import LinearTrainer
from stacksl.runs.settings.resolve import resolve
from stacksl_lab.pools.ours import game_of
from stacksl_lab.pools.split import Pool

BUDGETS = (75, 150, 300, 0.1)
RULES = ("coverage", "margin", "random")


def accuracy(world: World, names: np.ndarray, rule: str, labels: int, seed: int) -> float:
    """Of the final model that a stream of all rows gives."""
    settings = resolve({"seed": seed, "gate": rule}).settings
    with tempfile.TemporaryDirectory() as folder:
        pool = Pool(world.block, world.answers, names, list(range(len(world.answers))), settings)
        game = game_of(pool, rule, labels, Path(folder))
        covering = StreamCoverage.begin(settings, game.learner, game.examples, names)
        game.trainer = LinearTrainer(
            game.examples, game.learner, game.ledger, names, seed,
            on_the_way=covering is not None, covering=covering,
        )  # fmt: skip
        for _ in play(game, Stream()):
            pass
        game.trainer.finish()
        game.ledger.close()
    assert game.trainer.head is not None
    right = np.argmax(np.asarray(game.trainer.head.probabilities(world.test)), axis=1) == world.gold
    return float(right.mean())


def main() -> None:
    """Print the means, and the gains of coverage in points with 95% t-intervals, by seed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds banking77")
    parser.add_argument("--seeds", default=",".join(map(str, range(1010, 1020))))
    words = parser.parse_args()
    for name, features, stream in (*((*each, "shuffled") for each in SETS), (*SETS[0], "rare")):
        block, answers, names = encoded(name, features, words.data)
        worlds = {}
        for seed in map(int, words.seeds.split(",")):
            whole = split(block, answers, seed, HELD_OUT.get(name, len(answers) // 4))
            some = order_for(Cell(stream, "", "", seed), whole)
            train = whole.block.take(some), whole.answers[some]
            worlds[seed] = World(*train, whole.test, whole.gold, whole.classes)
        for budget in BUDGETS:
            here = np.zeros((len(RULES), len(worlds)))
            for column, (seed, world) in enumerate(worlds.items()):
                labels = round(budget * len(world.answers)) if budget < 1 else int(budget)
                with one_thread():
                    for row, rule in enumerate(RULES):
                        here[row, column] = 100 * accuracy(world, names, rule, labels, seed)
            ours, *others = here
            means = (f"{rule} {each.mean():.1f}" for rule, each in zip(RULES, here, strict=True))
            gains = ("{:+.1f} ± {:.1f}".format(*interval(list(ours - other))) for other in others)
            print(name, features, stream, budget, *means, "over", *gains, flush=True)


if __name__ == "__main__":
    main()
