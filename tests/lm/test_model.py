"""A language model as a run holds it: features and scores of items, refits, what names them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax

from stacksl import Item
from stacksl.lm.model import LanguageModel, Lesson
from stacksl.lm.prompt.format import PMI_CONTEXTS
from stacksl.lm.scoring.likelihood import Likelihood
from stacksl.lm.scoring.normalize import NORMALIZATIONS, fitted_temperature, prior_temperature
from stacksl.lm.settings import LoraSettings, ModelChoices, TrainSettings
from stacksl_lab.language.base_scores import shared_scores

pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")

TRAINING = TrainSettings(objective="ce", epochs=1, batch_size=2, learning_rate=1e-2)
ITEMS = [
    Item("one", "Which vitamin is lacking in scurvy?", ("vitamin C", "ascorbic", "A", "B")),
    Item("two", "What is the capital of France?", ("A", "B")),
    Item("three", "def median(values):", ("return the mean of two", "the middle", "A")),
]


def opened(folder: Path, **changes: Any) -> LanguageModel:
    choices = ModelChoices(
        str(folder), device="cpu", state_dim=4, lora=LoraSettings(rank=2), training=TRAINING
    )
    return LanguageModel(replace(choices, **changes))


def bought(model: LanguageModel) -> list[Lesson]:
    every = [tuple(range(len(item.candidates))) for item in ITEMS]
    return [
        Lesson(item, 1, options, (0.0,) * len(options))
        for item, options in zip(ITEMS, every, strict=True)
    ]


def test_labels_choose_normalization_and_premise(folder: Path) -> None:
    def loss(scores: list[Any], gold: list[int]) -> float:
        scale = fitted_temperature(scores, gold, prior_temperature(scores))
        pairs = zip(scores, gold, strict=True)
        return -float(np.mean([log_softmax(each / scale)[label] for each, label in pairs]))

    before = opened(folder, normalization="auto")
    before.fit(ITEMS)
    assert before.way == {**before.way, "normalization": "token_mean", "pmi_context": "template"}
    every = {
        (kind, premise): opened(folder, pmi_context=premise).scores(ITEMS, kind)
        for premise in PMI_CONTEXTS
        for kind in NORMALIZATIONS
    }
    chosen = set()
    for gold in ((0, 0, 0), (3, 0, 0)):
        model = opened(folder, normalization="auto")
        model.choose(ITEMS, gold)
        own = (model.choices.normalization, model.choices.pmi_context)
        losses = {way: loss(scores, list(gold)) for way, scores in every.items()}
        assert losses[own] == pytest.approx(min(losses.values()), abs=1e-5)
        chosen.add(own)
        same = opened(folder, normalization=own[0], pmi_context=own[1])
        for each in (model, same):
            each.fit(ITEMS)
        assert model.fingerprint == same.fingerprint
        assert model.facts() == same.facts()
        assert (model.facts()["lm_normalization"], model.facts()["lm_pmi_context"]) == own
    assert len(chosen) > 1, "one way for all labels is no choice"


@pytest.mark.parametrize("kind", NORMALIZATIONS)
def test_the_offset_is_the_models_score_over_its_temperature(folder: Path, kind: Any) -> None:
    model = opened(folder, normalization=kind)
    model.fit(ITEMS)
    block, scores = model.transform(ITEMS), model.scores(ITEMS, kind)
    for number, policy in enumerate(model.policies(ITEMS)):
        expected = scores[number] / model.temperature
        assert np.allclose(block[number].offset, expected, atol=1e-5)
        grown = np.exp(expected - expected.max())
        assert np.allclose(policy, grown / grown.sum(), atol=1e-5)
        assert block[number].phi.shape == (len(ITEMS[number].candidates), 4)
    scaled = [own / model.temperature for own in scores]
    assert prior_temperature(scaled) == pytest.approx(1.0, rel=1e-4)


def test_without_states_scores_are_the_same_and_none_is_read(folder: Path, monkeypatch) -> None:
    whole = opened(folder)
    whole.fit(ITEMS)
    expected = whole.transform(ITEMS)
    monkeypatch.delattr(Likelihood, "sums_and_states")
    bare = opened(folder, state_dim=0)
    bare.fit(ITEMS)
    block = bare.transform(ITEMS)
    assert np.allclose(block.base, expected.base, atol=1e-5)
    assert block.phi.shape == (len(expected.phi), 1)
    for fitted, dim in ((bare, 0), (whole, 4)):
        other = opened(folder, state_dim=dim)
        other.restore(fitted.state())
        assert (other.fingerprint, other.dim) == (fitted.fingerprint, dim or 1)


def test_the_fingerprint_is_of_what_decides_the_features(folder: Path) -> None:
    """Not of how they are computed, which a resumed run takes from its record."""
    plain = opened(folder)
    plain.fit(ITEMS)

    def mark(**changes: Any) -> str:
        model = opened(folder, **changes)
        model.restore(plain.state())
        return model.fingerprint

    for same in ({"verdict": "packed"}, {"dtype": "float32"}, {"threads": 1}):
        assert mark(**same) == plain.fingerprint
    assert mark(training=TrainSettings(epochs=9)) == plain.fingerprint
    for other in ({"template": "{prompt}"}, {"normalization": "sum"}, {"dtype": "bfloat16"}):
        assert mark(**other) != plain.fingerprint


def test_a_refit_moves_the_features_and_the_fingerprint_and_reset_brings_them_back(
    folder: Path, tmp_path: Path
) -> None:
    model = opened(folder)
    model.fit(ITEMS)
    before, mark = model.transform(ITEMS), model.fingerprint
    told: list[tuple[int, int]] = []
    trained = model.refit(bought(model), 1, lambda *step: told.append(step))
    assert (trained.steps, told) == (2, [(1, 2), (2, 2)])
    kept = model.save(tmp_path / "kept")
    after = model.transform(ITEMS)
    assert model.fingerprint != mark
    assert not np.array_equal(after.base, before.base)
    assert not np.array_equal(after.phi, before.phi)
    model.reset()
    assert model.fingerprint == mark
    assert np.array_equal(model.transform(ITEMS).base, before.base)
    assert model.take(tmp_path / "kept") == kept
    assert np.array_equal(model.transform(ITEMS).base, after.base)


def test_pmi_takes_away_what_an_option_is_worth_alone(folder: Path) -> None:
    """A refit under pmi trains on the same numbers that `scores` gives."""
    model = opened(folder, normalization="pmi")
    model.fit(ITEMS)
    scores = [each / model.temperature for each in model.scores(ITEMS, "pmi")]
    losses = [np.log(np.exp(s - s[1]).sum()) for s in scores]
    still = replace(TRAINING, learning_rate=1e-30, batch_size=3)
    frozen = opened(folder, normalization="pmi", training=still)
    frozen.restore(model.state())
    assert frozen.refit(bought(frozen), 1, None).loss == pytest.approx(
        float(np.mean(losses)), abs=1e-4
    )


def test_cut_items_are_counted_once(folder: Path) -> None:
    model = opened(folder, max_len_prompt=3)
    model.fit(ITEMS)
    model.transform(ITEMS)
    assert model.truncated == 3
    assert opened(folder).truncated == 0


def test_runs_of_a_study_score_the_base_once(folder: Path, tmp_path, monkeypatch) -> None:
    """Bit for bit, also under another seed's adapter; never what a refit has moved."""

    def read(model: LanguageModel) -> tuple[Any, Any]:
        model.fit(ITEMS)
        return model.transform(ITEMS), model.scores(ITEMS, "pmi")

    plain, scores = read(opened(folder))
    with shared_scores(tmp_path / "base"):
        read(opened(folder))
        kept = len(list((tmp_path / "base").iterdir()))
        choices = replace(opened(folder).choices, lora=LoraSettings(rank=3))
        other = LanguageModel(choices, seed=1)
        with monkeypatch.context() as patch:
            patch.setattr(other.worker.likelihood, "_read", None)  # any call would fail
            block, again = read(other)
        assert np.array_equal(block.phi, plain.phi)
        assert np.array_equal(block.base, plain.base)
        assert all(map(np.array_equal, again, scores))
        other.refit(bought(other), 1, None)
        assert other.facts()["lm_path"] == "packed", "known once something was scored"
        assert not np.array_equal(other.transform(ITEMS).base, plain.base)
        assert len(list((tmp_path / "base").iterdir())) == kept
        other.reset()
        assert np.array_equal(other.transform(ITEMS).base, plain.base)
