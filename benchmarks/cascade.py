"""People and a cheap model on one pool: what does a dollar buy, alone and together?

Banking77 with frozen sentence features. People are right on 95 % (else any other class, evenly) at
$1. The model costs $0.002 a label and is a real classifier, fixed beforehand: `words`, a logistic
regression on word counts of 1,703 held-out training rows (0.77 right on 300 others); or
`sentences`, the learner's own encoder on 230 of them (0.78), whose errors the learner shares. A
seed draws 6,400 of the other 8,000 training rows as the pool, and people's errors. Final models
are of names and graph throughout, which folds take on these data.

- people: labels bought as `stacksl run --mode pool` buys them;
- model: a label for each item of the pool ($12.80), one point; the strength of the fit is the best
  of three on pilot seeds, and better there than spreading its labels over neighbours;
- cascade: 25 labels of people at random; where the model says more for its price by then (`bought`
  is the share of the pool), it labels the whole pool, and the rest of the money buys people's;
- one run (`--one-run`): the same at the first sum, from one ledger, as `--labelers` buys it.

The audit costs the same in each and is left out. Constants were chosen with seeds 101 to 103 on the
training rows outside of the pool (`--pilot`); the test file was used once, with seeds 0 to 9.

    python benchmarks/cascade.py $STACKSL_DATA/banking77 --json benchmarks/results/cascade.json
    python benchmarks/cascade.py --from benchmarks/results/cascade.json
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from label_efficiency import World, interval, load
from label_efficiency_pool import names_of

from stacksl import __version__
from stacksl.core.heads.logistic import Fit, fit_classes
from stacksl.core.heads.logistic import Soft, together
from stacksl.core.rng import generator
from stacksl.core.threads import one_thread
from stacksl.data import read
from stacksl.lab.pools.arena import Pool as Drawn
from stacksl.lab.pools.ours import game_of
from stacksl.labelers.protocol import Labeler, Pending, Request
from stacksl.ledger.events import SOFT
from stacksl.ledger.purchases import Answer
from stacksl.models.cascade import best_buys
from stacksl.report.wording import MICRO
from stacksl.runs.loop.choosers import DRAWN_FIRST, Cascade, Pool
from stacksl.runs.loop.final_model import beside_names, make_final
from stacksl.runs.loop.game import Game, play
from stacksl.runs.loop.linear_trainer import linear_trainer
from stacksl.runs.settings.fields import Settings

HELD, FITTED, POOL = 2003, {"words": 1703, "sentences": 230}, 6400
MONEY, PRICE, RIGHT = (100, 300, 1000), 0.002, 0.95
MODEL = 0.1  # the weight of the model's labels where it is alone
PILOT = (101, 102, 103)
Rows = np.ndarray


def fixed_models(folder: Path, world: World, names: Rows) -> tuple[Rows, dict[str, Rows]]:
    """The training rows outside of the models' own, and what each model says of all rows."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    order = generator(0, "cascade/weak").permutation(len(world.answers))
    held, rest = order[:HELD], np.sort(order[HELD:])
    texts = [item.prompt for item in read(folder / "train.csv").items]
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2)).fit([texts[i] for i in held])
    own, table = held[: FITTED["words"]], words.transform(texts)
    fitted = LogisticRegression(C=30, max_iter=300).fit(table[own], world.answers[own])
    own, h = held[: FITTED["sentences"]], np.asarray(world.block.h)
    found = fit_classes(h[own], world.answers[own], 0, Fit(soft=beside_names(names, 4.0)))
    assert found is not None
    assert len(found[0]) == world.classes
    return rest, {
        "words": fitted.predict(table),
        "sentences": np.argmax(h @ found[1].T + found[2], axis=1),
    }


def people_on(gold: Rows, seed: int, classes: int) -> Rows:
    """What people say of items with these answers."""
    rng = generator(seed, "cascade/people")
    wrong, other = rng.random(len(gold)) >= RIGHT, rng.integers(1, classes, len(gold))
    return np.where(wrong, (gold + other) % classes, gold)


def bought(game: Game, seed: int, said: Rows | None) -> float:
    """Buy all labels; the share of the pool that the model labelled."""
    share = 0.0
    game.examples.said = said
    for posted in play(game, Pool(seed)):
        if not posted[0].asked:
            break
        if said is not None and len(game.examples.bought) == DRAWN_FIRST:
            share = chosen(game, said)
            if share < 0.5:
                game.examples.said = said = None
    return share


class Both:
    """People, and a model that says `says` for `PRICE`, as one labeler."""

    name, repeatable = "both", False

    def __init__(self, people: Labeler, says: Rows) -> None:
        self.people, self.says = people, says
        self.asked: list[Request] = []

    def ask(self, requests: Sequence[Request]) -> None:
        """Ask people, but the model where the purpose is `soft`."""
        self.people.ask([each for each in requests if each.purpose != SOFT])
        self.asked += [each for each in requests if each.purpose == SOFT]

    def answers(self) -> list[Answer]:
        """The answers of both."""
        asked, self.asked = self.asked, []
        said = [
            Answer(r.item, r.slot, r.token, int(self.says[int(r.item)]), "model", r.price)
            for r in asked
        ]
        return [*self.people.answers(), *said]

    def pending(self) -> list[Pending]:
        """None is open."""
        return []


def one_run(pool: Drawn, says: Rows, money: int, test: Any) -> dict[str, Any]:
    """The row of a cascade in one run with one ledger."""
    with tempfile.TemporaryDirectory() as folder:
        game = game_of(pool, "margin", money, Path(folder), money * MICRO, MICRO)
        game.examples.said = np.full(len(says), -1)
        game.labeler = Both(game.labeler, says)
        for posted in play(game, Cascade(Pool(pool.settings.seed), lambda _: int(PRICE * MICRO))):
            if not posted[0].asked:
                break
        trainer, ledger = linear_trainer(game), game.ledger
        table, soft = np.array(game.examples.bought)[:, :2].T, len(ledger.bought(SOFT))
        assert ledger.spent_money == len(table[0]) * MICRO + soft * PRICE * MICRO
        made = make_final(game.learner.scorer, trainer.source(), *table, "names and graph")
        worth = trainer.confusion()
        ledger.close()
    return {
        "money": money,
        "labels": len(table[0]),
        "accuracy": right(made.head, *test),
        "bought": soft / len(says),
        "agreed": None if worth is None else [*worth.accuracy, worth.count],
    }


def chosen(game: Game, said: Rows) -> float:
    """The share of the pool of which the model's label says more for its price than a person's."""
    trainer = linear_trainer(game)
    found, head = trainer.confusion(), trainer.head
    assert found is not None
    assert head is not None
    known = np.asarray(head.probabilities(game.examples.block), dtype=np.float64)
    matrices = [np.eye(known.shape[1]), found.matrix]
    return float(best_buys(known, matrices, [1.0, PRICE])[0].mean()) if found.tells else 0.0


def measure(seed: int, arm: str, world: World, names: Rows, rest: Rows, says: Rows, test: Any):
    """The rows of one arm: `people`, `model` or `cascade`, under one seed."""
    drawn = generator(seed, "cascade/pool").permutation(len(rest))[:POOL]
    rows = rest[np.sort(drawn)]
    people = people_on(world.answers[rows], seed, world.classes)
    pool = Drawn(world.block.take(rows.tolist()), people, names, range(POOL), Settings(seed=seed))
    if arm == "one run":
        return [one_run(pool, says[rows], min(MONEY), test)]
    cost = POOL * PRICE
    most = int(max(MONEY) - (cost if arm == "cascade" else 0))
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        game = game_of(pool, "margin", most, Path(folder))
        if arm == "model":
            return [{"money": cost, "accuracy": model_alone(game, names, says[rows], test)}]
        share = bought(game, seed, says[rows] if arm == "cascade" else None)
        trainer, table = linear_trainer(game), list(game.examples.bought)
        for money in sorted(MONEY, reverse=True):
            labels = int(money - (cost if trainer.said is not None else 0))
            game.examples.bought = table[:labels]
            game.examples.drawn &= {row for row, _, _ in table[:labels]}
            source, both = trainer.source(), np.array(table[:labels])[:, :2].T
            made = make_final(game.learner.scorer, source, *both, "names and graph")
            worth = trainer.confusion()
            found.append(
                {
                    "money": money,
                    "labels": labels,
                    "accuracy": right(made.head, *test),
                    "bought": share,
                    "agreed": None if worth is None else [*worth.accuracy, worth.count],
                }
            )
        game.ledger.close()
    return found


def model_alone(game: Game, names: Rows, says: Rows, test: Any) -> float:
    """Fitted on the model's labels, each a tenth of a bought one, and class names."""
    h = np.asarray(linear_trainer(game).source().block.h)
    targets = np.eye(len(names), dtype=np.float32)[says]
    labels = Soft(h, targets, np.full(len(h), MODEL, dtype=np.float32))
    none, fit = np.zeros(0, dtype=np.int64), Fit(soft=together(beside_names(names), labels))
    found = fit_classes(h[:0], none, 0, fit)
    assert found is not None
    scores = np.asarray(test[0].h) @ found[1].T + found[2]
    return float((found[0][np.argmax(scores, axis=1)] == test[1]).mean())


def right(head: Any, block: Any, gold: Rows) -> float:
    """The accuracy of a head."""
    return float((np.argmax(np.asarray(head.probabilities(block)), axis=1) == gold).mean())


def run(words: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure what the JSON file does not hold yet."""
    folder = Path(words.folder)
    world, names = load(folder, words.features), names_of(folder, words.features)
    rest, models = fixed_models(folder, world, names)
    rows: list[dict[str, Any]] = []
    if words.json and words.json.exists():
        rows = json.loads(words.json.read_text())["rows"]
    done = {(row["seed"], row["arm"], row["model"]) for row in rows}
    kinds = ("model", "cascade", *["one run"] * words.one_run)
    arms = [("people", ""), *((arm, m) for m in words.models for arm in kinds)]
    for seed in PILOT if words.pilot else range(words.seeds):
        test: Any = (world.test, world.gold)
        if words.pilot:
            others = np.sort(generator(seed, "cascade/pool").permutation(len(rest))[POOL:])
            test = world.block.take(rest[others].tolist()), world.answers[rest[others]]
        for arm, model in arms:
            if (seed, arm, model) in done:
                continue
            says = models[model] if model else world.answers
            with one_thread():
                found = measure(seed, arm, world, names, rest, says, test)
            rows += [{"seed": seed, "arm": arm, "model": model, **row} for row in found]
            print(seed, arm, model, [round(r["accuracy"], 3) for r in found], file=sys.stderr)
            if words.json:
                save(words, rows)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The results as Markdown: mean and half-width of a 95 % interval, and paired differences."""
    lines = [
        "| model | money | people | model | cascade | minus people | minus model | it was bought |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for model in dict.fromkeys(row["model"] for row in rows if row["model"]):
        alone = {
            r["seed"]: r["accuracy"] for r in rows if (r["arm"], r["model"]) == ("model", model)
        }
        for money in MONEY:
            here = [row for row in rows if row["money"] == money]
            people = {r["seed"]: r["accuracy"] for r in here if r["arm"] == "people"}
            both = {r["seed"]: r for r in here if (r["arm"], r["model"]) == ("cascade", model)}
            seeds = sorted(people.keys() & alone.keys() & both.keys())
            if not seeds:
                continue
            lines.append(line(f"{model} | ${money:,}", people, alone, both, seeds))
            once = {r["seed"]: r for r in here if (r["arm"], r["model"]) == ("one run", model)}
            if paired := [seed for seed in seeds if seed in once]:
                lines.append(line(f"{model}, one run | ${money:,}", people, alone, once, paired))
    return "\n".join(lines)


def line(what: str, people: Any, alone: Any, both: Any, seeds: Sequence[int]) -> str:
    """A row of the table."""
    mine = {seed: both[seed]["accuracy"] for seed in seeds}
    cells = [
        *(shown([each[s] for s in seeds]) for each in (people, alone, mine)),
        *(shown([mine[s] - each[s] for s in seeds], "+.3f") for each in (people, alone)),
        f"{np.mean([both[s]['bought'] >= 0.5 for s in seeds]):.0%}",
    ]
    return f"| {what} | {' | '.join(cells)} |"


def shown(values: list[float], form: str = ".3f") -> str:
    """Mean ± half-width."""
    mean, half = interval(values)
    return f"{mean:{form}} ± {half:.3f}"


def save(words: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    """Write the rows with what made them, whole or not at all."""
    command = f"python benchmarks/cascade.py BANKING77 --json FILE{' --pilot' * words.pilot}"
    record = {"version": __version__, "command": command, "rows": rows}
    spare = words.json.with_suffix(".part")
    spare.write_text(json.dumps(record, indent=0))
    spare.replace(words.json)


def main() -> None:
    """Measure or show; see the module's text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", nargs="?", help="the folder of Banking77")
    parser.add_argument("--features", default="sentences:minilm")
    parser.add_argument("--models", nargs="+", default=[*FITTED], choices=[*FITTED])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--pilot", action="store_true", help="pilot seeds, on training rows")
    parser.add_argument("--one-run", action="store_true", help="the cascade in one run as well")
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
