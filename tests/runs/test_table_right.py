"""How many labels of the exported table are right: the estimate, and the labels that it counts."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.api import Run, run
from stacksl.ledger.purchases import counted
from stacksl.models.audit import right_in_table, stand_for_left
from stacksl.models.metrics import wilson
from stacksl.models.second_look import looked, split
from stacksl.report import render
from stacksl.report.quality import TableRight
from stacksl.report.sentences import in_table, outcome
from stacksl.report.wording import percent

from ..ledgers import bought
from ..tables import write_table
from .changing_cases import audits, finished, labeled
from .people_cases import Row, begin, facts_of, play, truth, wrong

CLASSES, SLOW = 10, pytest.mark.slow


# The interval ---------------------------------------------------------------------------------


def missed(people: int, model: int, accuracy: float, errors: float, n: int, k: int) -> Any:
    """How often the interval is above and below the truth, where both parts are binomial shares.

    Also how often it is above where the interval of people's errors is left out of it.
    """
    rng, draws = np.random.default_rng(7), 4000
    truth = (people * (1 - errors) + model * accuracy) / (people + model)
    over = under = left_out = 0
    pairs = zip(rng.binomial(n, accuracy, draws), rng.binomial(k, errors, draws), strict=True)
    for right, bad in pairs:
        parts = (right / n, *wilson(right, n)), (bad / k, *wilson(bad, k))
        _, low, high = right_in_table(people, model, *parts)
        over, under = over + (truth < low), under + (truth > high)
        rate = bad / k
        left_out += truth < right_in_table(people, model, parts[0], (rate, rate, rate))[1]
    return over / draws, under / draws, left_out / draws


@pytest.mark.parametrize("accuracy", [0.6, 0.85, 0.95])
@pytest.mark.parametrize(("people", "model"), [(100, 500), (300, 300), (500, 100)])
@pytest.mark.parametrize(("n", "k"), [(50, 60), (200, 150)])
def test_the_interval_of_two_shares_holds(
    people: int, model: int, accuracy: float, n: int, k: int
) -> None:
    over, under, left_out = missed(people, model, accuracy, 0.05, n, k)
    assert over < 0.05
    assert over + under < 0.08
    if (accuracy, n) != (0.95, 50):  # beyond it no audit of 50 is too good by much
        assert over > 0.001, "a bound that always holds is too low"
    if people > 4 * model:
        assert left_out > 2 * over, "people's errors are known from few rows"


@pytest.mark.parametrize("errors", [0.0, 0.05])
@pytest.mark.parametrize("right", [0.7, pytest.param(0.85, marks=SLOW), 0.95])
@pytest.mark.parametrize("asked", [0, pytest.param(30, marks=SLOW), 150, 300])
def test_the_bound_of_a_mended_column_holds(errors: float, right: float, asked: int) -> None:
    """People are asked about a random audit and about the most doubtful labels, and err."""
    rng, draws, count, n = np.random.default_rng(3), 1000, 600, 100
    over = under = 0
    off = np.zeros((draws, 2))
    for at in range(draws):
        wrong, err = rng.random(count) > right, rng.random(count) < errors
        sure = rng.normal(size=count) - 2 * wrong
        rest = np.arange(n, count)  # the rows are in no order
        doubtful = rest[np.argsort(sure[rest])[:asked]]
        kept = np.setdiff1d(rest, doubtful)
        bad = int(rng.binomial(n, errors))
        rates = (bad / n, *wilson(bad, n)) if errors else (0.0, 0.0, 0.0)
        judged = wrong[:n][stand_for_left(sure[:n], sure[kept])]
        known = 1 - judged.mean(), *wilson(int(np.sum(~judged)), len(judged))
        people, model = n + asked, len(kept)
        share, low, high = right_in_table(people, model, known, rates, len(judged))
        truth = 1 - (err[:n].sum() + err[doubtful].sum() + wrong[kept].sum()) / count
        over, under = over + (truth < low), under + (truth > high)
        all_audited = (people + model * (1 - wrong[:n].mean())) / count
        off[at] = share - truth, all_audited - (1 - wrong[kept].sum() / count)
    assert over / draws < 0.04
    assert (over + under) / draws < 0.09
    bias, without = off.mean(axis=0)
    assert abs(bias) < 0.005
    if asked >= 150 and right < 0.95:
        assert without < -0.02, "the labels left are better than the column was"


def test_it_is_the_part_of_the_model_where_peoples_labels_count_as_right() -> None:
    found = right_in_table(150, 450, (0.8, 0.7, 0.86))
    assert found == pytest.approx((0.25 + 0.6, 0.25 + 0.525, 0.25 + 0.645))
    of_people = right_in_table(9, 0, (0.8, 0.7, 0.9), (0.1, 0.05, 0.2))
    assert of_people == pytest.approx((0.9, 0.8, 0.95))


def second_looked(rng: np.random.Generator, errors: float) -> tuple[float, float, float]:
    """The truth about a table of 600 labels, 300 of them people's, and the ends for it.

    Three people err independently, and all that a second look of 100 rows wants is asked.
    """
    truth, miss = rng.integers(CLASSES, size=600), rng.random(600) < 0.15
    model = np.where(miss, (truth + 1) % CLASSES, truth)
    slips = (rng.random((600, 3)) < errors) * rng.integers(1, CLASSES, size=(600, 3))
    said = ((truth[:, None] + slips) % CLASSES).tolist()
    names, answers = [str(row) for row in range(100)], {}
    predicted = {name: int(model[int(name)]) for name in names}
    first: Any = {name: [said[int(name)][0]] for name in names}
    rows = split(names, predicted, first, ())
    again = {*rows[1], *rows[2]}
    for name in names:
        given = said[int(name)]
        agreed = 2 if given[0] == given[1] else 3
        answers[name] = given[:agreed] if name in again else given[:1]
    look = looked(rows, predicted, answers)
    labels = [counted(answers[name]) for name in names]
    labels += [said[row][0] for row in range(100, 300)]
    right = sum(label == t for label, t in zip(labels, truth, strict=False))
    share = (right + np.sum(~miss[300:])) / 600
    mended = sum(label != answers[name][0] for name, label in zip(names, labels, strict=False))
    found = tuple(max(0.0, rate - mended / 300) for rate in look.errors or (0.0, 0.0, 0.0))
    return share, *right_in_table(300, 300, look.accuracy, found, 100)[1:]


@pytest.mark.parametrize("errors", [0.02, 0.05, 0.1])
def test_the_interval_holds_where_one_second_look_tells_both_parts(errors: float) -> None:
    """Its sample moves both parts together, but the intervals of both are wide at their ends.

    Of 400 draws 10 would be 2.5%: 21 have a chance of one in a thousand then.
    """
    rng = np.random.default_rng(0)
    draws = np.array([second_looked(rng, errors) for _ in range(400)])
    truth, low, high = draws.T
    assert np.sum(low > truth) < 21
    assert np.sum(high < truth) < 21


# The labels that are counted ------------------------------------------------------------------


def sources(done: Run) -> Counter[str]:
    rows = done.table().rows  # the column has another name where the files have labels
    return Counter(str(row.get("source", row.get("predicted_source"))) for row in rows)


def expect_counts(done: Run) -> tuple[TableRight, str]:
    """What is said of the table: the labels that count are those exported, by their source."""
    facts, found = facts_of(done), sources(done)
    table, audit, words = facts.table, facts.audit, " ".join(filter(None, in_table(facts)))
    assert table is not None
    assert audit is not None
    assert audit.accuracy is not None
    assert table.people == found["human"]
    assert 0 <= found["model"] - table.model <= audit.rows_after
    of_people = table.people * (1 - (table.errors or 0.0))
    of_model = (table.share * (table.people + table.model) - of_people) / table.model
    of_left = ". Of the labels by the model, in rows that nobody answered, an estimated "
    if table.left is None:  # the run would have bought none of the audited rows
        assert of_model == pytest.approx(audit.accuracy)
        assert of_left not in words
    else:
        assert of_model == pytest.approx(table.left)
        assert (of_left + percent(table.left) in words) == (table.left < 1)
    assert table.low < table.share <= table.high
    told = done.status()["table"]
    assert told == {**asdict(table), "sentence": words}
    assert words in outcome(facts)
    assert words in unescape(render(facts))
    return table, words


def test_labels_that_a_program_bought_count_as_right(tmp_path: Path) -> None:
    table, words = expect_counts(finished(tmp_path, audit=6))
    assert (table.people, table.model, table.errors) == (20, 140, None)
    assert "the 160 labels in the exported table (20 by the labeler, 140 by the model) an" in words
    assert "% are right (95% interval " in words
    assert ", counting bought labels as right." in words


@pytest.mark.parametrize(
    ("seed", "people", "mode"), [(0, "", "pool"), (0, "", "stream"), (2, "anna,ben,carl", "pool")]
)
def test_the_rows_left_are_judged_by_audited_rows_that_are_like_them(
    tmp_path: Path, seed: int, people: str, mode: str
) -> None:
    """A third of the rows is hard, and the run buys these: the audited accuracy is of all rows."""
    rng, gold, names = random.Random(seed), dict[str, str](), ("cat", "dog", "cow", "hen")
    words = [f"{name}{k}" for name in names for k in range(6)]
    for number in range(400):
        name, hard = rng.choice(names), rng.random() < 0.35
        own = [] if hard else [f"{name}{rng.randrange(6)}" for _ in range(4)]
        gold[" ".join([*own, *rng.sample(words, 5 - len(own)), str(number)])] = name
    settings: dict[str, Any] = {"budget": 200, "audit": 80, "seed": seed, "open_questions": 50}
    settings |= {"out": tmp_path / "run", "mode": mode}
    if people:
        classes = write_table(tmp_path / "classes.csv", ("class",), [(name,) for name in names])
        texts = write_table(tmp_path / "texts.csv", ("text",), [(text,) for text in gold])
        sheets = {"labeler": "file", "sheets.format": "csv", "annotators": people}
        sheets |= {"second_look": True, "classes": str(classes)}
        done = play(run(texts, **settings, **sheets), lambda row: gold[row["prompt"]])
    else:
        file = write_table(tmp_path / "rows.csv", ("text", "label"), gold.items())
        done = run(file, **settings)
    table, audit = facts_of(done).table, facts_of(done).audit
    assert table is not None
    assert audit is not None
    assert audit.accuracy is not None
    assert (audit.second is not None) == bool(people)
    if not people:
        drawn = set(audits(done))
        texts = [text for at, text in enumerate(gold) if f"row-{at + 1:06d}" in drawn]
        said = [row["choice"] for row in done.predict(texts)]
        assert audit.correct == sum(map(str.__eq__, said, map(gold.__getitem__, texts)))
    rows = done.table().rows  # the column has another name where the file has labels
    labels = [row["label" if people else "predicted_label"] for row in rows]
    right = np.mean(
        [
            label in ("", None, gold[str(row["text"])])
            for row, label in zip(rows, labels, strict=True)
        ]
    )
    naive = (table.people + table.model * audit.accuracy) / len(rows)
    assert naive < right - 0.03
    assert abs(table.share - right) < abs(naive - right)
    assert table.low <= right <= table.high


def test_peoples_errors_are_those_of_the_second_look_but_for_mended_labels(tmp_path: Path) -> None:
    seen = set()

    def say(row: Row) -> str:
        """A fifth of the rows is answered wrongly at first, and rightly afterwards."""
        errs = int(row["prompt"].split()[-1]) % 5 == 0 and row["prompt"] not in seen
        seen.add(row["prompt"])
        return wrong(row) if errs else truth(row)

    people = {"annotators": "anna,ben,carl", "second_look": True, "open_questions": 40}
    done = play(begin(tmp_path, count=200, budget=160, audit=50, **people), say)
    (table, words), audit = expect_counts(done), facts_of(done).audit
    assert audit is not None
    assert audit.measures == "accuracy"
    assert audit.second is not None
    assert audit.second.errors is not None
    answers: dict[str, list[object]] = {}
    for row in bought(done, state="answered"):
        answers.setdefault(str(row["item"]), []).append(row["answer"])
    settled = [given for given in answers.values() if len({*given}) < len(given)]
    mended = sum(given[0] != max(given, key=given.count) for given in settled)
    assert mended > 0, "two others overruled the first"
    assert table.errors == pytest.approx(audit.second.errors[0] - mended / table.people)
    rate = f"with people wrong in an estimated {percent(table.errors)} of theirs"
    assert f"{rate} (fewer than of single answers" in words


def test_nothing_is_said_where_nothing_measured_the_table(tmp_path: Path) -> None:
    test = str(labeled(tmp_path / "test.csv", ids=False, first=700, count=30))
    for name, settings in (("none", {"audit": 0}), ("test", {"audit": 0, "test": test})):
        (tmp_path / name).mkdir()
        done = play(begin(tmp_path / name, **settings))
        assert facts_of(done).table is None
        assert done.status()["table"] is None
        assert not any(in_table(facts_of(done)))
    (tmp_path / "all").mkdir()
    done = play(begin(tmp_path / "all", count=20, budget=20, audit=5))
    assert facts_of(done).table is None, "every label is people's"
