"""How many labels until a table of which so many rows are right is delivered, and is that so?

A table is labeled by people and a model under the rule `--stop-when right=97%`. The models by
labels bought are made once for each set, seed and rate of people's errors and kept in a folder;
audits and further answers are drawn again from them. Next to it are margin sampling and random rows
under logistic regression, with the same rules for when to look, the same audits and the same
promise, and labeling every row. Two people or more answer where people err, evenly over the other
classes: audited rows have their second look, and rows sampled of people's are asked until two
agree.

A run without a promise counts as one that labels every row. The rows of an audit that promised
nothing count as the model's again. No test file is read, but by the weak classifier of `--columns`:
a table that has a column of labels, so many of them right, whose doubtful ones people mend.

    python benchmarks/promises.py --data $STACKSL_DATA --models FOLDER --json promises.json
    python benchmarks/promises.py --from benchmarks/results/promises.json
    python benchmarks/promises.py --columns --data $STACKSL_DATA --models OTHER --json FILE
    python benchmarks/promises.py --columns --from benchmarks/results/promised_columns.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from doubtful_labels import RIGHT, labels_of
from doubtful_labels import SETS as WEAK
from doubtful_labels import table_of as weak_table
from floors import Case, split_of
from numpy.typing import NDArray
from plan_scenarios import DEFAULT
from second_answers import answers_of

from stacksl.core.blocks import SharedBlock
from stacksl.core.gates.registry import COVERAGE
from stacksl.core.heads.coverage import most_covering
from stacksl.core.heads.logistic import folds_of
from stacksl.core.rng import generator
from stacksl.core.threads import one_thread
from stacksl.models.promise import (
    LOOKS,
    MODEL,
    PEOPLE,
    WORTH,
    Doubled,
    Look,
    allowed_wrong,
    calibrated_wrong,
    left_wrong,
    look_now,
)
from stacksl.models.promise import Stage as Known
from stacksl.models.second_look import MOST as MOST_ANSWERS
from stacksl.runs.loop.head_fitting import (
    Source,
    doubt_of,
    held_out,
    held_out_answers,
    make_final,
    represented,
)
from stacksl.version import __version__
from stacksl_lab.pools import ours
from stacksl_lab.pools.split import Pool

SETS = ("banking77", "stackoverflow_titles", "snips", "medquad")
ERRORS = (0.0, 0.05)
SHARES = (0.93, 0.95, 0.97)
ARMS = ("product", "margin", "random")
STEP = 100  # labels between two looks at whether an audit is worth it
MOST = 0.85  # of the rows
LARGEST = 4_000  # rows of a table

Rows = NDArray[np.int64]


class Stage(NamedTuple):
    """A model: the labels before it, its answers, and what its expectation is calibrated by.

    `held` are its probabilities of held-out answers, whether these were right, and how many rows
    each represents; `rest` its probabilities of its answers to the other rows, before which those
    by heads of folds that left them out stand where people err, (2, rows). Of a column also how
    many of these are `flagged` as wrong.
    """

    labels: int
    predicted: Rows
    held: NDArray[Any]
    rest: NDArray[Any]
    flagged: int | None = None


def products(
    pool: Pool, people: Rows, most: int, error: float
) -> Iterator[tuple[Stage, list[int]]]:
    """The models of a run that buys what covers the doubt of its final model."""
    n = len(pool.gold)
    source = Source(pool.block, pool.names, frozenset(), pool.settings.seed)
    bought = list(ours.bought_rows(replace(pool, gold=people), COVERAGE, STEP))
    kernel, members = source.kernel()
    while len(bought) <= most:
        rows = np.array(bought)
        free = np.ones(n, dtype=bool)
        free[rows] = False
        others = np.flatnonzero(free)
        left_out = others if error else others[:0]
        mixture, (*held, rest) = held_out_answers(source, rows, people[rows], left_out)
        head = make_final(source, rows, people[rows], mixture)[0]
        policies = np.asarray(head.probabilities(pool.block))
        own = policies.max(axis=1)[others]
        rest = np.stack([rest, own]) if error else own
        yield Stage(len(bought), policies.argmax(axis=1), np.stack(held), rest), bought
        best = np.partition(policies, -2, axis=1)
        doubt = 1 - (best[:, -1] - best[:, -2])
        more = most_covering(kernel, doubt[members], free[members], STEP).items
        bought = [*bought, *members[more].tolist()]


def regressions(pool: Pool, people: Rows, most: int, arm: str) -> Iterator[tuple[Stage, list[int]]]:
    """The models of logistic regression on rows of the smallest margins, or random ones."""
    from sklearn.linear_model import LogisticRegression

    n, order = len(pool.gold), list(pool.order)
    h, bought = np.asarray(pool.block.take(range(n)).h, dtype=np.float64), order[:STEP]
    while len(bought) <= most:
        rows = np.array(bought)
        free = np.setdiff1d(np.arange(n), rows)
        sure, right = np.zeros(len(rows)), np.zeros(len(rows))
        for train, held in folds_of(len(rows), pool.settings.seed):
            model = LogisticRegression(C=10.0, max_iter=300).fit(
                h[rows[train]], people[rows[train]]
            )
            policies = model.predict_proba(h[rows[held]])
            sure[held] = policies.max(axis=1)
            right[held] = model.classes_[policies.argmax(axis=1)] == people[rows[held]]
        model = LogisticRegression(C=10.0, max_iter=300).fit(h[rows], people[rows])
        policies = model.predict_proba(h)
        held = np.stack([sure, right, np.ones(len(rows))])
        predicted, rest = model.classes_[policies.argmax(axis=1)], policies.max(axis=1)[free]
        yield Stage(len(bought), predicted, held, rest), bought
        best = np.partition(policies, -2, axis=1)[free]
        near = free[np.argsort(best[:, -1] - best[:, -2], kind="stable")[:STEP]].tolist()
        bought = order[: len(bought) + STEP] if arm == "random" else [*bought, *near]


def mended(
    block: SharedBlock, texts: Rows, column: Rows, people: Rows, most: int, step: int = STEP
) -> Iterator[tuple[Stage, list[int]]]:
    """The stages of a run over a column of labels, of which people mend the most doubtful ones."""
    bought: list[int] = []
    labels, every = column.copy(), np.arange(len(column))
    while len(bought) <= most:
        policies = held_out(block, texts, labels, 0)
        doubt, free = doubt_of(policies, texts, column, labels), np.setdiff1d(every, bought)
        if bought:
            rows = np.array(bought)
            right = (column[rows] == people[rows]).astype(float)
            weight = represented(block, every, rows, 0)
            held = np.stack([policies[rows, column[rows]], right, weight])
            flagged = int(doubt.flagged[free].sum())
            yield Stage(len(bought), column, held, doubt.sure[free], flagged), bought
        new = free[np.argsort(doubt.sure[free], kind="stable")[:step]]
        bought, labels[new] = [*bought, *new.tolist()], people[new]


def played_columns(source: str, error: float, seed: int, data: Path, folder: Path) -> None:
    """The stages over columns of a set, kept."""
    table = None
    for share in RIGHT:
        file = folder / f"{source}-{error}-{seed}-column {share}.npz"
        if file.exists():
            continue
        table = table or weak_table(source, data)
        column = labels_of(table, share, seed)
        people = answers_of(table.truth, table.weak.shape[1], error, seed)
        most = int(MOST * len(column))
        keep(file, mended(table.block, table.texts, column, people[0], most), table.truth, people)


def played(source: str, error: float, seed: int, arm: str, data: Path, folder: Path) -> None:
    """The models of an arm, kept."""
    file = folder / f"{source}-{error}-{seed}-{arm}.npz"
    if file.exists():
        return
    split = split_of(Case(source, DEFAULT, pool=LARGEST), data)
    pool = split.pool(seed)
    people = answers_of(pool.gold, int(split.about["classes"]), error, seed)
    most = int(MOST * len(pool.gold))
    if arm == "product":
        models = products(pool, people[0], most, error)
    else:
        models = regressions(pool, people[0], most, arm)
    keep(file, models, pool.gold, people)


def keep(file: Path, models: Iterator[tuple[Stage, list[int]]], gold: Rows, people: Rows) -> None:
    """Make the stages of a run, over no column until hardly a row is wrong, and write them."""
    error, start = float(file.stem.rsplit("-", 3)[1]), time.process_time()
    stages: list[Stage] = []
    bought: list[int] = []
    for stage, bought in models:
        stages.append(stage)
        rest = np.setdiff1d(np.arange(len(gold)), bought)
        wrong = int((stage.predicted != gold)[rest].sum())
        print(
            f"{file.stem} {stage.labels} of {len(gold)}: {wrong} wrong,"
            f" {expectation(stage.held, stage.rest, error, Doubled(), stage.flagged):.1f} expected,"
            f" {time.process_time() - start:.0f} s",
            flush=True,
        )
        if wrong < 0.002 * len(rest) and "column" not in file.stem:
            break
    np.savez_compressed(
        file,
        labels=np.array([each.labels for each in stages]),
        predicted=np.array([each.predicted for each in stages], dtype=np.int16),
        held=np.concatenate([each.held for each in stages], axis=1).astype(np.float32),
        rest=np.concatenate([each.rest for each in stages], axis=-1).astype(np.float32),
        flagged=np.array([each.flagged for each in stages if each.flagged is not None]),
        bought=np.array(bought),
        gold=gold,
        people=people,
    )


def expectation(
    held: Any, rest: Any, error: float, doubled: Doubled, flagged: int | None = None
) -> float:
    """How many of the rest are expected to be wrong."""
    sure, right, weight = held.astype(np.float64)
    rate = doubled.rate if error else 0.0
    return calibrated_wrong(sure, right, weight, rest.astype(np.float64), rate, flagged)


class Delivered(NamedTuple):
    """A run to its end: the labels it took; whether its promise was broken, None without one."""

    labels: int
    broken: bool | None


@lru_cache(maxsize=400_000)
def look_of(
    stages: tuple[Known, ...], *rest: Any, reach: bool = False, looked: bool = False
) -> Look | None:
    """`look_now`, which many draws ask for alike."""
    return look_now(stages, *rest, reach=reach, looked=looked)


bound = lru_cache(maxsize=100_000)(left_wrong)


def further(answers: Rows) -> tuple[Rows, int]:
    """What two of the people said of each row, (rows,), −1 where no two agree; answers beyond one.

    `answers` are (4, rows), in the order in which people are asked.
    """
    agreed, taken = np.full(answers.shape[1], -1), 0
    for column, given in enumerate(answers.T.tolist()):
        second = next((n for n in range(1, MOST_ANSWERS) if given[n] in given[:n]), None)
        taken += MOST_ANSWERS - 1 if second is None else second
        if second is not None:
            agreed[column] = given[second]
    return agreed, taken


def expected_at(models: Mapping[str, NDArray[Any]], error: float) -> Any:
    """A function of stage and doubled answers: `expectation` there."""
    n, labels = len(models["gold"]), models["labels"]
    starts = np.concatenate([[0], np.cumsum(labels)])
    others = np.concatenate([[0], np.cumsum(n - labels)])

    @lru_cache(maxsize=100_000)
    def expected(place: int, doubled: Doubled) -> float:
        held = models["held"][:, starts[place] : starts[place + 1]]
        rest = models["rest"][..., others[place] : others[place + 1]]
        flagged = int(models["flagged"][place]) if len(models["flagged"]) else None
        return expectation(held, rest, error, doubled, flagged)

    return expected


def delivered(
    models: Mapping[str, NDArray[Any]], expected_of: Any, error: float, share: float, rng: Any
) -> Delivered:
    """A run played to its promise."""
    gold, first, bought = models["gold"], models["people"][0], models["bought"]
    n, classes = len(gold), int(gold.max()) + 1
    allowed = allowed_wrong(share, n)
    stages: list[Known] = []
    spent, looked, factor, doubled = 0, 0, 1.0, Doubled()

    def answers(rows: Rows, before: Rows | None = None) -> Rows:
        wrong = rng.random((MOST_ANSWERS, len(rows))) < error
        given = (gold[rows] + wrong * rng.integers(1, classes, wrong.shape)) % classes
        return given if before is None else np.concatenate([before[None], given[1:]])

    for place, labels in enumerate(models["labels"].tolist()):
        stages.append(Known(labels, round(expected_of(place, doubled), 1)))
        rate = round(doubled.rate, 3) if error else None
        if doubled.answers and WORTH * doubled.rate * labels > allowed:
            break
        if len(stages) < 3:
            continue
        # at most a label for each row, two where people err; a tenth is kept for third answers
        left = ((2 * n if error else n) - labels - spent) * (9 if error else 10) // 10 // 25 * 25
        known = (tuple(stages[-4:]), labels, n - labels, allowed, left, round(factor, 2), rate)
        look = look_of(*known)
        if look is None:
            half = 2 * labels >= (2 * n if error else n)  # of the budget
            if (looked or half) and look_of(*known, reach=True) is None:
                break
            continue
        looked += 1
        own, rest = bought[:labels], np.setdiff1d(np.arange(n), bought[:labels])
        table = models["predicted"][place].astype(np.int64)
        table[own] = first[own]
        rows = rng.choice(rest, look.audit, replace=False)
        given, model = answers(rows), models["predicted"][place][rows]
        said, wrong, of_people, divided = given[0], int((given[0] != model).sum()), 0, 0
        spent += look.audit
        if error:
            settled, more = further(given)
            wrong = int((settled != model).sum())
            said = np.where(settled < 0, said, settled)
            asked = rng.choice(own, look.sample, replace=False)
            given_again = answers(asked, first[asked])
            of_sample, yet = further(given_again)
            different = int((of_sample != first[asked]).sum())
            table[asked] = np.where(of_sample < 0, first[asked], of_sample)
            of_people = bound(different, look.sample, labels, PEOPLE)
            divided = int((settled < 0).sum() + (of_sample < 0).sum())
            differ = 5 * round(int((given_again[1] != given_again[0]).sum()) / 5)  # calibrated once
            doubled = Doubled(doubled.wrong + differ, doubled.answers + 2 * look.sample)
            spent += more + yet
        table[rows] = said
        if bound(wrong, look.audit, n - labels, MODEL) + of_people + divided <= allowed:
            return Delivered(labels + spent, bool((table != gold).sum() > allowed))
        expected = factor * stages[-1].expected * look.audit / (n - labels)
        factor *= min(4.0, max(1.0, (wrong + 1) / (expected + 1)))
        if looked == LOOKS:
            break
        left = ((2 * n if error else n) - labels - spent) * (9 if error else 10) // 10 // 25 * 25
        known = (*known[:4], left, round(factor, 2), rate)
        if look_of(*known, reach=True, looked=True) is None:
            break
    return Delivered(n, None)


def drawn(folder: Path, draws: int) -> Iterator[dict[str, Any]]:
    """A row for each kept run, and share that is to be right."""
    for file in sorted(folder.glob("*.npz")):
        source, error, seed, arm = file.stem.rsplit("-", 3)
        with np.load(file) as kept:
            models = {name: kept[name] for name in kept.files}
        expected_of = expected_at(models, float(error))
        for share in SHARES:
            rng = generator(int(seed), f"promises {file.stem} {share}")
            ends = [delivered(models, expected_of, float(error), share, rng) for _ in range(draws)]
            promised = [each for each in ends if each.broken is not None]
            yield {
                **{"set": source, "rows": len(models["gold"]), "errors": float(error)},
                **{"seed": int(seed), "arm": arm, "right": share, "draws": draws},
                "labels": round(float(np.mean([each.labels for each in ends])), 1),
                "refused": draws - len(promised),
                "broken": sum(bool(each.broken) for each in promised),
            }


def table_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each set, rate of errors and share."""
    lines = [
        "| set (rows) | people's errors | right | product | margin | random | to the best other |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    cells = {(r["set"], r["errors"], r["right"], r["arm"]): r for r in rows}
    for source, error, share in sorted({key[:3] for key in cells}):
        own = [cells[source, error, share, arm] for arm in ARMS]
        labels = [_labels_cell(row) for row in own]
        ratio = own[0]["labels"] / min(each["labels"] for each in own[1:])
        lines.append(
            f"| {source} ({own[0]['rows']:,}) | {100 * error:g}% | {100 * share:g}% |"
            f" {' | '.join(labels)} | {ratio:.2f} |"
        )
    return "\n".join(lines)


def _labels_cell(row: Mapping[str, Any]) -> str:
    """The labels that a run took, and how many draws refused its promise."""
    refused = f" ({row['refused']} refused)" if row["refused"] else ""
    return f"{row['labels']:,.0f}{refused}"


def columns_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each set and share of right labels in the column."""
    rates = [(error, share) for error in ERRORS for share in SHARES]
    heads = [f"{100 * share:g}%, people err in {100 * error:g}%" for error, share in rates]
    lines = [f"| set (rows) | right in the column | {' | '.join(heads)} |"]
    lines.append("|---|---|" + "---|" * len(rates))
    cells = {(r["set"], r["arm"], r["errors"], r["right"]): r for r in rows}
    for source, arm in sorted({key[:2] for key in cells}):
        own = [cells[source, arm, *rate] for rate in rates]
        labels = [_labels_cell(row) for row in own]
        first = f"{source} ({own[0]['rows']:,}) | {float(arm.split()[1]):.0%}"
        lines.append(f"| {first} | {' | '.join(labels)} |")
    return "\n".join(lines)


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Promises broken, and the mean ratio of labels by errors and share."""
    count = sum(r["draws"] - r["refused"] for r in rows)
    broken = sum(r["broken"] for r in rows)
    worst = max(r["broken"] / r["draws"] for r in rows)
    lines = [f"{broken} of {count:,} promises broken; at most {100 * worst:.1f}% in a cell"]
    if rows[0]["arm"] not in ARMS:
        return lines[0]
    cells = {(r["set"], r["errors"], r["right"], r["arm"]): r["labels"] for r in rows}
    for error, share in sorted({(r["errors"], r["right"]) for r in rows}):
        ratios = [
            cells[source, error, share, "product"]
            / min(cells[source, error, share, arm] for arm in ARMS[1:])
            for source in sorted({r["set"] for r in rows})
        ]
        lines.append(f"errors {error:g}, right {share:g}: mean ratio {np.mean(ratios):.3f}")
    return "\n".join(lines)


def main() -> None:
    """Make what is missing, draw again, and print."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--data", type=Path)
    options.add_argument("--models", type=Path)
    options.add_argument("--json", type=Path)
    options.add_argument("--from", dest="kept", type=Path)
    options.add_argument("--sets", nargs="+", default=SETS)
    options.add_argument("--seeds", nargs="+", type=int, default=[0])
    options.add_argument("--draws", type=int, default=500)
    options.add_argument("--columns", action="store_true", help="tables with a column of labels")
    given = options.parse_args()
    if given.kept is not None:
        rows = json.loads(given.kept.read_text())["rows"]
    else:
        given.models.mkdir(exist_ok=True)
        with one_thread():
            for seed in given.seeds:
                for error in ERRORS:
                    for source in WEAK if given.columns else given.sets:
                        if given.columns:
                            played_columns(source, error, seed, given.data, given.models)
                            continue
                        for arm in ARMS:
                            played(source, error, seed, arm, given.data, given.models)
            rows = list(drawn(given.models, given.draws))
        if given.json is not None:
            given.json.write_text(
                json.dumps({"version": __version__, "rows": rows}, indent=1) + "\n"
            )
    print(columns_table(rows) if given.columns else table_of(rows))
    print(summary(rows))


if __name__ == "__main__":
    main()
