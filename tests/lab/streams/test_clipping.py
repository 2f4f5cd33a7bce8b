"""`clipping`: losses, levels and paired changes against their definitions."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from stacksl.core.losses import cross_entropy
from stacksl_lab.engines import run_stream
from stacksl_lab.streams.clipping import CLIPPING, CLIPS, clipped, levels, losses, trials
from stacksl_lab.study.study import Line
from stacksl_lab.synthetic import playing
from stacksl_lab.synthetic.streams import heavy_stream


@pytest.fixture(autouse=True)
def by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "run_stream", partial(run_stream, engine="loop"))


def line(name: str, rate: float = 1.0) -> Line:
    return Line(name, {"clip": dict(CLIPS[name]), "learning_rate": rate, "name": name}, 1.0)


def test_a_loss_is_the_cross_entropy_before_its_round() -> None:
    source = heavy_stream(1, rounds=40, share=0.1)
    played = playing.play(
        source, {"name": "always"}, 40, scorer="sgd", marks=range(1, 41),
        settings={"kl_weight": 0.0, "clip": "none", "learning_rate": 1.0},
    )  # fmt: skip
    found = losses(source, played)
    assert found[0] == pytest.approx(np.log(4.0)), "θ = 0"
    for t in (1, 17, 39):
        scores = source.features[t] @ played.marks[t - 1].theta
        assert found[t] == pytest.approx(cross_entropy(scores, int(source.labels[t]))[0])


@pytest.mark.parametrize("name", list(CLIPS))
def test_the_levels_are_the_scorers_own(name: str) -> None:
    """As many losses lie above the replayed ρ as the scorer counted."""
    source = heavy_stream(2, rounds=300, share=0.1)
    numbers = clipped(source, line(name, 10.0), 0)
    played = playing.play(
        source, {"name": "always"}, 300, scorer="sgd", marks=range(1, 301),
        settings={"kl_weight": 0.0, "learning_rate": 10.0, **CLIPS[name]},
    )  # fmt: skip
    found = losses(source, played)
    rho = levels(found, CLIPS[name])
    assert (found > rho).sum() == played.clipped == round((numbers["clipped"] or 0) * 300)
    assert numbers["max_loss"] == pytest.approx(found.max())
    assert numbers["max_after"] == pytest.approx(np.minimum(found, rho).max())
    assert (played.clipped > 0) == (name != "no ρ")


def test_a_level_waits_for_twenty_losses_and_forgets_after_two_hundred() -> None:
    found = np.concatenate([np.full(20, 1.0), np.full(300, 2.0)])
    rho = levels(found, CLIPS["ρ = 3 medians, scaled"])
    assert np.isinf(rho[:20]).all()
    assert rho[20] == 3.0
    assert rho[-1] == 6.0


def made_up(seeds: int = 3) -> dict[str, list[dict[str, float]]]:
    metrics = list(CLIPPING.metrics)
    return {
        one.row: [
            {m: float(seed + (m == "accuracy") * (one.settings["name"] != "no ρ")) for m in metrics}
            for seed in range(seeds)
        ]
        for trial in trials(True) for one in trial.lines
    }  # fmt: skip


def test_changes_are_paired_by_seed() -> None:
    rows = CLIPPING.rows_from(made_up(), quick=True)
    changes = {
        row.metric: row for row in rows if row.row == "2% wrong, η = 1, ρ = 5, gradient scaled"
    }
    assert (changes["accuracy_change"].value, changes["accuracy_change"].se) == (1.0, 0.0)
    assert (changes["max_loss_change"].value, changes["max_loss_change"].se) == (0.0, 0.0)
    assert changes["max_loss"].value == 1.0
