"""Does the audit's interval hold? How often it covers the accuracy that it is meant to tell.

For each seed a uniform block of a third of the pool, at most 3,000 items, is kept from a run of
`stacksl run`, which buys labels of the rest: 10% of its items, less an audit of the default size.
Then 2,000 audits of that size are drawn from the block as a run draws its own, and each gives a
95% Wilson interval; `covered` is the share of them that hold the final model's accuracy on the
whole block. `exact` is the same share over all possible audits: the probability under the
hypergeometric distribution. The block is finite and audits are drawn from it without
replacement, which makes intervals for new items a little wide here; `binomial` is the exact
coverage of the accuracy on new items, where there is no such help.

    python benchmarks/audit_coverage.py --data $STACKSL_DATA --json results.json
    python benchmarks/audit_coverage.py --from results.json

With `--people` it asks the same where people err, of the audit with its second look and of the
plain one, which takes the first answers as right. The final models of runs with 300 labels answer
a block that was kept from them. Each redraw draws an audit from the block with replacement, and its
answers: a person errs independently of the others, at a rate that is the same for all rows or three
or five times as high where the model errs, and there half or 70% of the errors are the model's
answer; of divided rows, 60 of 100 people give the right answer and the others one and the same
wrong one, which is the model's where that errs. The second look is asked by the functions of the
product, within the labels that a run keeps for it. `over` is the share of redraws whose low end
lies above the truth. Each redraw also gives the interval that a run over a pool ships, `both`: the
same answers, and the model's probabilities of its own answers to as many further rows of the block
as the run would have reference rows.

    python benchmarks/audit_coverage.py --people --data $STACKSL_DATA --json people.json
    python benchmarks/audit_coverage.py --people --from people.json
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _rows import write_record
from plan_scenarios import DEFAULT, MINILM

import stacksl
from stacksl.core.rng import generator
from stacksl.data import Dataset, read, sample
from stacksl.models.audit import default_size, draw
from stacksl.models.metrics import Powers, reference_size, wilson
from stacksl.models.second_look import looked, next_rows, reserved
from stacksl.models.second_look import split as split_rows
from stacksl.runs.settings.budget import parse_budget

LARGEST_BLOCK = 3000
AUDITS = 2000
BUDGET = "0.1"
SETS = {
    "banking77": DEFAULT,
    "openbookqa": MINILM,
    "sample": "hashing",
}
MEAN_BAR, LEAST_BAR = (0.93, 0.98), 0.91


def load(name: str, folder: Path) -> Dataset:
    """A data set with all its answers."""
    if name == "sample":
        return sample()[0]
    ending = "train.csv" if name == "banking77" else "train.jsonl.gz"
    return read(folder / name / ending)


def split(dataset: Dataset, seed: int) -> tuple[Dataset, Dataset]:
    """What the run may see, in the order of the file, and the block that is kept from it."""
    size = min(len(dataset.items) // 3, LARGEST_BLOCK)
    order = generator(seed, "benchmark/block").permutation(len(dataset.items))
    block = {int(row) for row in order[:size]}
    parts = ([], [])  # type: tuple[list[Any], list[Any]]
    for row, item in enumerate(dataset.items):
        parts[row in block].append(item)
    rest, kept = (
        replace(dataset, items=tuple(p), answers={i.id: dataset.answers[i.id] for i in p})
        for p in parts
    )
    return rest, kept


def right_answers(rest: Dataset, block: Dataset, seed: int, features: str) -> dict[str, Any]:
    """A run over `rest`, and which items of the block its final model answers rightly."""
    labels = parse_budget(BUDGET, len(rest.items), None).labels
    size = default_size(labels)
    with tempfile.TemporaryDirectory() as folder:
        run = stacksl.run(
            rest,
            budget=labels - size,
            audit=0,
            seed=seed,
            features=features,
            out=Path(folder) / "run",
        )
        predicted = [row["index"] for row in run.predict(block.items)]
        mode = json.loads((run.path / "facts.json").read_text())["method"]["mode"]
    gold = [block.answers[item.id] for item in block.items]
    right = np.array(predicted) == np.array(gold)
    return {"items": len(rest.items), "labels": labels, "audit": size, "right": right, "mode": mode}


def covers(correct: int, size: int, truth: float) -> bool:
    """Whether Wilson's interval of an audit holds the truth."""
    low, high = wilson(correct, size)
    return low <= truth <= high


def simulated(right: np.ndarray, size: int, seed: int) -> float:
    """The share of `AUDITS` audits, drawn as a run draws its own, that cover the block."""
    truth = float(right.mean())
    hits = [
        covers(int(right[draw(len(right), size, seed, epoch=number)].sum()), size, truth)
        for number in range(AUDITS)
    ]
    return float(np.mean(hits))


def exact(size: int, truth: float, mass: Callable[[np.ndarray], np.ndarray]) -> float:
    """The probability that an audit covers, from that of every count of right answers."""
    counts = np.arange(size + 1)
    inside = np.array([covers(int(count), size, truth) for count in counts])
    return float(mass(counts)[inside].sum())


def measure(name: str, dataset: Dataset, seed: int) -> dict[str, Any]:
    """One run with its 2,000 audits."""
    from scipy.stats import binom, hypergeom

    rest, block = split(dataset, seed)
    run = right_answers(rest, block, seed, SETS[name])
    right, size = run.pop("right"), run["audit"]
    correct, n = int(right.sum()), len(right)
    truth = correct / n
    return {
        "set": name,
        "seed": seed,
        "features": SETS[name],
        **run,
        "block": n,
        "correct": correct,
        "accuracy": truth,
        "audits": AUDITS,
        "covered": simulated(right, size, seed),
        "exact": exact(size, truth, lambda k: hypergeom(n, correct, size).pmf(k)),
        "binomial": exact(size, truth, lambda k: binom(size, truth).pmf(k)),
    }


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line a data set: mean and least coverage, and whether they meet the bars."""
    lines = []
    for name in SETS:
        mine = [row for row in rows if row["set"] == name]
        if not mine:
            continue
        taken = {key: np.array([row[key] for row in mine]) for key in ("covered", "exact")}
        mean, least = float(taken["covered"].mean()), float(taken["covered"].min())
        lines.append(
            {
                "set": name,
                "runs": len(mine),
                "audit": mine[0]["audit"],
                "block": mine[0]["block"],
                "accuracy": float(np.mean([row["accuracy"] for row in mine])),
                "mean": mean,
                "least": least,
                "exact": float(taken["exact"].mean()),
                "exact_least": float(taken["exact"].min()),
                "binomial": float(np.mean([row["binomial"] for row in mine])),
                "met": MEAN_BAR[0] <= mean <= MEAN_BAR[1] and least >= LEAST_BAR,
            }
        )
    return lines


def table(rows: list[dict[str, Any]]) -> str:
    """The summary as Markdown."""
    lines = [
        "| set | runs | audit of | block | accuracy on the block | coverage, mean | least"
        " | exact, mean | least | new items, mean | |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in summary(rows):
        shares = [f"{100 * row[k]:.1f}%" for k in ("mean", "least", "exact", "exact_least")]
        lines.append(
            f"| {row['set']} | {row['runs']} | {row['audit']} | {row['block']:,} |"
            f" {row['accuracy']:.3f} | {' | '.join(shares)} | {100 * row['binomial']:.1f}% |"
            f" {'met' if row['met'] else 'missed'} |"
        )
    return "\n".join(lines)


# Where people err -------------------------------------------------------------------------------

PEOPLE_SETS = ("banking77", "snips", "stackoverflow_titles")
ERRORS = (
    ("no errors", {"rate": 0.0}),
    ("2%", {"rate": 0.02}),
    ("5%", {"rate": 0.05}),
    ("10%", {"rate": 0.1}),
    ("5%, 3x, half", {"rate": 0.05, "times": 3, "along": 0.5}),
    ("5%, 5x, 70%", {"rate": 0.05, "times": 5, "along": 0.7}),
    ("10%, 3x, half", {"rate": 0.1, "times": 3, "along": 0.5}),
    ("10%, 5x, 70%", {"rate": 0.1, "times": 5, "along": 0.7}),
    ("5% divided", {"rate": 0.0, "divided": 0.05}),
    ("10% divided", {"rate": 0.0, "divided": 0.1}),
)
"""How people err: the mean rate, how many `times` as often where the model errs, the share of these
errors `along` its answer, and the share of `divided` rows."""
SIZES, CREWS, LABELS = (50, 100, 200), (2, 3, 6), 300
MOST_OVER, MOST_OVER_ALONG = 0.04, 0.06  # the goals for `over`; the second for five times as often


class Answered(NamedTuple):
    """A run's final model on a block.

    Attributes:
        said: the model's answers, (n,).
        gold: the right ones, (n,).
        classes: their number.
        sure: the model's probabilities of its own answers, (n,).
        items: those that the run may buy or have as reference rows.
    """

    said: np.ndarray
    gold: np.ndarray
    classes: int
    sure: np.ndarray
    items: int


def people_model(name: str, dataset: Dataset) -> Answered:
    """The final model of a run with 300 labels, on the block that was kept from it."""
    rest, block = split(dataset, 0)
    with tempfile.TemporaryDirectory() as folder:
        run = stacksl.run(
            rest, budget=LABELS, audit=0, seed=0, mode="pool", features=DEFAULT,
            out=Path(folder) / "run",
        )  # fmt: skip
        rows = list(run.predict(block.items))
    predicted, sure = (np.array([row[key] for row in rows]) for key in ("index", "probability"))
    gold = np.array([block.answers[item.id] for item in block.items])
    return Answered(predicted, gold, len(dataset.classes), sure, len(rest.items))


def answers_of(
    gold: np.ndarray,
    said: np.ndarray,
    classes: int,
    crew: int,
    rng: np.random.Generator,
    *,
    rate: float,
    times: float = 1.0,
    along: float = 0.0,
    divided: float = 0.0,
    share: float,
) -> np.ndarray:
    """What each of `crew` people says of each row, (n, crew); the model errs on a `share`."""
    wrong = said != gold
    low = rate / (1 - share + times * share)
    each = np.where(wrong, np.minimum(1.0, low * times), low)[:, None]
    shape = (len(gold), crew)
    other = (gold[:, None] + rng.integers(1, classes, size=shape)) % classes
    follows = wrong[:, None] & (rng.random(shape) < along)
    slip = np.where(follows, said[:, None], other)
    answers = np.where(rng.random(shape) < each, slip, gold[:, None])
    torn = rng.random(len(gold)) < divided
    rival = np.where(wrong, said, (gold + rng.integers(1, classes, size=len(gold))) % classes)
    minority = torn[:, None] & (rng.random(shape) < 0.4)
    return np.where(minority, rival[:, None], answers)


def second_look(
    said: np.ndarray, given: np.ndarray, kept: int, powers: Powers | None = None
) -> tuple[tuple[float, float], int]:
    """The interval of an audit after its second look, and how many further answers that took."""
    n, crew = given.shape
    order, told = list(range(n)), given.tolist()
    predicted = dict(enumerate(said.tolist()))
    answers = {row: [told[row][0]] for row in order}
    begun: set[int] = set()
    left = kept
    while True:
        rows = split_rows(order, predicted, answers, begun)
        free = {row: crew - len(given) for row, given in answers.items()}
        due = next_rows(rows, answers, free, left)
        if not due:
            break
        left -= len(due)
        begun |= set(due)
        for row in due:
            answers[row].append(told[row][len(answers[row])])
    return looked(rows, predicted, answers, powers).accuracy[1:], kept - left


def people_cell(
    model: Answered,
    errors: dict[str, float],
    size: int,
    crew: int,
    redraws: int,
    seed: int,
) -> dict[str, float]:
    """One cell: shares over redraws of an audit."""
    said, gold, classes, sure, items = model
    rng, share = np.random.default_rng(seed), float((said != gold).mean())
    apart = np.random.default_rng((seed, 1))  # the reference rows change no other draw
    beside = reference_size(items - size, LABELS - size)
    truth = 1 - share
    counts = {"holds": 0, "over": 0, "width": 0.0, "answers": 0, "plain": 0, "plain_over": 0}
    counts |= {"perfect": 0, "perfect_over": 0, "perfect_width": 0.0}
    counts |= {"both": 0, "both_over": 0, "both_width": 0.0}
    for _ in range(redraws):
        rows = rng.integers(len(gold), size=size)
        given = answers_of(gold[rows], said[rows], classes, crew, rng, **errors, share=share)
        kept = reserved(size, 10 * size)
        (low, high), asked = second_look(said[rows], given, kept)
        powers = Powers(sure[rows], sure[apart.integers(len(gold), size=beside)])
        both, _ = second_look(said[rows], given, kept, powers)
        counts["answers"] += asked / size
        plain = wilson(int((given[:, 0] == said[rows]).sum()), size)
        perfect = wilson(int((gold[rows] == said[rows]).sum()), size)
        ends = {"": (low, high), "plain": plain, "perfect": perfect, "both": both}
        for name, (least, most) in ends.items():
            counts[name or "holds"] += least <= truth <= most
            counts[f"{name}_over" if name else "over"] += least > truth
        counts["width"] += high - low
        counts["perfect_width"] += perfect[1] - perfect[0]
        counts["both_width"] += both[1] - both[0]
    return {name: value / redraws for name, value in counts.items()}


def run_people(words: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the cells that the JSON file does not hold yet."""
    rows: list[dict[str, Any]] = []
    if words.json and words.json.exists():
        rows = json.loads(words.json.read_text())["rows"]
    done = {(row["set"], row["errors"], row["audit"], row["people"]) for row in rows}
    cells = [(e, s, c) for e in range(len(ERRORS)) for s in SIZES for c in CREWS]
    for name in words.sets:
        model = None
        for number, (which, size, crew) in enumerate(cells):
            label, errors = ERRORS[which]
            if (name, label, size, crew) in done:
                continue
            if model is None:
                model = people_model(name, read(words.data / name / "train.csv"))
            shares = people_cell(model, errors, size, crew, words.redraws, number)
            redraws = words.redraws
            if max(shares["over"], shares["both_over"]) > _most(_bar(label), redraws):
                redraws *= 10  # drawn again, which decides
                shares = people_cell(model, errors, size, crew, redraws, 1000 + number)
            about = {"set": name, "accuracy": float((model.said == model.gold).mean())}
            about |= {"errors": label, "audit": size, "people": crew, "redraws": redraws}
            rows.append(about | shares)
            if words.json:
                save(words.json, rows, people=True)
        print(f"{name}: done", file=sys.stderr, flush=True)
    return rows


def _bar(errors: str) -> float:
    return MOST_OVER_ALONG if "5x" in errors else MOST_OVER


def _most(bar: float, redraws: int) -> float:
    """The share above which a cell is over the goal by more than two standard errors."""
    return bar + 2 * (bar * (1 - bar) / redraws) ** 0.5


def people_table(rows: list[dict[str, Any]]) -> str:
    """A line for each way of erring and number of people: means over sets and sizes of audit."""
    lines = [
        "| people err | people | coverage, 50 | 100 | 200 | least | over, mean | most"
        " | width, 50 | 100 | 200 | of perfect answers, 200 | first answers alone | more answers |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for label, crew, mine in _groups(rows):
        cells = _cells(mine, "holds", "over", "width")
        cells += [_mean(_of_size(mine, SIZES[-1]), "perfect_width"), _mean(mine, "plain")]
        shown = [f"{cell:.3f}" for cell in cells] + [f"{_mean(mine, 'answers'):.2f}"]
        lines.append(f"| {label} | {crew} | {' | '.join(shown)} |")
    return "\n".join(lines)


def both_table(rows: list[dict[str, Any]]) -> str:
    """The same of the interval with both corrections, next to that of the second look alone."""
    lines = [
        "| people err | people | coverage, 50 | 100 | 200 | least | over, mean | most"
        " | width, 50 | 100 | 200 | of the second look alone, 200 | its coverage, mean |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for label, crew, mine in _groups(rows):
        cells = _cells(mine, "both", "both_over", "both_width")
        cells += [_mean(_of_size(mine, SIZES[-1]), "width"), _mean(mine, "holds")]
        lines.append(f"| {label} | {crew} | {' | '.join(f'{cell:.3f}' for cell in cells)} |")
    return "\n".join(lines)


def _groups(rows: list[dict[str, Any]]) -> Iterator[tuple[str, int, list[dict[str, Any]]]]:
    """The rows of each way of erring and number of people that has all sizes of audits."""
    for label, crew in product([label for label, _ in ERRORS], CREWS):
        mine = [row for row in rows if (row["errors"], row["people"]) == (label, crew)]
        if {row["audit"] for row in mine} == set(SIZES):
            yield label, crew, mine


def _cells(mine: list[dict[str, Any]], holds: str, over: str, width: str) -> list[float]:
    """Coverage by size and at least, `over` on average and at most, and width by size."""
    by_size = [_of_size(mine, size) for size in SIZES]
    cells = [_mean(some, holds) for some in by_size] + [min(row[holds] for row in mine)]
    cells += [_mean(mine, over), max(row[over] for row in mine)]
    return cells + [_mean(some, width) for some in by_size]


def _of_size(rows: list[dict[str, Any]], size: int) -> list[dict[str, Any]]:
    return [row for row in rows if row["audit"] == size]


def _mean(rows: list[dict[str, Any]], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def people_goals(
    rows: list[dict[str, Any]], holds: str = "holds", above: str = "over"
) -> list[str]:
    """A sentence for each goal of cells with errors of 5% at most, of one kind of interval."""
    few = [row for row in rows if "10%" not in row["errors"]]
    over = [row for row in few if row[above] > _most(_bar(row["errors"]), row["redraws"])]
    mean = float(np.mean([row[above] for row in few]))
    below = [row for row in few if row[holds] < row["perfect"] - 0.02]
    flatters = [row for row in below if row[above] > row["perfect_over"] + 0.02]
    return [
        f"{len(over)} of {len(few)} cells have the low end above the truth more often than wanted",
        f"{100 * mean:.1f}% of redraws have it, over all {len(few)} cells",
        f"{len(below)} of {len(few)} cells cover more than two points less than perfect answers,"
        f" {len(flatters)} of them by overstating",
    ]


BOTH = ("both", "both_over")


def save(path: Path, rows: list[dict[str, Any]], *, people: bool = False) -> None:
    """Write the rows with what made them, whole or not at all."""
    if people:
        command = "python benchmarks/audit_coverage.py --people --data FOLDER --json FILE"
        record: dict[str, Any] = {"version": stacksl.__version__, "command": command}
        goals = {"goals": people_goals(rows), "goals_both": people_goals(rows, *BOTH)}
        write_record(path, {**record, **goals, "rows": rows})
        return
    command = "python benchmarks/audit_coverage.py --data FOLDER --json FILE"
    record = {
        "version": stacksl.__version__,
        "command": command,
        "bars": {"mean": list(MEAN_BAR), "least": LEAST_BAR},
        "summary": summary(rows),
        "rows": rows,
    }
    write_record(path, record)


def run(words: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure what the JSON file does not hold yet."""
    rows: list[dict[str, Any]] = []
    if words.json and words.json.exists():
        rows = json.loads(words.json.read_text())["rows"]
    done = {(row["set"], row["seed"]) for row in rows}
    for name in words.sets:
        dataset = load(name, words.data or Path())
        for seed in range(words.seeds):
            if (name, seed) in done:
                continue
            rows.append(measure(name, dataset, seed))
            print(f"{name} {seed}: {rows[-1]['covered']:.4f}", file=sys.stderr, flush=True)
            if words.json:
                save(words.json, rows)
    return rows


def main() -> int:
    """Measure or show; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, help="the folder that holds banking77/ and openbookqa/"
    )
    parser.add_argument("--sets", nargs="+", choices=sorted({*SETS, *PEOPLE_SETS}))
    parser.add_argument("--people", action="store_true", help="where people err")
    parser.add_argument("--redraws", type=int, default=1000, help="of a cell, with --people")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write the rows here, and go on from what it has")
    parser.add_argument("--from", dest="source", type=Path, help="show the rows of this file")
    words = parser.parse_args()
    words.sets = words.sets or list(PEOPLE_SETS if words.people else SETS)
    if words.source is None and words.data is None and set(words.sets) != {"sample"}:
        parser.error("give --data FOLDER, or --sets sample, or --from FILE")
    play = run_people if words.people else run
    rows = json.loads(words.source.read_text())["rows"] if words.source else play(words)
    if words.people:
        print(people_table(rows), *people_goals(rows), "", sep="\n")
        print(both_table(rows), *people_goals(rows, *BOTH), sep="\n")
        return 0
    print(table(rows))
    return 0 if all(row["met"] for row in summary(rows)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
