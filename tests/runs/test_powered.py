"""Reference rows of an audit, and what the model's probabilities of them give."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from stacksl.api import Run, run
from stacksl.errors import SettingsError
from stacksl.models.audit import judge_audit, powered
from stacksl.models.metrics import Powers, moments, reference_size, rows_of, wilson
from stacksl.models.second_look import looked
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.changes.people import own_label
from stacksl.runs.items.corpus import Role
from stacksl.runs.items.roles import corpus_of
from stacksl.runs.session.session import Session
from stacksl.runs.spec import RunSpec

from .conftest import class_items

# The estimate -------------------------------------------------------------------------------------


def model(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A model's right answers, and its probabilities, which tell them without a bias."""
    rng = np.random.default_rng(seed)
    sure = rng.beta(4, 1.2, count)
    return (rng.random(count) < sure).astype(float), sure


def test_the_formula() -> None:
    right, sure, reference = (
        np.array([1.0, 0, 1, 1]),
        np.array([0.9, 0.4, 0.8, 0.5]),
        np.ones(8) * 0.7,
    )
    weight = np.cov(right, sure)[0, 1] / (np.var(sure, ddof=1) * (1 + 4 / 8))
    value, variance = moments(right, Powers(sure, reference))
    assert value == pytest.approx(weight * 0.7 + np.mean(right - weight * sure))
    rest = np.var(right - weight * sure, ddof=1) / 4
    assert variance == pytest.approx(rest + weight**2 * np.var(sure, ddof=1) / 8)


@pytest.mark.parametrize(
    "sure", [np.full(50, 0.8), np.linspace(0.9, 0.1, 50)], ids=["constant", "against"]
)
def test_probabilities_that_tell_nothing_leave_wilsons_interval(sure: np.ndarray) -> None:
    right = np.repeat([0.0, 1.0], [10, 40])
    found = powered(right, np.ones(50, dtype=bool), Powers(sure, np.full(300, 0.5)))
    assert found == pytest.approx((0.8, *wilson(40, 50)))


def test_it_holds_as_often_and_is_narrower() -> None:
    right, sure = model(20_000, 1)
    rng, truth = np.random.default_rng(2), right.mean()
    holds, plain = [], []
    for _ in range(600):
        audit, rest = np.split(rng.integers(len(right), size=600), [100])
        low, high = powered(right[audit], np.ones(100, bool), Powers(sure[audit], sure[rest]))[1:]
        holds.append((low <= truth <= high, high - low))
        plain.append(wilson(right[audit].sum(), 100))
    shares = np.mean(holds, axis=0)
    assert 0.925 <= shares[0] <= 0.975
    assert shares[1] < 0.93 * np.mean([high - low for low, high in plain])


def test_rows_without_a_clear_answer_widen_it_at_both_ends() -> None:
    right, sure = model(60, 3)
    policies = {
        str(n): np.array([p, 1 - p]) if p > 0.5 else np.array([1 - p, p])
        for n, p in enumerate(sure)
    }
    reference = model(300, 4)[1]
    choices = {item: int(np.argmax(policy)) for item, policy in policies.items()}
    said = {n: c if right[int(n)] else 1 - c for n, c in choices.items()}
    known = judge_audit(policies, said, reference)
    assert known.reference == 300
    assert known.interval[0] < known.accuracy < known.interval[1]
    fewer = judge_audit(policies, {**said, "5": "broken", "6": "ambiguous"}, reference)
    assert fewer.unknown == 2
    assert fewer.interval[0] < known.interval[0] + 0.01
    assert fewer.interval[1] > known.interval[1] - 0.01
    assert fewer.interval[1] - fewer.interval[0] > known.interval[1] - known.interval[0]


def test_the_second_look_corrects_the_powered_estimate() -> None:
    """Without errors it is the audit's own; each agreeing row found wrong lowers it."""
    right, sure = model(80, 5)
    reference = model(400, 6)[1]
    items = [str(n) for n in range(80)]
    predicted = dict.fromkeys(items, 0)
    first = {item: [0 if right[int(item)] else 1] for item in items}
    agreeing = [item for item in items if right[int(item)]]
    differing = [item for item in items if not right[int(item)]]
    sampled = agreeing[:12]
    confirmed = {item: said * 2 for item, said in first.items() if item in sampled + differing}
    answers = {**first, **confirmed}
    powers = Powers(sure, reference)
    found = looked((agreeing, sampled, differing), predicted, answers, powers)
    assert found.accuracy == pytest.approx(powered(right, np.ones(80, bool), powers))
    wrong = {sampled[0]: [0, 1, 1]}
    lower = looked((agreeing, sampled, differing), predicted, {**answers, **wrong}, powers)
    assert lower.accuracy[0] == pytest.approx(found.accuracy[0] - len(agreeing) / 80 / 12)
    plain = looked((agreeing, sampled, differing), predicted, answers)
    assert plain.accuracy[0] == pytest.approx(right.mean())
    assert found.accuracy[2] - found.accuracy[1] < plain.accuracy[2] - plain.accuracy[1]


def test_the_number_of_rows_of_an_interval_is_bounded() -> None:
    assert rows_of(0.9, 0.0, 100) == 100
    assert rows_of(0.9, 0.09 / 100, 100) == pytest.approx(100)
    assert rows_of(0.9, 1e-9, 100) == 250
    assert rows_of(0.9, 9.0, 100) == 5


@pytest.mark.parametrize(
    ("items", "labels", "size"),
    [(1_999, 9, 0), (2_000, 9, 200), (40_000, 9, 500), (2_000, 1_800, 200), (2_000, 1_801, 0)],
)
def test_how_many_reference_rows_there_are(items: int, labels: int, size: int) -> None:
    assert reference_size(items, labels) == size


# A run --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    items, answers = class_items(2_300)
    folder = tmp_path_factory.mktemp("powered") / "run"
    return run(items, answers, mode="pool", budget=80, audit=30, open_questions=25, out=folder)


def reference_rows(done) -> list[str]:
    with Session.open(RunSpec.open(done.folder)) as session:
        corpus = session.corpus
        assert corpus.reference_rows == corpus_of(session.spec).reference_rows
        apart = session.trainer.source().apart
        assert apart.issuperset(corpus.reference_rows), "the graph of neighbors has none of them"
        return [corpus.ids[row] for row in np.flatnonzero(corpus.roles == Role.REFERENCE)]


def test_reference_rows_are_never_bought_and_labeled_like_the_others(done) -> None:
    reference = reference_rows(done)
    assert len(reference) == 227
    facts = json.loads((done.path / "facts.json").read_text(encoding="utf-8"))
    assert facts["audit"]["reference"] == 227
    assert not {row["item"] for row in done.ledger.export()} & set(reference)
    uses = {each["name"]: int(each["value"]) for each in facts["data"]["roles"]}
    assert uses["reference rows for its interval"] == 227
    assert sum(uses.values()) == 2_300
    assert "prediction-powered" in (done.path / "report.html").read_text(encoding="utf-8")
    assert done.replay()["labels"] == 50


def test_a_second_audit_has_wilsons_interval_for_it_is_of_other_rows(done, tmp_path) -> None:
    folder = shutil.copytree(done.path, tmp_path / "run")
    changed = Run.open(folder)
    changed.change(budget=200)
    audit = json.loads((folder / "facts.json").read_text(encoding="utf-8"))["audit"]
    assert (audit["number"], audit["reference"]) == (2, 0)
    assert (audit["low"], audit["high"]) == pytest.approx(wilson(audit["correct"], audit["n"]))


def test_none_is_left_for_it_after_the_owner_labeled_one_of_them(done, tmp_path) -> None:
    """Whoever chooses the row may choose it for its answer."""
    folder, (first, second) = shutil.copytree(done.path, tmp_path / "run"), reference_rows(done)[:2]
    labeled, items = Run.open(folder), RunSpec.open(done.folder).sources.usable
    own_label(labeled.folder, first, items[first].candidates[0])
    labeled.resume()
    audit = json.loads((folder / "facts.json").read_text(encoding="utf-8"))["audit"]
    assert audit["reference"] == 0
    assert (audit["low"], audit["high"]) == pytest.approx(wilson(audit["correct"], audit["n"]))
    rows = {row["id"]: row for row in labeled.table().rows}
    assert (rows[first]["source"], rows[second]["source"]) == ("human", "model")
    labeled.change(budget=120)
    bought = [row["item"] for row in labeled.ledger.export() if row["purpose"] != "owned"]
    assert len(bought) == 120
    assert first not in bought
    assert labeled.replay()["labels"] == 91, "50, 40 more, and the owner's"


@pytest.mark.parametrize("place", ["file", "copy"])
def test_none_is_left_for_it_after_its_text_was_labeled(place: str, tmp_path) -> None:
    """By a file of owned labels, or by a click on another row with the same text."""
    items, answers = class_items(2_300)
    items = [replace(item, prompt=f"text {n // 2}") for n, item in enumerate(items)]
    out = tmp_path / "run"
    done = run(items, answers, mode="pool", budget=80, audit=30, open_questions=25, out=out)
    texts, apart = {item.id: item.prompt for item in items}, reference_rows(done)
    bought = {texts[id] for id in done.ledger.bought()}
    first = next(id for id in apart if texts[id] not in bought)
    other = next(id for id in texts if texts[id] == texts[first] and id not in apart)
    name = items[0].candidates[0]
    if place == "file":
        path = tmp_path / "owned.csv"
        path.write_text(f"prompt,label\n{texts[first]},{name}\n")
        done.change(owned=path)
    else:
        own_label(done.folder, other, name)
        done.resume()
    audit = json.loads((done.path / "facts.json").read_text(encoding="utf-8"))["audit"]
    assert audit["reference"] == 0


def test_a_budget_of_all_items_says_how_many_can_be_bought(done, tmp_path) -> None:
    folder = shutil.copytree(done.path, tmp_path / "run")
    with pytest.raises(SettingsError, match="at most 2073"):
        Run.open(folder).change(budget=2_300)


def test_a_larger_budget_leaves_them_and_an_erased_one_is_missed(done, tmp_path) -> None:
    reference = reference_rows(done)
    done.change(budget=120)
    assert not {row["item"] for row in done.ledger.export()} & set(reference)
    forget(done.path, reference[0])
    done.resume()
    facts = json.loads((done.path / "facts.json").read_text(encoding="utf-8"))
    assert facts["audit"]["reference"] == 226
