"""Choosing a language model's normalization and premise by a few labels.

The base model scores the sample's questions to label in every way. Of `n` questions drawn at random
the labels choose one way, by their accuracy or, as `--normalization auto`, by their likelihood at a
temperature fitted to them; it is judged on the other questions. The test questions are not read.

    python benchmarks/normalization_choice.py --json benchmarks/results/normalization_choice.json
    python benchmarks/normalization_choice.py --from benchmarks/results/normalization_choice.json

With `--train` runs that own no labels are compared: `auto` draws 25 labels, chooses by them and
buys the rest by the margins of the scores chosen; the others buy all by their own. Each is one
refit, under the sample's other settings, judged on the last quarter of the questions to label,
which is held out, or with `--quarter 0` on the test questions.

    python benchmarks/normalization_choice.py --train --json FILE
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from _refits import model_of, refitted
from language_model_table import difference, of_questions
from numpy.typing import NDArray

PREMISES = ("template", "last_line", "empty")
LABELS, DRAWS = (8, 25, 50, 109), 200
FIRST, SHARES, TRAINED = 25, (0.05, 0.1), ("token_mean", "auto", "pmi, last_line")
Scores = dict[str, NDArray[np.float64]]  # of each way, (n, K)


def measure() -> dict[str, Any]:
    """The accuracy of every way on all questions, and of the ways chosen on the others."""
    from stacksl_lab.sample.questions import questions

    data, _ = questions()
    gold = np.array([data.answers[item.id] for item in data.items])
    ways = scores_of(data.items)
    right = {way: scores.argmax(axis=1) == gold for way, scores in ways.items()}
    rows = [one(ways, right, gold, n, seed) for n in LABELS for seed in range(DRAWS)]
    return {"ways": {way: float(own.mean()) for way, own in right.items()}, "rows": rows}


def scores_of(items: Any) -> Scores:
    """The base model's scores of questions in every way."""
    ways: Scores = {}
    for premise in PREMISES:
        model = model_of({"pmi_context": premise}, 0)
        ways[f"pmi, {premise}"] = np.array(model.scores(items, "pmi"))
    for kind in ("token_mean", "sum", "char_mean"):
        ways[kind] = np.array(model.scores(items, kind))
    return ways


def train(cell: dict[str, Any], ways: Scores) -> dict[str, Any]:
    """Buy the labels of a cell, refit once, judge; `ways` are of all questions to label."""
    from stacksl.core.losses import softmax
    from stacksl.core.rng import generator
    from stacksl.lm.scoring.features import to_fit_on
    from stacksl.lm.scoring.normalize import calibrated_loss, fitted_temperature, prior_temperature
    from stacksl.lm.settings import Lesson
    from stacksl_lab.sample.questions import questions

    begin, (data, test) = time.process_time(), questions()
    place = np.arange(len(data.items))
    held = place % 4 == cell["quarter"] - 1  # none of them where it is 0
    judged = [data.items[n] for n in place[held]] if cell["quarter"] else list(test.items)
    known, place = data.answers | test.answers, place[~held]
    items = [data.items[n] for n in place]
    gold = np.array([known[item.id] for item in items])
    count, way = int(len(items) * cell["budget"]), cell["way"]
    rows = np.zeros(0, dtype=np.int64)
    if way == "auto":
        rows = np.argsort(generator(cell["seed"], "pool/random").random(len(items)))[:FIRST]
        losses = {each: calibrated_loss(own[place][rows], gold[rows]) for each, own in ways.items()}
        way = min(losses, key=losses.__getitem__)
    scores = ways[way][place]
    scale = prior_temperature(scores[list(to_fit_on(len(items)))])
    best = np.sort([softmax(each / scale) for each in scores], axis=1)
    order = np.argsort(best[:, -1] - best[:, -2], kind="stable")
    rows = np.concatenate([rows, order[~np.isin(order, rows)]])[:count]
    temperature = fitted_temperature(scores[rows], gold[rows].tolist(), scale)
    lessons = [
        Lesson(items[n], int(gold[n]), (0, 1, 2, 3), tuple((scores[n] / temperature).tolist()))
        for n in rows
    ]
    kind, _, premise = way.partition(", ")
    more = {"normalization": kind, "pmi_context": premise or "template"}
    _, model = refitted(lessons, count, more, cell["seed"], temperature)
    predicted = np.array([int(np.argmax(each)) for each in model.scores(judged, kind)])
    right = predicted == [known[item.id] for item in judged]
    return {
        **cell,
        "chosen": way,
        "labels": count,
        "n": len(right),
        "accuracy": float(right.mean()),
        "right": np.packbits(right).tobytes().hex(),
        "seconds": round(time.process_time() - begin, 1),
    }


def one(
    ways: Scores, right: dict[str, NDArray[np.bool_]], gold: NDArray[np.int64], n: int, seed: int
) -> dict[str, Any]:
    """What a draw of n labels chooses; a tie goes to the first way."""
    from stacksl.lm.scoring.normalize import calibrated_loss

    rows = np.random.default_rng(seed).choice(len(gold), n, replace=False)
    others = np.setdiff1d(np.arange(len(gold)), rows)
    by = {
        "accuracy": max(ways, key=lambda way: right[way][rows].mean()),
        "likelihood": min(ways, key=lambda way: calibrated_loss(ways[way][rows], gold[rows])),
    }
    accuracy = {how: float(right[way][others].mean()) for how, way in by.items()}
    return {"labels": n, "seed": seed, "chosen": by, "accuracy": accuracy}


def table(found: dict[str, Any]) -> str:
    """What the ways give without a label, then what a few labels choose."""
    ways = found["ways"]
    best = max(ways, key=ways.__getitem__)
    lines = ["| normalization, premise | accuracy |", "|---|---|"]
    lines += [f"| {way} | {accuracy:.3f} |" for way, accuracy in ways.items()]
    lines += [
        "",
        f"| labels | accuracy of the way chosen by accuracy, by likelihood | {best} chosen |",
        "|---|---|---|",
    ]
    for n in LABELS:
        rows = [row for row in found["rows"] if row["labels"] == n]
        how = ("accuracy", "likelihood")
        means = [f"{np.mean([row['accuracy'][each] for row in rows]):.3f}" for each in how]
        counts = [Counter(row["chosen"][each] for row in rows)[best] for each in how]
        share = ", ".join(f"{count / len(rows):.0%}" for count in counts)
        lines.append(f"| {n} | {', '.join(means)} | {share} |")
    return "\n".join([*lines, *trained(found.get("trained", []))])


def trained(rows: list[dict[str, Any]]) -> list[str]:
    """What the runs of `--train` come to, with 95% intervals of the difference."""
    cells: dict[Any, dict[Any, Any]] = {}
    for row in rows:
        key = (-row["quarter"], row["budget"], row["way"])
        cells.setdefault(key, {})[row["quarter"], row["seed"]] = row
    lines = [
        "",
        "| judged on | labels | way | accuracy by seed | over token_mean, seeds | questions |",
        "|---|---|---|---|---|---|",
    ]
    for (quarter, budget, way), own in sorted(cells.items(), reverse=True):
        each = ", ".join(f"{row['accuracy']:.3f}" for _, row in sorted(own.items()))
        plain = cells.get((quarter, budget, "token_mean"), {}) if way != "token_mean" else {}
        more = f"{difference(own, plain)} | {of_questions(own, plain):.3f}" if plain else " | "
        where = "held out" if quarter else "test"
        labels = next(iter(own.values()))["labels"]
        lines.append(f"| {where} | {budget:.0%} ({labels}) | {way} | {each} | {more} |")
    return lines if rows else []


def main() -> None:
    """Measure, or print the table of a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where the numbers are written")
    parser.add_argument("--from", dest="source", type=Path, help="print the table of a file")
    parser.add_argument("--train", action="store_true", help="add runs to the file of --json")
    parser.add_argument("--seeds", type=int, default=3, help="of these runs, from 0 on")
    parser.add_argument("--quarter", type=int, default=4, help="judged on; 0: the test questions")
    words = parser.parse_args()
    file = words.source or (words.json if words.train else None)
    record = json.loads(file.read_text()) if file else measure()
    if words.train:
        add(record, words.quarter, words.seeds, words.json)
    if words.json:
        words.json.write_text(json.dumps(record, indent=1) + "\n")
    print(table(record))


def add(found: dict[str, Any], quarter: int, seeds: int, file: Path) -> None:
    """Play the runs that are not in the file yet, and keep each."""
    from stacksl_lab.sample.questions import questions

    ways, rows = scores_of(questions()[0].items), found.setdefault("trained", [])
    for seed in range(seeds):
        for budget in SHARES:
            for way in TRAINED:
                cell = {"way": way, "budget": budget, "seed": seed, "quarter": quarter}
                if not any(all(row[name] == cell[name] for name in cell) for row in rows):
                    rows.append(train(cell, ways))
                    file.write_text(json.dumps(found, indent=1) + "\n")
                    shown = {name: each for name, each in rows[-1].items() if name != "right"}
                    print(json.dumps(shown), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
