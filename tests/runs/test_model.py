"""The model's folder: saved, loaded, refused; and what a prediction holds."""

from __future__ import annotations

import numpy as np
import pytest

from stacksl.api import run
from stacksl.errors import RunError
from stacksl.files import arrays, formats
from stacksl.models.linear import Model

from .conftest import class_items

FIELDS = {"id", "choice", "index", "probability"}


@pytest.mark.parametrize("which", ["classes", "pairs"])
def test_a_prediction_has_the_refits_probability(request, which) -> None:
    finished = request.getfixturevalue(which)
    model, items = finished.run.model, finished.test[0]
    block = model.features.transform(items)
    policies = model.head.probabilities(block)
    for item, policy, row in zip(items, policies, model.predict(items), strict=True):
        assert set(row) == FIELDS
        assert row["id"] == item.id
        assert row["index"] == int(np.argmax(policy))
        assert row["choice"] == item.candidates[row["index"]]
        assert row["probability"] == float(np.max(policy))
        assert 1 / len(item.candidates) <= row["probability"] <= 1


def test_predictions_do_not_depend_on_their_company(classes) -> None:
    items = classes.test[0]
    model = classes.run.model
    together = {row["id"]: row for row in model.predict(items)}
    alone = next(iter(model.predict(items[7:8])))
    for name, value in alone.items():
        assert together[alone["id"]][name] == (
            pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
        )


@pytest.mark.parametrize("step", [-1, 1])
def test_a_folder_of_another_format_is_refused(classes, spoil, step) -> None:
    path = spoil(classes).path / "model" / "model.json"
    about = formats.from_json(path.read_text())
    other = formats.MODEL + step
    path.write_text(formats.to_json({**about, formats.FORMAT: other}))
    with pytest.raises(RunError, match=f"number {formats.MODEL}, .* {other}: use the"):
        Model.load(path.parent)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("model.json", text) for text in (b"", b'{"format": 1}', b"[" * 100_000)),
        *(("features.safetensors", b""), ("online.safetensors", b"garbage")),
        ("head.safetensors", None),
    ],
)
def test_a_damaged_file_is_a_sentence(classes, spoil, name, damage) -> None:
    path = spoil(classes).path / "model" / name
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    with pytest.raises(RunError, match="cannot be read"):
        Model.load(path.parent)


@pytest.mark.parametrize("written", [0, 2])
def test_a_model_killed_while_it_is_replaced_is_not_read(
    classes, spoil, monkeypatch, written
) -> None:
    class Cut(Exception):
        pass

    again = spoil(classes)
    model, save, left = again.model, arrays.save, [None] * written

    def cut(path, content) -> None:
        if not left:
            raise Cut
        left.pop()
        save(path, content)

    about = formats.from_json((again.path / "model" / "model.json").read_text())
    monkeypatch.setattr(arrays, "save", cut)
    monkeypatch.setattr("stacksl.models.linear.write_atomic", cut)
    with pytest.raises(Cut):
        model.save(again.path / "model", about["scorer_settings"])
    with pytest.raises(RunError, match=r"no model in .*stacksl status"):
        _ = again.model
    monkeypatch.undo()
    again.folder.write_state("finished")
    items = classes.test[0]
    assert [*again.resume().predict(items)] == [*classes.run.predict(items)]


def test_with_fewer_than_two_classes_bought_there_is_no_refit_and_the_run_says_so(tmp_path) -> None:
    items, _ = class_items(30)
    answers = {item.id: 0 for item in items}
    done = run(items, answers, budget=5, class_names=False, out=tmp_path / "run")
    assert done.model.head is None
    assert not (done.path / "model" / "head.safetensors").exists()
    assert "no refit" in (done.path / "report.html").read_text().lower()
    assert all(0 < row["probability"] <= 1 for row in done.predict(items))
