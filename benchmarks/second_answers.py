"""Is a second answer to a doubtful label worth more than a new label?

People err in 5 or 10% of their answers, evenly over the other classes. After `first` labels, bought
as `stacksl run` buys them, the same money goes three ways, in batches of 25, under the same final
model:

- `new labels`: the run goes on;
- `second answers`: to the labels that the others contradict most (the least probable ones under
  heads fitted without them); where two answers differ a third decides, or the row is left out;
- `ActiveLab`: cleanlab's rule, which weighs new rows against further answers, and its consensus.

Rows and test rows are those of `floors.py`, and no test file is read. Source: Northcutt, Jiang and
Chuang, Confident learning, 2021; Goh and Mueller, ActiveLab, 2023.

    pip install cleanlab
    python benchmarks/second_answers.py --data $STACKSL_DATA --json second.json
    python benchmarks/second_answers.py --from second.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _rows import interval
from floors import Case, judged, split_of
from numpy.typing import NDArray
from plan_scenarios import MINILM

from stacksl.core.gates.registry import COVERAGE
from stacksl.core.heads.logistic import DEFAULT, Strength, folds_of
from stacksl.core.rng import generator
from stacksl.core.threads import one_thread
from stacksl.runs.loop.head_fitting import GRAPHED, Source, _fitted, _Labels, make_final
from stacksl_lab.pools import ours
from stacksl_lab.pools.split import Split

SETS = ("banking77", "stackoverflow_titles", "snips", "medquad")
ERRORS = (0.05, 0.1)
BUDGETS = ((200, 100), (500, 250))  # labels, and what is spent afterwards
BATCH, MOST = 25, 4  # rows at a time; answers to a row at most
ARMS = ("new labels", "second answers", "ActiveLab")

Rows = NDArray[np.int64]
Table = tuple[Rows, Rows]  # rows and their labels


def answers_of(gold: Rows, classes: int, error: float, seed: int) -> Rows:
    """(MOST, n): what people would answer, one after the other."""
    rng = generator(seed, "second/answers")
    wrong = rng.random((MOST, len(gold))) < error
    return (gold + wrong * rng.integers(1, classes, wrong.shape)) % classes


def held_out(source: Source, rows: Rows, labels: Rows) -> NDArray[Any]:
    """(n, K): the probabilities of heads that were not fitted on the row."""
    probabilities = np.zeros((len(rows), source.block.classes))
    for train, held in folds_of(len(rows), source.seed):
        names = source.named(labels)
        given = _Labels(rows[train], labels[train], names, rows[held], 3e-4)
        (head,) = _fitted(source, given, (GRAPHED,), Strength(DEFAULT))
        probabilities[held] = head.probabilities(source.block.take(rows[held].tolist()))
    return probabilities


def second_answers(source: Source, bought: Rows, answers: Rows, money: int) -> Table:
    """The labels contradicted most are answered again."""
    labels, looked = answers[0, bought].copy(), np.zeros(len(bought), dtype=bool)
    agreed = np.ones(len(bought), dtype=bool)
    while money > 0 and not looked.all():
        now = np.flatnonzero(agreed)
        own = held_out(source, bought[now], labels[now])[np.arange(len(now)), labels[now]]
        own[looked[now]] = np.inf
        for place in now[np.argsort(own, kind="stable")[:BATCH]]:
            if money == 0 or looked[place]:
                break
            looked[place], money = True, money - 1
            first, second, third, _ = answers[:, bought[place]]
            if first == second:
                continue
            agreed[place] = False
            if money > 0:
                money -= 1
                agreed[place], labels[place] = third in (first, second), third
    return bought[agreed], labels[agreed]


def active_lab(source: Source, bought: Rows, answers: Rows, money: int) -> Table:
    """Rows and further answers by cleanlab's scores."""
    from cleanlab.multiannotator import get_active_learning_scores, get_label_quality_multiannotator

    counts = np.zeros(len(source.block), dtype=np.int64)
    counts[bought] = 1

    def table() -> tuple[Rows, NDArray[Any], Rows]:
        rows = np.flatnonzero(counts)
        given = np.full((len(rows), MOST), np.nan)  # a column each of so many people, in turns
        for n in range(MOST):
            asked = np.flatnonzero(counts[rows] > n)
            given[asked, (rows[asked] + n) % MOST] = answers[n, rows[asked]]
        first = answers[0, rows]
        if counts.max() == 1:
            return rows, given, first
        probabilities = held_out(source, rows, first)
        quality = get_label_quality_multiannotator(given, probabilities, verbose=False)
        consensus = quality["label_quality"]["consensus_label"].to_numpy(np.int64)
        return rows, given, consensus

    while money > 0:
        rows, given, consensus = table()
        unlabeled = np.flatnonzero(counts == 0)
        every_label = _Labels(rows, consensus, source.named(consensus), None, 3e-4)
        (head,) = _fitted(source, every_label, (GRAPHED,), Strength(DEFAULT))
        of_rest = np.asarray(head.probabilities(source.block.take(unlabeled.tolist())))
        own = held_out(source, rows, consensus)
        scores, of_new = get_active_learning_scores(given, own, of_rest)
        scores = np.where(counts[rows] < MOST, scores, np.inf)
        both, every = np.concatenate([scores, of_new]), np.concatenate([rows, unlabeled])
        chosen = every[np.argsort(both, kind="stable")[: min(BATCH, money)]]
        counts[chosen] += 1
        money -= len(chosen)
    rows, _, consensus = table()
    return rows, consensus


def measured(split: Split, error: float, seed: int) -> list[dict[str, Any]]:
    """The test accuracy of each arm at each budget."""
    pool = split.pool(seed)
    answers = answers_of(pool.gold, int(split.about["classes"]), error, seed)
    most = max(first + money for first, money in BUDGETS)
    bought = np.array(ours.bought_rows(replace(pool, gold=answers[0]), COVERAGE, most))
    source = Source(pool.block, pool.names, frozenset(), seed)
    spend: tuple[Callable[..., Table], ...] = (second_answers, active_lab)
    found = []
    for first, money in BUDGETS:
        rows = bought[: first + money]
        arms = [(rows, answers[0, rows])]
        arms += [each(source, bought[:first], answers, money) for each in spend]
        for arm, (chosen, labels) in zip(ARMS, arms, strict=True):
            right, _ = judged(split, make_final(source, chosen, labels)[0])
            about = {"first": first, "money": money, "arm": arm, "labels": len(chosen)}
            wrong = float((labels != pool.gold[chosen]).mean())
            found.append({**about, "wrong": wrong, "accuracy": float(right.mean())})
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Mean accuracy of new labels, and what the others gain over it, paired by seed.

    Next to a gain stands half of its 95% interval.
    """
    lines = ["| set | wrong | labels, then | new labels | second answers | ActiveLab |"]
    lines.append(f"|{'---|' * 6}")
    keys = ("set", "error", "first", "money")
    for cell in dict.fromkeys(tuple(row[key] for key in keys) for row in rows):
        mine = [row for row in rows if tuple(row[key] for key in keys) == cell]
        by_arm = [np.array([r["accuracy"] for r in mine if r["arm"] == arm]) for arm in ARMS]
        gains = ["{:+.3f} ({:.3f})".format(*interval(each - by_arm[0])) for each in by_arm[1:]]
        shown = (cell[0], f"{cell[1]:.0%}", f"{cell[2]} + {cell[3]}", f"{by_arm[0].mean():.3f}")
        lines.append(f"| {' | '.join((*shown, *gains))} |")
    return "\n".join(lines)


def main() -> None:
    """Measure or show; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder of the sets")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--json", type=Path, help="write the rows here, and go on from what it has")
    parser.add_argument("--from", dest="source", type=Path, help="show the rows of this file")
    words = parser.parse_args()
    file = words.source or words.json
    rows = json.loads(file.read_text()) if file is not None and file.exists() else []
    if words.data is None and words.source is None:
        parser.error("give --data DIR or --from FILE")
    done = {(row["set"], row["error"], row["seed"]) for row in rows}
    todo = [(n, name, e) for n in range(words.seeds) for name in SETS for e in ERRORS]
    for seed, name, error in todo if words.data else []:
        if (name, error, seed) in done:
            continue
        with one_thread():
            cells = measured(split_of(Case(name, MINILM), words.data), error, seed)
        rows += [{"set": name, "error": error, "seed": seed, **row} for row in cells]
        print(name, error, seed, file=sys.stderr)
        if file is not None:
            file.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    print(table(rows))


if __name__ == "__main__":
    main()
