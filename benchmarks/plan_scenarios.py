"""What the forecast promises before and during a run: its scenarios, and how often they hold.

Runs of `stacksl run` on parts of public sets, with frozen features, are measured at several numbers
of labels on rows that were held out. No test file is read but those of MMLU, which has no other
rows to speak of. `--json` keeps one row a run;
`--from` fits the forecast without one source after the other, counts how often its 90% intervals
hold on that source, and prints the growth that all sources show, which the package has as `GROWTH`.
`--gains` plays 20 runs, reads in their reports what 100 more labels would bring, and buys these.

    python benchmarks/plan_scenarios.py --data $STACKSL_DATA --json benchmarks/results/plan.json
    python benchmarks/plan_scenarios.py --from benchmarks/results/plan.json
    python benchmarks/plan_scenarios.py --data $STACKSL_DATA --gains benchmarks/results/gains.json
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from _variants import ROWS, wrong_answers

import stacksl
from stacksl.core.blocks import SharedBlock
from stacksl.core.threads import one_thread
from stacksl.data import read
from stacksl.data.dataset import Dataset
from stacksl.data.sample import sample
from stacksl.features import make_features
from stacksl.models.forecast import (
    FEWEST,
    Estimate,
    Growth,
    Normal,
    Z,
    accuracy_at,
    carried_over,
    explaining,
    gain,
    level_of,
    logit,
)
from stacksl.report.facts import Facts
from stacksl.runs.finish import forecasting
from stacksl.runs.loop.batch_selection import surest
from stacksl.runs.loop.class_names import name_rows, name_texts
from stacksl.runs.loop.linear_trainer import linear_trainer
from stacksl.runs.session.session import Session
from stacksl.runs.spec import RunSpec
from stacksl.types import Item

MINILM, HASHING = "sentences:minilm", "hashing"
DEFAULT = "sentences:minilm+tokens"  # of a run with classes, where the encoder is installed
SEEDS = (2000,)
ITEMS = 2500  # rows of a pool at most
HELD = 0.3  # of the rows, at most 1,500
LABELS = 600  # or two thirds of the pool
MEASURED = Path(__file__).parent / "results" / "plan.json"
_USUAL = 4  # sources that a prior of a deviation counts as
_FIRST_SD, _MISSED_SD, _SLOPE_SD = 2.0, 1.0, 0.2  # these priors, in logits


@dataclass(frozen=True)
class Case:
    """Rows of a `source`, of `classes` of its classes (None: all), under some features.

    They are changed as the `variant` says; see `_variants.py`.
    """

    source: str
    features: str
    classes: int | None = None
    variant: str = "plain"


CASES = [
    *(
        Case(source, DEFAULT, classes)
        for source, classes in (
            ("sample", 10),
            ("banking77", 20),
            ("sample", None),
            ("medquad", None),
            ("banking77", None),
            ("banking77", 8),
        )
    ),
    *(
        Case(source, HASHING, classes)
        for source, classes in (
            ("sample", None),
            ("banking77", 20),
            ("medquad", None),
            ("exams", None),
            ("banking77", None),
        )
    ),
    *(Case(source, DEFAULT) for source in ("stackoverflow_titles", "snips", "medical_abstracts")),
    *(
        Case(source, DEFAULT, None, variant)
        for variant, sources in (
            ("dominated", ("banking77", "stackoverflow_titles", "snips", "medquad")),
            ("codes", ("stackoverflow_titles", "snips")),
            ("rare", ("banking77", "medical_abstracts")),
            ("10% wrong", ("stackoverflow_titles", "medquad")),
        )
        for source in sources
    ),
]

GAINS = [Case("banking77", DEFAULT), Case("medquad", DEFAULT), Case("exams", HASHING)]
AT = (60, 100, 150, 200, 250, 300, 400)  # labels, a run of each set; the last has no third set
RUNS = 20

Row = tuple[str, tuple[str, ...], int]


def texts(folder: Path) -> Iterator[dict[str, Any]]:
    """The objects of the JSONL files of a folder, but of test files."""
    for path in sorted(folder.rglob("*.jsonl*")):
        if "test" not in path.name:
            opened = gzip.open if path.suffix == ".gz" else open
            with opened(path, "rt", encoding="utf-8") as lines:
                yield from map(json.loads, lines)


def rows_of(source: str, data: Path) -> list[Row]:
    """(prompt, candidates, answer) of a source."""
    if source in ("banking77", "sample", "stackoverflow_titles", "snips", "medical_abstracts"):
        found = sample()[0] if source == "sample" else read(data / source / "train.csv")
        return [(i.prompt, i.candidates, found.answers[i.id]) for i in found.items]
    if source == "medquad":
        named = [
            (r["prompt"], r["id"].split("_")[1])
            for r in texts(data / "medquad_faq")
            if "answer_bank_id" in r
        ]
    else:
        assert source == "exams"
        named = [(r["question"], "medical licensing exam") for r in texts(data / "medqa")]
        named += [(r["prompt"], "elementary science") for r in texts(data / "openbookqa")]
        for path in sorted((data / "mmlu").glob("*/*_test.csv")):
            name = path.name.removesuffix("_test.csv")
            named += [(item.prompt, name) for item in read(path).items]
    classes = tuple(sorted({name for _, name in named}))
    return [(text, classes, classes.index(name)) for text, name in dict(named).items()]


def part(rows: list[Row], case: Case, seed: int) -> tuple[Dataset, Dataset]:
    """The items to choose from, and those held out."""
    rows = ROWS.get(case.variant, list)(rows)
    rng = np.random.default_rng(seed)
    classes = rows[0][1]
    if case.classes is not None:
        counts = np.bincount([row[2] for row in rows], minlength=len(classes))
        kept = sorted(rng.permutation(np.flatnonzero(counts >= 20))[: case.classes].tolist())
        new = {old: n for n, old in enumerate(kept)}
        classes = tuple(classes[old] for old in kept)
        rows = [(text, classes, new[gold]) for text, _, gold in rows if gold in new]
    order = rng.permutation(len(rows))
    held = min(1500, int(HELD * len(rows)))
    pool = order[held : held + ITEMS]
    answers = np.array([row[2] for row in rows])
    given = wrong_answers(answers, len(classes), case.variant).tolist()
    told = [(text, names, given[n]) for n, (text, names, _) in enumerate(rows)]
    return dataset(told, pool, classes), dataset(rows, order[:held], classes)


def dataset(rows: list[Row], order: np.ndarray, classes: tuple[str, ...]) -> Dataset:
    """Some of the rows as a data set."""
    items = [Item(f"r{n}", rows[n][0], rows[n][1]) for n in order]
    answers = {f"r{n}": int(rows[n][2]) for n in order}
    return Dataset("plan", "csv:classes", tuple(items), answers, classes)


def measure(case: Case, seed: int, data: Path) -> dict[str, Any]:
    """One run of `stacksl run`, and what is known before it and on the way."""
    pool, held = part(rows_of(case.source, data), case, seed)
    budget = min(LABELS, 2 * len(pool.items) // 3)
    assert pool.classes is not None
    feature_map = make_features(case.features, classes=pool.classes)
    feature_map.fit(pool.items)
    block = feature_map.transform(pool.items)
    assert isinstance(block, SharedBlock)
    h = block.h
    names = name_rows(feature_map, name_texts(pool.classes))
    gold = np.array([pool.answers[item.id] for item in pool.items])
    about = {
        "source": case.source,
        "features": case.features,
        "given": case.classes,
        "variant": case.variant,
        "seed": seed,
        "items": len(pool.items),
        "classes": len(pool.classes),
        "names": float((np.argmax(np.asarray(h) @ names.T, axis=1) == gold).mean()),
    }
    with tempfile.TemporaryDirectory() as folder:
        run = played(pool, held, Path(folder), budget, case, seed)
        facts = Facts.from_json((run.folder.path / "facts.json").read_text())
        curve = [(point.labels, point.accuracy) for point in facts.curve]
        rounds = asked_of(run)
        doubt = probabilities(run, rounds, [labels for labels, _ in curve])
    pairs = [
        (int(choice == label), round(p, 4))
        for choice, label, p in zip(
            rounds["choice"], rounds["label"], rounds["probability"], strict=True
        )
        if label is not None
    ]
    right, sure = zip(*pairs, strict=True)
    more = {"curve": curve, "right": right, "sure": sure, "pool": doubt}
    return {**about, "mode": facts.method.mode, **more}


def gains(data: Path) -> Iterator[dict[str, Any]]:
    """The gain of 100 more labels that a report tells, without the scenarios of its own set, and
    that on rows held out when they are bought.
    """
    cases = [(case, labels) for labels in AT for case in GAINS][:RUNS]
    measured = [scenario_of(row) for row in json.loads(MEASURED.read_text())["rows"]]
    for seed, (case, labels) in enumerate(cases):
        pool, held = part(rows_of(case.source, data), case, seed)
        others = fitted_growth([each for each in measured if each.source != case.source])
        growth_of_others = patch.object(forecasting, "GROWTH", others)
        with tempfile.TemporaryDirectory() as folder, growth_of_others, one_thread():
            run = played(pool, held, Path(folder), labels, case, seed)
            first = Facts.from_json((run.path / "facts.json").read_text())
            run.change(budget=labels + first.more.more)
            then = Facts.from_json((run.path / "facts.json").read_text())
        realized = then.test.accuracy - first.test.accuracy
        yield {"source": case.source, "labels": labels, **asdict(first.more), "realized": realized}


def told_of(rows: list[dict[str, Any]]) -> str:
    """How often a number was told, and how often its interval held what came of it."""
    told = [row for row in rows if row["value"] is not None]
    inside = sum(row["low"] <= row["realized"] <= row["high"] for row in told)
    width = np.median([row["high"] - row["low"] for row in told])
    return f"{len(rows)} runs, {len(told)} with a number, {inside} inside, median width {width:.3f}"


def played(
    pool: Dataset, held: Dataset, where: Path, budget: int, case: Case, seed: int
) -> stacksl.Run:
    """`stacksl run` on a pool with labels, tested on the rows held out."""
    write_csv(pool, where / "pool.csv")
    write_csv(held, where / "held.csv")
    return stacksl.run(
        where / "pool.csv", test=where / "held.csv", out=where / "run", budget=budget,
        features=case.features, seed=seed,
    )  # fmt: skip


def write_csv(dataset: Dataset, path: Path) -> None:
    """A file of texts and classes."""
    assert dataset.classes is not None
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["text", "label"])
        lines.writerows((i.prompt, dataset.classes[dataset.answers[i.id]]) for i in dataset.items)


def asked_of(run: stacksl.Run) -> dict[str, list[Any]]:
    """The decisions of a run in their order: what was chosen and how probable, and the label."""
    with run.ledger as ledger:
        rows = [*ledger.rows()]
    labels = {row.item: row.label().index for row in rows if row.event == "learned"}
    made = [row.decision() for row in rows if row.event == "round"]
    return {
        "choice": [decision.choice for decision in made],
        "probability": [decision.probability for decision in made],
        "label": [labels.get(decision.item) if decision.asked else None for decision in made],
    }


def probabilities(
    run: stacksl.Run, rounds: dict[str, list[Any]], counts: list[int]
) -> list[list[float]]:
    """Quantiles of the model's probability of its choice, over the items without a label.

    They are those under the head that ranks a pool, fitted on the first labels only; of a stream,
    those of the rounds up to then, the last quarter of them.
    """
    found = []
    with Session.open(RunSpec.open(run.folder)) as session:
        trainer, bought = linear_trainer(session), session.examples.bought
        for count in counts:
            if session.spec.settings.mode == "stream":
                asked = np.cumsum([label is not None for label in rounds["label"]])
                seen = rounds["probability"][: int(np.searchsorted(asked, count)) + 1]
                sure = np.array(seen[-max(25, len(seen) // 4) :])
            else:
                session.examples.bought = bought[:count]
                trainer.head = None  # no warm start
                trainer.refit()
                known = {row for row, _, _ in bought[:count]}
                rest = [row for row in range(len(session.corpus.ids)) if row not in known]
                head = linear_trainer(session).head
                assert head is not None
                sure = surest(head, session.examples.block, rest)
            found.append(np.quantile(sure, np.linspace(0.01, 0.99, 50)).round(4).tolist())
    return found


def run(words: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure every case that the JSON file does not hold yet."""
    rows = json.loads(words.json.read_text())["rows"] if words.json.exists() else []
    keys = ("source", "features", "given", "variant", "seed")
    done = {tuple(row[key] for key in keys) for row in rows}
    for seed in SEEDS:
        for case in CASES:
            if (*astuple(case), seed) in done:
                continue
            with one_thread():
                rows.append(measure(case, seed, words.data))
            text = json.dumps({"version": stacksl.__version__, "rows": rows}, indent=1)
            words.json.write_text(text)
            print(f"{len(rows)} runs measured: {case} {rows[-1]['curve'][-1]}", file=sys.stderr)
    return rows


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run on a public set.

    Attributes:
        source: the set; parts of one set have one source.
        options: K, the number of classes.
        points: (labels, accuracy, what `carried_over` gave) at several numbers of labels.
    """

    source: str
    options: int
    points: tuple[tuple[int, float, float], ...]


def scenario_of(row: dict[str, Any]) -> Scenario:
    """What a measured run shows of the growth."""
    points = []
    for (labels, accuracy), quantiles in zip(row["curve"], row["pool"], strict=True):
        if labels < FEWEST:
            continue
        sure, right = (np.array(row[name][:labels], dtype=float) for name in ("sure", "right"))
        pool = np.array(quantiles)
        if row["mode"] == "pool":  # its quantiles are those of the rest
            times = (row["items"] - labels) // len(quantiles)
            pool = np.concatenate([sure, np.repeat(pool, max(1, times))])
        points.append((labels, round(accuracy, 4), round(carried_over(sure, right, pool), 4)))
    return Scenario(row["source"], row["classes"], tuple(points))


class Observation(NamedTuple):
    """One equation of a regression: what a source shows of a quantity under some features."""

    source: str
    features: list[float]
    value: float


def fitted_growth(known: Sequence[Scenario]) -> Growth | None:
    """The growth that the scenarios show; None with fewer than two sources.

    Each source counts the same. The standard deviations are those of the sources left out one
    after the other; see `left_out`.
    """
    firsts: list[Observation] = []
    missed: list[Observation] = []
    slopes: list[Observation] = []
    for scenario in known:
        source = scenario.source
        levels = np.array([logit(accuracy) for _, accuracy, _ in scenario.points])
        counts = np.array([labels for labels, _, _ in scenario.points])
        at_100 = float(np.interp(0.0, np.log(counts / 100), levels))
        firsts.append(Observation(source, [1.0], at_100))
        for at, (labels, _, carried) in enumerate(scenario.points):
            if labels >= FEWEST:
                level = logit(carried)
                explained = explaining(level, labels, scenario.options)
                missed.append(Observation(source, explained, levels[at] - level))
            for later in range(at + 1, len(counts)):
                slope = (levels[later] - levels[at]) / math.log(counts[later] / labels)
                explained = explaining(levels[at], labels, scenario.options)
                slopes.append(Observation(source, explained, slope))
    if len({scenario.source for scenario in known}) < 2:
        return None
    first, correction = left_out(firsts, _FIRST_SD), left_out(missed, _MISSED_SD)
    coefficients, sd = left_out(slopes, _SLOPE_SD)
    return Growth(
        len({scenario.source for scenario in known}),
        Normal(float(first[0][0]), first[1]),
        (tuple(correction[0].tolist()), correction[1]),
        (tuple(coefficients.tolist()), sd),
    )


def left_out(rows: Sequence[Observation], usual: float) -> tuple[np.ndarray, float]:
    """Coefficients by ridge regression, and the standard deviation on sources left out.

    Few sources say little of how far the next one may be: `usual` is a prior of that deviation, in
    logits, which counts as four sources, and the result is widened by Student's t.
    """
    from scipy.special import stdtrit  # scipy.stats takes long to import

    source = np.array([row.source for row in rows])
    x, y = np.array([row.features for row in rows]), np.array([row.value for row in rows])
    names = sorted(set(source.tolist()))

    def solved(kept: np.ndarray) -> np.ndarray:
        weight = np.array([1 / np.sum(source[kept] == name) for name in source[kept]])
        ridge = np.diag([1e-9, *([0.5] * (x.shape[1] - 1))])
        coefficients: np.ndarray = np.linalg.solve(
            (x[kept] * weight[:, None]).T @ x[kept] + ridge, (x[kept] * weight[:, None]).T @ y[kept]
        )
        return coefficients

    square = []
    for name in names:
        out = source == name
        square.append(float(np.mean((y[out] - x[out] @ solved(~out)) ** 2)))
    count = _USUAL + len(names)
    sd = math.sqrt((_USUAL * usual**2 + sum(square)) / count)
    return solved(np.ones(len(y), dtype=np.bool_)), sd * float(stdtrit(count - 1, 0.95)) / Z


def evaluate(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each forecast for each source, made from the other sources, next to what was measured."""
    every = [scenario_of(row) for row in rows]
    found = []
    for row, mine in zip(rows, every, strict=True):
        known = fitted_growth([s for s in every if s.source != mine.source])
        part = "" if row["given"] is None else f", {row['given']} classes"
        name = f"{mine.source}{part}, {row['features']}, {row['variant']}"
        about = {"source": name, "bottom": row["names"]}
        if known is not None:
            for kind, told, truth in forecasts(mine, known):
                found.append({**about, "kind": kind, "truth": truth, **asdict(told)})
    return found


def forecasts(mine: Scenario, known: Growth) -> Iterator[tuple[str, Estimate, float]]:
    """(kind, forecast, truth) of one run, from what other sources say."""
    labels = np.array([point[0] for point in mine.points])
    reached = [point[1] for point in mine.points]

    def at(n: int) -> float:
        return float(np.interp(np.log(n), np.log(labels), reached))

    def expected(level: Normal, n: int, wanted: int) -> Estimate:
        return accuracy_at(known, level, n, wanted, mine.options)

    for wanted in (100, 200, 500):
        if wanted <= labels[-1]:
            yield "before", expected(known.first, 100, wanted), at(wanted)
    for n, accuracy, guess in mine.points:
        if n < 40:
            continue
        level = level_of(known, guess, n, mine.options)
        later = [m for m in (n, 2 * n, 4 * n) if m <= labels[-1]]
        for m in later:
            yield "training", expected(level, n, m), at(m)
        if n + 100 <= labels[-1]:
            yield "gain of 100", gain(known, level, n, 100, mine.options), at(n + 100) - accuracy


def stops(rows: list[dict[str, Any]]) -> str:
    """What `--stop-when gain=0.01/200` would have left unbought, in a sentence.

    It is looked at where the curve has a point and 200 labels were bought after it.
    """
    every, gained = [scenario_of(row) for row in rows], []
    for mine in every:
        known = fitted_growth([s for s in every if s.source != mine.source])
        counts, reached, guesses = zip(*mine.points, strict=True)
        assert known is not None
        for n, accuracy, guess in zip(counts, reached, guesses, strict=True):
            level = level_of(known, guess, n, mine.options)
            if n < 40 or n + 200 > counts[-1]:
                continue
            if gain(known, level, n, 200, mine.options).value < 0.01:
                later = float(np.interp(np.log(n + 200), np.log(counts), reached))
                gained.append(later - accuracy)
                break
    more = [100 * each for each in gained if each > 0.01]
    return (
        f"`--stop-when gain=0.01/200` stops {len(gained)} of the {len(rows)} runs; in"
        f" {len(more)} of them 200 further labels gain more than a point ({min(more):.1f} to"
        f" {max(more):.1f})."
    )


def table(found: list[dict[str, Any]]) -> str:
    """Coverage, width and error of each kind of forecast; sources count the same."""
    lines = [
        "| forecast | sources | forecasts | inside | least, of a source | median width"
        " | names alone to 1 | mean error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in dict.fromkeys(row["kind"] for row in found):
        some = [row for row in found if row["kind"] == kind]
        sources = sorted({row["source"] for row in some})
        inside = [
            np.mean([r["low"] <= r["truth"] <= r["high"] for r in some if r["source"] == name])
            for name in sources
        ]
        width = np.median([row["high"] - row["low"] for row in some])
        bottom = np.median([1 - row["bottom"] for row in some])
        error = np.mean([abs(row["value"] - row["truth"]) for row in some])
        cells = (
            kind, len(sources), f"{len(some):,}", f"{100 * np.mean(inside):.0f}%",
            f"{100 * min(inside):.0f}%", f"{width:.2f}",
            "" if kind.startswith("gain") else f"{bottom:.2f}", f"{error:.3f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    """Measure or evaluate; see the module's text."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="the folder of the sets ($STACKSL_DATA)")
    parser.add_argument("--json", type=Path, help="write the rows here, and go on from what it has")
    parser.add_argument("--from", dest="source", type=Path, help="evaluate the rows of this file")
    parser.add_argument("--gains", type=Path, help="write here what 100 more labels brought")
    words = parser.parse_args()
    if words.data and words.gains:
        played = []
        for row in gains(words.data):
            played.append(row)
            print(row, file=sys.stderr)
        words.gains.write_text(
            json.dumps({"version": stacksl.__version__, "rows": played}, indent=1)
        )
        print(told_of(played))
        return
    if words.source:
        rows = json.loads(words.source.read_text())["rows"]
    elif words.data and words.json:
        rows = run(words)
    else:
        parser.error("give --data and --json, or --from FILE")
    print(f"{table(evaluate(rows))}\n\n{stops(rows)}")
    print(f"\n{fitted_growth([scenario_of(row) for row in rows])}")


if __name__ == "__main__":
    main()
