"""Labels that a table has already: does the interval hold, and which rows to ask people about?

The labels are those of a weak classifier, at 70, 85 and 95% right: a logistic regression on word
counts of ten test rows of each class, with noise, whose true class is raised until as many rows are
right. So it errs along its own confusions, and on the rows that are hard for it. Rows are training
rows, 5,000 at most, with the default features.

Wrong labels found are counted among the first 100 and 300 rows asked, of which people tell the
truth: by the product, which is fitted again with what they said; by the same probabilities without
that; by cleanlab's ranking (`find_label_issues` by self-confidence, then the other rows likewise)
on these probabilities; by chance. Each is the mean over seeds.

The interval of the audit is drawn anew 1,000 times: Wilson's, and the product's, which also rests
on the held-out probabilities of all other rows; with right answers, and with people who err on 5%
and a second look by three of them. `over` is the share of redraws whose low end is above the truth.

The share of right labels in the table after 300 labels were asked about is estimated in 1,000 more
redraws: by the audited rows that stand for the labels left (`stand_for_left`), which is the
product's way, and by the audit of all labels, less those that were found to be wrong.

Final models are judged on up to 4,000 test rows that the weak classifier did not learn from, with
every C that the product chooses from. For this a fourth set is measured, too.

    pip install cleanlab
    python benchmarks/doubtful_labels.py --data $STACKSL_DATA --json FILE
    python benchmarks/doubtful_labels.py --final --data $STACKSL_DATA --json FILE
    python benchmarks/doubtful_labels.py --from benchmarks/results/doubtful_labels.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from _rows import write_record
from audit_coverage import answers_of, second_look
from plan_scenarios import DEFAULT

from stacksl import __version__
from stacksl.core.blocks import SharedBlock
from stacksl.core.heads.logistic import Strength
from stacksl.core.rng import generator
from stacksl.core.threads import one_thread
from stacksl.data import read
from stacksl.data.values import normal
from stacksl.features import make_features
from stacksl.models.audit import powered, right_in_table, stand_for_left
from stacksl.models.metrics import Powers, wilson
from stacksl.models.second_look import reserved
from stacksl.runs.loop.covering import EVERY
from stacksl.runs.loop.head_fitting import (
    AMONG_WRONG,
    column_strength,
    doubt_of,
    fitted_on,
    held_out,
)

SETS = ("banking77", "snips", "stackoverflow_titles")
RIGHT, SIZES, FOUND = (0.7, 0.85, 0.95), (50, 100, 200), (100, 300)
MOST, SHOTS, NOISE, BATCH = 5_000, 10, 0.5, 25
FINAL_SETS, FINAL_SEEDS, PEOPLE, TEST = (*SETS, "medical_abstracts"), 2, (0, 1_000), 4_000
REDRAWS, OF_PEOPLE, RATE, CREW = 1_000, 300, 0.05, 3


class Table(NamedTuple):
    """The rows of a set: features, the number of each text, the truth, the weak scores.

    And those of test rows that the weak classifier did not learn from: features and the truth.
    """

    block: SharedBlock
    texts: np.ndarray
    truth: np.ndarray
    weak: np.ndarray
    test: SharedBlock
    test_truth: np.ndarray


def table_of(name: str, data: Path) -> Table:
    """A set of at most `MOST` rows, with the log-probabilities of the weak classifier."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    train = read(data / name / "train.csv")
    test = read(data / name / "test.csv", classes=train.classes)
    order = generator(0, "doubtful/rows").permutation(len(train.items))[:MOST]
    items = [train.items[row] for row in np.sort(order)]
    features = make_features(DEFAULT, classes=train.classes)
    features.fit(items)
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2)).fit([i.prompt for i in items])
    gold = np.array([test.answers[item.id] for item in test.items])
    shuffled = generator(0, "doubtful/weak").permutation(len(gold))
    shots = [row for k in np.unique(gold) for row in shuffled[gold[shuffled] == k][:SHOTS]]
    fitted = LogisticRegression(C=30, max_iter=300).fit(
        words.transform([test.items[row].prompt for row in shots]), gold[shots]
    )
    weak = np.full((len(items), len(train.classes or ())), -20.0)
    weak[:, fitted.classes_] = fitted.predict_log_proba(words.transform([i.prompt for i in items]))
    truth = np.array([train.answers[item.id] for item in items])
    others = np.setdiff1d(np.arange(len(gold)), shots)[:TEST]
    block = features.transform(items)
    test_block = features.transform([test.items[row] for row in others])
    assert isinstance(block, SharedBlock)
    assert isinstance(test_block, SharedBlock)
    texts = np.unique([normal(item.prompt) for item in items], return_inverse=True)[1]
    return Table(block, texts, truth, weak, test_block, gold[others])


def labels_of(table: Table, right: float, seed: int) -> np.ndarray:
    """The labels of the weak classifier, of which this share is right."""
    rng, rows = generator(seed, "doubtful/labels"), np.arange(len(table.truth))
    noisy = table.weak + NOISE * rng.gumbel(size=table.weak.shape)
    low, high = -40.0, 40.0
    for _ in range(60):
        scores = noisy.copy()
        scores[rows, table.truth] += (low + high) / 2
        hits = float((scores.argmax(axis=1) == table.truth).mean())
        low, high = ((low + high) / 2, high) if hits < right else (low, (low + high) / 2)
    return scores.argmax(axis=1)


def asked(
    table: Table, column: np.ndarray, policies: np.ndarray, seed: int, count: int = max(FOUND)
) -> tuple[list[int], np.ndarray]:
    """The first rows that the product asks people about, in batches, in their order.

    Also how probable each label of the column is held out, with what people said of these rows.
    """
    labels = column.copy()
    doubt, order, fitted = doubt_of(policies, table.texts, column, labels), list[int](), 0
    while len(order) < count:
        if len(order) - fitted >= max(EVERY, fitted):
            policies = held_out(table.block, table.texts, labels, seed)
            doubt, fitted = doubt_of(policies, table.texts, column, labels), len(order)
        sure = doubt.sure.copy()
        sure[order] = np.inf
        batch = np.argsort(sure, kind="stable")[:BATCH].tolist()
        order += batch
        labels[batch] = table.truth[batch]
    policies = held_out(table.block, table.texts, labels, seed)
    return order, doubt_of(policies, table.texts, column, labels).held_out


def final(name: str, table: Table, right: float, seed: int) -> Iterator[dict[str, Any]]:
    """The accuracy of final models on test rows, by their C, after people were asked."""
    column = labels_of(table, right, seed)
    for count in PEOPLE:
        policies = held_out(table.block, table.texts, column, seed)
        order, _ = asked(table, column, policies, seed, count)
        labels = column.copy()
        labels[order] = table.truth[order]
        policies = held_out(table.block, table.texts, labels, seed)
        chosen = column_strength(table.block, table.texts, labels, seed, policies).value
        accuracy = []
        for c in AMONG_WRONG:
            head = fitted_on(table.block, labels, seed, Strength(c))
            hits = head.probabilities(table.test).argmax(axis=1) == table.test_truth
            accuracy.append(float(hits.mean()))
        yield {
            "set": name, "right": right, "people": count, "seed": seed, "test": len(hits),
            "accuracy": accuracy, "chosen": chosen,
        }  # fmt: skip


def by_cleanlab(column: np.ndarray, policies: np.ndarray) -> list[int]:
    """Cleanlab's order of the rows; empty where it is not installed."""
    try:
        from cleanlab.filter import find_label_issues
    except ImportError:
        return []
    first = find_label_issues(
        column, policies, return_indices_ranked_by="self_confidence", n_jobs=1
    ).tolist()
    own = policies[np.arange(len(column)), column]
    issues = set(first)
    return first + [row for row in np.argsort(own, kind="stable").tolist() if row not in issues]


def redrawn(table: Table, column: np.ndarray, sure: np.ndarray, seed: int) -> Iterator[Any]:
    """A row for each size of audit: how often intervals hold, and how wide they are."""
    right, rows = (column == table.truth).astype(float), np.arange(len(column))
    truth, classes = float(right.mean()), table.weak.shape[1]
    for size in SIZES:
        rng = generator(seed, "doubtful/audits", size)
        draws: dict[str, list[tuple[bool, bool, float]]] = {}
        for number in range(REDRAWS):
            audit = rng.choice(len(column), size, replace=False)
            powers = Powers(sure[audit], sure[np.setdiff1d(rows, audit)])
            hits, known = right[audit], np.ones(size, dtype=bool)
            ends = {"wilson": wilson(int(hits.sum()), size)}
            ends["product"] = powered(hits, known, powers)[1:]
            if number < OF_PEOPLE:
                answers = answers_of(
                    table.truth[audit], column[audit], classes, CREW, rng,
                    rate=RATE, share=1 - truth,
                )  # fmt: skip
                ends["people"], _ = second_look(
                    column[audit], answers, reserved(size, 10 * size), powers
                )
                ends["people, wilson"], _ = second_look(
                    column[audit], answers, reserved(size, 10 * size)
                )
            for name, (low, high) in ends.items():
                row = (low <= truth <= high, low > truth, high - low)
                draws.setdefault(name, []).append(row)
        yield {
            "audit": size,
            **{
                name: dict(zip(("holds", "over", "width"), np.mean(each, axis=0), strict=True))
                for name, each in draws.items()
            },
        }


def of_table(
    table: Table, column: np.ndarray, order: list[int], sure: np.ndarray, seed: int
) -> Iterator[Any]:
    """A row for each size of audit: how near estimates of the right labels in the table come.

    People were asked about the rows of the `order` that are not audited.
    """
    right, count = column == table.truth, len(column)
    for size in SIZES:
        rng = generator(seed, "doubtful/table", size)
        draws: dict[str, list[tuple[float, bool, bool, float]]] = {"stand": [], "difference": []}
        for _ in range(REDRAWS):
            roles = np.zeros(count, dtype=np.int8)  # left, asked, audited
            roles[order] = 1
            audit = rng.choice(count, size, replace=False)
            roles[audit] = 2
            left, people = int(np.sum(roles == 0)), int(np.sum(roles > 0))
            asked, wrong = np.sum(roles == 1), np.sum(~right[roles == 1])
            truth = 1 - np.sum(~right[roles == 0]) / count
            stand = audit[stand_for_left(sure[audit], sure[roles == 0])]
            clear = np.ones(len(stand), dtype=bool)
            powers = Powers(sure[stand], sure[roles == 0])
            known = powered(right[stand].astype(float), clear, powers)
            draws["stand"].append(_off(right_in_table(people, left, known, n=len(stand)), truth))
            known = float(right[audit].mean()), *wilson(int(right[audit].sum()), size)
            wider = np.sqrt(1 + size / (left + asked))
            wide = [known[0] + wider * (share - known[0]) for share in known]
            kept = [min(left, max(0, share * (left + asked) - asked + wrong)) for share in wide]
            shares = [float((people + some) / count) for some in kept]
            draws["difference"].append(_off(tuple(shares), truth))
        yield {
            "audit": size,
            **{
                name: {
                    "error": float(np.sqrt(np.mean([row[0] ** 2 for row in each]))),
                    **dict(zip(("bias", "holds", "over", "width"),
                               np.mean(each, axis=0).tolist(), strict=True)),
                }
                for name, each in draws.items()
            },
        }  # fmt: skip


def _off(estimate: tuple[float, ...], truth: float) -> tuple[float, bool, bool, float]:
    """How far it is off, whether its interval holds or is above the truth, and the width."""
    share, low, high = estimate
    return share - truth, low <= truth <= high + 1e-9, low > truth, high - low  # sums round


def measure(name: str, table: Table, right: float, seed: int) -> dict[str, Any]:
    """The results of one set, share of right labels and seed."""
    column = labels_of(table, right, seed)
    wrong = column != table.truth
    policies = held_out(table.block, table.texts, column, seed)
    doubt = doubt_of(policies, table.texts, column, column)
    order, sure = asked(table, column, policies, seed)
    orders = {
        "product": order,
        "not fitted again": np.argsort(doubt.sure, kind="stable").tolist(),
        "cleanlab": by_cleanlab(column, policies),
    }
    errors = {
        which: [int(wrong[order[:count]].sum()) for count in FOUND]
        for which, order in orders.items()
        if order
    }
    errors["chance"] = [round(count * float(wrong.mean()), 1) for count in FOUND]
    return {
        "set": name,
        "right": right,
        "seed": seed,
        "rows": len(column),
        "wrong": int(wrong.sum()),
        "flagged": [int(doubt.flagged.sum()), int((doubt.flagged & wrong).sum())],
        "errors": errors,
        "audits": list(redrawn(table, column, doubt.held_out, seed)),
        "tables": list(of_table(table, column, order, sure, seed)),
    }


def shown(record: dict[str, Any]) -> str:
    """The results as four tables in Markdown."""
    rows, tables = record["rows"], list[str]()
    for lines in (found_lines, interval_lines, table_lines):
        tables += [*lines(rows), ""]
    return "\n".join([*tables, *final_lines(record["final"])])


def found_lines(rows: list[dict[str, Any]]) -> list[str]:
    """How many wrong labels each order of the rows finds."""
    ways = ("product", "not fitted again", "cleanlab", "chance")
    lines = [
        f"| set | right | wrong labels | {' | '.join(f'{w}, 100' for w in ways)} |"
        f" {' | '.join(f'{w}, 300' for w in ways)} | flagged | wrong among them |",
        "|---|---|---|" + "---|" * (2 * len(ways) + 2),
    ]
    for name in dict.fromkeys(row["set"] for row in rows):
        for right in RIGHT:
            mine = [row for row in rows if (row["set"], row["right"]) == (name, right)]
            if not mine:
                continue
            counts = [
                f"{np.mean([row['errors'][way][at] for row in mine]):.0f}"
                for at in range(len(FOUND))
                for way in ways
            ]
            wrong = np.mean([row["wrong"] for row in mine])
            flagged = [f"{np.mean([row['flagged'][at] for row in mine]):.0f}" for at in (0, 1)]
            cells = [name, f"{right:.2f}", f"{wrong:.0f}", *counts, *flagged]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def by_size(rows: list[dict[str, Any]], kind: str) -> Iterator[tuple[list[str], list[Any]]]:
    """The first cells of a line, and what was measured, for each share of right labels and size."""
    for right in RIGHT:
        mine = [audit for row in rows if row["right"] == right for audit in row[kind]]
        for size in SIZES:
            if each := [audit for audit in mine if audit["audit"] == size]:
                yield [f"{right:.2f}", str(size)], each


def interval_lines(rows: list[dict[str, Any]]) -> list[str]:
    """How often the intervals of the share of right labels in the column hold."""
    lines = [
        "| labels right | audited rows | Wilson holds | over | this holds | least | over | width |"
        " people err: holds | least | over | width |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cells, each in by_size(rows, "audits"):

        def mean(way: str, what: str, each: list[Any] = each) -> float:
            return float(np.mean([audit[way][what] for audit in each]))

        numbers = [mean("wilson", "holds"), mean("wilson", "over")]
        for way, beside in (("product", "wilson"), ("people", "people, wilson")):
            least = min(audit[way]["holds"] for audit in each)
            width = mean(way, "width") / mean(beside, "width")
            numbers += [mean(way, "holds"), least, mean(way, "over"), width]
        lines.append(f"| {' | '.join([*cells, *(f'{number:.3f}' for number in numbers)])} |")
    return lines


def table_lines(rows: list[dict[str, Any]]) -> list[str]:
    """How near the estimates of the right labels in the table come."""
    lines = [
        "| labels right | audited rows | by audited rows like those left: error | bias | over |"
        " holds | least | width | by difference: error | bias | over | holds | least | width |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cells, each in by_size(rows, "tables"):
        for way in ("stand", "difference"):
            of_way = [audit[way] for audit in each]
            means = {what: np.mean([one[what] for one in of_way]) for what in of_way[0]}
            least = min(one["holds"] for one in of_way)
            cells += [f"{means['error']:.4f}", f"{means['bias']:+.4f}", f"{means['over']:.3f}"]
            cells += [f"{means['holds']:.3f}", f"{least:.3f}", f"{means['width']:.3f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def final_lines(rows: list[dict[str, Any]]) -> list[str]:
    """The accuracy of final models, by their C, in the mean of the seeds."""
    lines = [
        f"| set | right | people's labels | {' | '.join(f'C = {c:g}' for c in AMONG_WRONG)} |"
        " chosen by folds |",
        "|---" * (4 + len(AMONG_WRONG)) + "|",
    ]
    for name, right, count in dict.fromkeys((r["set"], r["right"], r["people"]) for r in rows):
        mine = [r for r in rows if (r["set"], r["right"], r["people"]) == (name, right, count)]
        chosen = [r["accuracy"][AMONG_WRONG.index(r["chosen"])] for r in mine]
        means = [*np.mean([r["accuracy"] for r in mine], axis=0), np.mean(chosen)]
        cells = [name, f"{right:.2f}", f"{count:,}", *(f"{mean:.3f}" for mean in means)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measure or show; see the module's text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="the folder of the sets")
    parser.add_argument("--sets", nargs="+", default=[*SETS], choices=[*SETS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the rows here, and go on from what it has")
    parser.add_argument("--final", action="store_true", help="judge final models alone")
    parser.add_argument("--from", dest="source", type=Path, help="show the rows of this file")
    words = parser.parse_args()
    if words.source:
        print(shown(json.loads(words.source.read_text())))
        return
    if not words.data:
        parser.error("give the folder of the sets, or --from FILE")
    record: dict[str, Any] = {"rows": [], "final": []}
    if words.json and words.json.exists():
        record = json.loads(words.json.read_text())
    record["version"] = __version__
    record["command"] = "python benchmarks/doubtful_labels.py --data FOLDER --json FILE"
    with one_thread():
        if words.final:
            record["final"] = [
                row
                for name in FINAL_SETS
                for table in [table_of(name, words.data)]
                for right in RIGHT
                for seed in range(FINAL_SEEDS)
                for row in final(name, table, right, seed)
            ]
            if words.json:
                write_record(words.json, record)
        else:
            measure_all(words, record)
    print(shown(record))


def measure_all(words: argparse.Namespace, record: dict[str, Any]) -> None:
    """Add the rows that the record lacks, and write it after each."""
    rows = record["rows"]
    done = {(row["set"], row["right"], row["seed"]) for row in rows}
    for seed in range(words.seeds):
        for name in words.sets:
            table = table_of(name, words.data)
            for right in RIGHT:
                if (name, right, seed) in done:
                    continue
                rows.append(measure(name, table, right, seed))
                print(seed, name, right, rows[-1]["errors"], round(process_time()), "s",
                      file=sys.stderr)  # fmt: skip
                if words.json:
                    write_record(words.json, record)


if __name__ == "__main__":
    main()
