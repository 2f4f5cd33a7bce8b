"""How often rows without answers are wrongly told to differ from a run's, and how soon rightly.

Final models of 300 labels answer rows that were kept from them. Without a change, 10,000 new rows,
the 1,500 of the run and the 500 of these that are held out are drawn with replacement from the kept
rows, so that all are of one source. With a change, rows come without replacement, and from the
first of 2,000 new ones on a share of them is of another set (5, 10, 20%), of a class that the run
never had (10%), or of a class that is ten times as frequent (50% at most). `told` is the share of
streams that are said to differ, and `rows` the median number of new rows until then; `class` the
share in which a class is told to have grown or shrunk. Of the first 2,000 rows `unlike` is the
share told to be where the run has few, `strange told` the share of the strange rows among these,
and `told are strange` how many of those told are strange. ADWIN of River reads the confidence in
the rows held out and in the new ones. `runs` are whole runs of `hashing` and of the default,
where the run's own rows take part in making features.

`audits`: how often a fall of ten points is found, simulated, next to what `fall_found` says.

`open`: how often a fall is reported although there is none, if people err and rows stay open.

    pip install river
    python benchmarks/watching.py streams --data $STACKSL_DATA --json results/watching.json
    python benchmarks/watching.py runs --data $STACKSL_DATA --json results/watching.json
    python benchmarks/watching.py audits --json results/watching.json
    python benchmarks/watching.py open --json results/watching.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from plan_scenarios import DEFAULT, HASHING, dataset, rows_of, write_csv

import stacksl
from stacksl.core.blocks import SharedBlock
from stacksl.core.gates.registry import COVERAGE
from stacksl.core.rng import generator
from stacksl.core.threads import one_thread
from stacksl.ledger.purchases import counted
from stacksl.models import watching
from stacksl.models.metrics import wilson
from stacksl.models.second_look import looked, next_rows, split
from stacksl.report.quality import AuditResult
from stacksl.runs.loop.head_fitting import Source, make_final
from stacksl.runs.settings.resolve import resolve
from stacksl_lab.pools import ours
from stacksl_lab.pools.split import make_split

SETS = {"banking77": "snips", "stackoverflow_titles": "banking77"}  # and what is mixed in
POOL, LABELS, HELD, STREAM, SHUFFLED = 1_200, 300, 500, 2_000, 10_000
OLD = 1_500  # rows of the run that vectors are compared with, those held out among them
ADWINS = ("adwin", "adwin .05")  # its default delta, and a delta of 5%
SHARES = (0.05, 0.1, 0.2)
ROWS, DRAWS = 3_000, 2_000  # of a simulated table, from which audits are drawn
FIRST_AUDITS, NEW_AUDITS = (50, 60, 100, 200, 400), (60, 100, 200, 300)
RUN_POOL, RUN_NEW = 2_500, 1_500
CLASSES = 20  # of audits whose rows people leave open
FIXED = 384  # the columns of the encoder, the first ones, which new rows are compared by

Rows = np.ndarray
Counts = tuple[int, int, int]


class People(NamedTuple):
    """How many people answer and err, so many times as often where the model errs.

    There their error is the model's answer in a share `along`. Further answers are paid for a
    share of rows.
    """

    count: int
    err: float
    times: float
    along: float
    again: float


PEOPLE = (
    *(People(count, 0.05, 3, 0.5, 0.4) for count in (2, 3)),
    People(3, 0.1, 5, 0.7, 0.4),
    People(3, 0.1, 3, 0.5, 0.15),
    People(2, 0.15, 3, 0.5, 1.0),
    People(6, 0.02, 1, 0.0, 0.4),
)


class World(NamedTuple):
    """What a model says of rows that it never saw, and their vectors.

    Attributes:
        h: (n, d) vectors; policies: (n, K); gold: (n,).
        strange: vectors and policies of rows of another set, or of a class that it never had.
    """

    h: Rows
    policies: Rows
    gold: Rows
    strange: tuple[Rows, Rows]


def world(name: str, data: Path, without: int | None) -> World:
    """A final model of a set; its strange rows are of another set, or of the class `without`."""
    rows = rows_of(name, data)
    classes = rows[0][1]
    other = [row for row in rows if row[2] == without]
    if without is None:
        other = [(text, classes, 0) for text, _, _ in rows_of(SETS[name], data)]
    own = [row for row in rows if row[2] != without]
    order = generator(0, "watching/world").permutation(len(own))
    pool_rows = dataset(own, order[:POOL], classes)
    test_rows = dataset(
        [*own, *other], np.array([*order[POOL:], *range(len(own), len(own) + len(other))]), classes
    )
    split, _ = make_split(
        pool_rows, test_rows, resolve({"features": DEFAULT}).settings, POOL, LABELS
    )
    pool = split.pool(0)
    bought = np.array(ours.bought_rows(pool, COVERAGE, LABELS))
    head, _ = make_final(Source(pool.block, pool.names, frozenset(), 0), bought, pool.gold[bought])
    assert isinstance(split.test, SharedBlock)
    h, policies = np.asarray(split.test.h)[:, :FIXED], np.asarray(head.probabilities(split.test))
    cut = len(order) - POOL
    strange = h[cut:], policies[cut:]
    return World(h[:cut], policies[:cut], np.asarray(split.test_gold)[:cut], strange)


class Stream(NamedTuple):
    """Vectors of a run's rows, policies of those held out, both of new rows, which are strange."""

    old: Rows
    held: Rows
    new: tuple[Rows, Rows]
    strange: Rows


def alike(of: World, draw: int) -> Stream:
    """New rows of the same source; all are drawn with replacement."""
    rng = generator(draw, "watching/alike")
    old, new = rng.integers(len(of.h), size=OLD), rng.integers(len(of.h), size=SHUFFLED)
    none = np.zeros(SHUFFLED, dtype=bool)
    return Stream(of.h[old], of.policies[old[:HELD]], (of.h[new], of.policies[new]), none)


def changed(of: World, draw: int, share: float) -> Stream:
    """New rows of which a share is strange, from the first one on."""
    rng = generator(draw, "watching/changed")
    order = rng.permutation(len(of.h))
    old, rest = order[:OLD], order[OLD : OLD + STREAM]
    strange = rng.random(len(rest)) < share
    most = np.flatnonzero(strange)[len(of.strange[0]) :]  # no strange row comes twice
    strange[most] = False
    h, policies = of.h[rest].copy(), of.policies[rest].copy()
    who = rng.permutation(len(of.strange[0]))[: strange.sum()]
    h[strange], policies[strange] = of.strange[0][who], of.strange[1][who]
    return Stream(of.h[old], of.policies[old[:HELD]], (h, policies), strange)


def more_frequent(of: World, draw: int) -> Stream:
    """New rows in which a class is ten times as frequent, its rows drawn with replacement."""
    rng = generator(draw, "watching/frequent")
    order = rng.permutation(len(of.h))
    old, rest = order[:OLD], order[OLD : OLD + STREAM]
    count = np.bincount(of.gold)
    grown = rng.choice(np.flatnonzero(count >= 20))
    own = np.setdiff1d(np.flatnonzero(of.gold == grown), old)
    rest = rest[of.gold[rest] != grown]
    strange = rng.random(len(rest)) < min(0.5, 10 * count[grown] / len(of.h))
    rest[strange] = rng.choice(own, strange.sum())
    new = of.h[rest], of.policies[rest]
    return Stream(of.h[old], of.policies[old[:HELD]], new, strange)


def adwin(stream: Stream, delta: float) -> int | None:
    """The new rows after which ADWIN of River finds a change of the confidence."""
    from river.drift import ADWIN

    detector = ADWIN(delta)
    for value in stream.held.max(axis=1):
        detector.update(float(value))
    for row, value in enumerate(stream.new[1].max(axis=1), start=1):
        detector.update(float(value))
        if detector.drift_detected:
            return row
    return None


def measured(stream: Stream, draw: int) -> dict[str, Any]:
    """What is told of one stream; with no strange row, of its first 2,000 rows."""
    held, (new_h, new) = stream.held, stream.new
    confidence = watching.confidence_bets(held.max(axis=1), new.max(axis=1), draw)
    vectors = watching.vector_bets(stream.old, new_h, draw)
    names = [str(k) for k in range(new.shape[1])]
    first = slice(0, STREAM)
    predicted = held.argmax(axis=1), new[first].argmax(axis=1)
    rows = watching.unlike(new_h[first], stream.old)
    return {
        "told": watching.told_after(watching.together([vectors, confidence])),
        "by confidence": watching.told_after(confidence),
        "by vectors": watching.told_after(vectors),
        "adwin": adwin(stream, 0.002),
        "adwin .05": adwin(stream, 0.05),
        "class": bool(watching.shifted_classes(*predicted, names)),
        "unlike": len(rows),
        "right": int(stream.strange[rows].sum()),
        "strange": int(stream.strange[first].sum()),
    }


def summary(about: dict[str, Any], found: list[dict[str, Any]]) -> dict[str, Any]:
    """A row of the table: shares with their intervals, and medians."""
    row: dict[str, Any] = {**about, "streams": len(found)}
    for name in ("told", "by confidence", "by vectors", *ADWINS, "class"):
        times = [each[name] for each in found if each[name]]
        low, high = wilson(len(times), len(found))
        row[name] = {"share": len(times) / len(found), "low": low, "high": high}
        if name != "class":
            row[name]["rows"] = float(np.median(times)) if times else None
    unlike, right, strange = (sum(e[key] for e in found) for key in ("unlike", "right", "strange"))
    row["unlike"] = unlike / sum(STREAM for _ in found)
    row["strange told"] = right / strange if strange else None
    row["told are strange"] = right / unlike if unlike else None
    return row


def streams(data: Path, false: int, true: int) -> Iterator[dict[str, Any]]:
    """A row for each set and kind of stream."""
    for name in SETS:
        base = world(name, data, None)
        about = {"set": name, "features": DEFAULT}
        found = [measured(alike(base, draw), draw) for draw in range(false)]
        yield summary({**about, "change": "none"}, found)
        for share in SHARES:
            found = [measured(changed(base, d, share), d) for d in range(true)]
            yield summary({**about, "change": f"another set, {100 * share:.0f}%"}, found)
        found = [measured(more_frequent(base, d), d) for d in range(true)]
        yield summary({**about, "change": "a class ten times as frequent"}, found)
        found, many = [], np.bincount(base.gold)
        withheld = generator(0, "watching/withheld").choice(np.flatnonzero(many >= 100), 5, False)
        for without in withheld.tolist():
            away = world(name, data, without)
            draws = range(true // 5)
            found += [measured(changed(away, d, 0.1), d) for d in draws]
        yield summary({**about, "change": "a new class, 10%"}, found)


def runs(data: Path, count: int, features: str) -> Iterator[dict[str, Any]]:
    """Whole runs, and new rows of the same source or with 10% of another set."""
    for name, mixed in SETS.items():
        rows = rows_of(name, data)
        other = rows_of(mixed, data)
        found: dict[str, list[dict[str, Any]]] = {"none": [], "another set, 10%": []}
        for seed in range(count):
            rng = generator(seed, "watching/runs")
            order = rng.permutation(len(rows))
            pool = dataset(rows, order[:RUN_POOL], rows[0][1])
            new = [rows[n][0] for n in order[RUN_POOL : RUN_POOL + RUN_NEW]]
            with tempfile.TemporaryDirectory() as folder:
                write_csv(pool, Path(folder) / "pool.csv")
                run = stacksl.run(
                    Path(folder) / "pool.csv", budget=200, audit=60, features=features, seed=seed,
                    out=Path(folder) / "run",
                )  # fmt: skip
                strange = [
                    other[rng.integers(len(other))][0] if u < 0.1 else text
                    for u, text in zip(rng.random(len(new)), new, strict=True)
                ]
                for change, texts in (("none", new), ("another set, 10%", strange)):
                    found[change].append(run.evaluate(texts))
        for change, each in found.items():
            row: dict[str, Any] = {
                "set": name,
                "features": features,
                "change": change,
                "runs": count,
            }
            for key, said in (
                ("told", [one["told_after"] is not None for one in each]),
                ("class", [bool(one["classes"]) for one in each]),
            ):
                low, high = wilson(sum(said), count)
                row[key] = {"share": sum(said) / count, "low": low, "high": high}
            row["unlike"] = float(np.mean([one["unlike"] / one["n"] for one in each]))
            yield row


def audits() -> Iterator[dict[str, Any]]:
    """How often `fall_p` is at most 5% where the accuracy fell by ten points, and where it did not.

    Both audits are drawn from 3,000 rows without replacement.
    """
    rng, fall_p = generator(0, "watching/audits"), lru_cache(None)(watching.fall_p)
    for accuracy in (0.85, 0.9, 0.8, 0.7):
        right = [round(ROWS * each) for each in (accuracy, accuracy - 0.1)]
        for first in FIRST_AUDITS:
            before = rng.hypergeometric(right[0], ROWS - right[0], first, DRAWS)
            for new in NEW_AUDITS:
                row = {"accuracy": accuracy, "first": first, "new": new}
                for name, count in (("found", right[1]), ("false", right[0])):
                    now = rng.hypergeometric(count, ROWS - count, new, DRAWS)
                    pairs = zip(before.tolist(), now.tolist(), strict=True)
                    p = [fall_p((a, first), (b, new)) for a, b in pairs]
                    row[name] = float(np.mean(np.array(p) <= watching.LEVEL))
                yield {**row, "said": watching.fall_found(accuracy, first, new)}


def judged(rng: np.random.Generator, rows: int, accuracy: float, people: People) -> Counts:
    """An audit with a second look: the rows right and open, and right where first answers stand."""
    truth, right = rng.integers(CLASSES, size=rows), rng.random(rows) < accuracy
    other = (truth + rng.integers(1, CLASSES, size=rows)) % CLASSES
    said = np.where(right, truth, other).tolist()

    def answer(row: int) -> int:
        if rng.random() >= people.err * (1 if right[row] else people.times):
            return int(truth[row])
        if not right[row] and rng.random() < people.along:
            return int(said[row])
        return int(truth[row] + rng.integers(1, CLASSES)) % CLASSES

    answers, predicted = {row: [answer(row)] for row in range(rows)}, dict(enumerate(said))
    parts, left = split(rng.permutation(rows).tolist(), predicted, answers, ()), people.again * rows
    while due := next_rows(
        parts, answers, {row: people.count - len(answers[row]) for row in answers}, round(left)
    ):
        left -= len(due)
        for row in due:
            answers[row].append(answer(row))
    look = looked(parts, predicted, answers)
    counts = AuditResult(rows, 0, 0, 0, None, 0.0, 1.0, 0.0, 1.0, second=look).counted()
    stand = (counted(given) == said[row] for row, given in answers.items())
    return counts[0], counts[2], sum(stand)


def open_rows() -> Iterator[dict[str, Any]]:
    """How often a fall is reported although both audits have the same accuracy.

    An open row counts against a fall (`false`), or as its first answer says (`stands`).
    """
    rng, fall_p = generator(0, "watching/open"), lru_cache(None)(watching.fall_p)
    for first, new in ((60, 60), (60, 30), (200, 60), (60, 200)):
        for accuracy in (0.97, 0.9, 0.75):
            for people in PEOPLE:
                before = people._replace(again=0.4)  # of the first audit all were paid
                pairs = [
                    (judged(rng, first, accuracy, before), judged(rng, new, accuracy, people))
                    for _ in range(DRAWS // 2)
                ]
                false = [fall_p((a[0], first), (b[0] + b[1], new)) for a, b in pairs]
                stands = [fall_p((a[2], first), (b[2], new)) for a, b in pairs]
                yield {
                    **{"first": first, "new": new, "accuracy": accuracy, **people._asdict()},
                    "open": float(np.mean([a[1] + b[1] for a, b in pairs])),
                    "false": float(np.mean(np.array(false) <= watching.LEVEL)),
                    "stands": float(np.mean(np.array(stands) <= watching.LEVEL)),
                }


def table(record: dict[str, Any]) -> str:
    """The page's table of streams and whole runs; shares in percent, with intervals."""
    detectors = {"told": "reported", "adwin": "ADWIN, .002", "adwin .05": "ADWIN, .05"}
    head = [
        "set",
        "change",
        "streams",
        *detectors.values(),
        "class reported",
        "strange reported",
        "reported are strange",
    ]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]

    def shown(cell: dict[str, Any] | None) -> str:
        if cell is None:
            return ""
        ends = f"{100 * cell['share']:.1f}% ({100 * cell['low']:.1f} to {100 * cell['high']:.1f})"
        return ends + (f", {cell['rows']:.0f} rows" if cell.get("rows") else "")

    for row in (*record["streams"], *record["runs"]):
        whole = {HASHING: ", hashing", DEFAULT: ", default"} if "runs" in row else {}
        name = row["set"] + whole.get(row["features"], "")
        count = str(row.get("streams", row.get("runs")))
        parts = (row.get(key) for key in ("strange told", "told are strange"))
        rates = ["" if part is None else f"{100 * part:.0f}%" for part in parts]
        shares = [shown(row.get(key)) for key in (*detectors, "class")]
        lines.append(f"| {' | '.join([name, row['change'], count, *shares, *rates])} |")
    return "\n".join(lines) + "\n"


def power_table(record: dict[str, Any]) -> str:
    """The page's table of audits: how often a fall of ten points from 90% was found."""
    lines = [
        "| rows of the first audit | " + " | ".join(f"{n} new rows" for n in NEW_AUDITS) + " |"
    ]
    lines.append("|---" * (1 + len(NEW_AUDITS)) + "|")
    for first in FIRST_AUDITS:
        own = [row for row in record["audits"] if (row["accuracy"], row["first"]) == (0.9, first)]
        lines.append(f"| {first} | " + " | ".join(f"{row['found']:.2f}" for row in own) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and show; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("streams", "runs", "audits", "open"))
    parser.add_argument("--data", type=Path, help="the folder of the sets")
    parser.add_argument("--false", type=int, default=500, help="streams without a change, a set")
    parser.add_argument("--true", type=int, default=50, help="streams of each change")
    parser.add_argument("--runs", type=int, default=30, help="whole runs of each features, a set")
    parser.add_argument("--json", type=Path, help="where to write the results")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with one_thread():
        parts = {
            "streams": lambda: streams(options.data, options.false, options.true),
            "runs": lambda: chain.from_iterable(
                runs(options.data, options.runs, features) for features in (HASHING, DEFAULT)
            ),
            "audits": audits,
            "open": open_rows,
        }
        for row in parts[options.part]():
            rows.append(row)
            print(json.dumps(row), flush=True)
    if options.json:
        before = json.loads(options.json.read_text()) if options.json.exists() else {}
        text = json.dumps({**before, options.part: rows}, indent=1)
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
