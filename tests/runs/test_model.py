"""The model's folder: saved, loaded, refused; and what a prediction holds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stacksl import Item
from stacksl.api import run
from stacksl.errors import DataError, RunError
from stacksl.files import arrays, formats
from stacksl.models.linear import Model

from .conftest import CLASSES, class_items

FIELDS = {
    "id", "choice", "index", "probability", "online_choice", "score", "lower", "upper",
}  # fmt: skip


@pytest.mark.parametrize("which", ["classes", "pairs"])
def test_a_model_saved_again_is_the_same_bytes(request, tmp_path, which) -> None:
    finished = request.getfixturevalue(which)
    folder = finished.run.path / "model"
    model = Model.load(folder)
    about = json.loads((folder / "model.json").read_text())
    model.save(tmp_path, about["scorer_settings"])
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {
        p.name: p.read_bytes() for p in folder.iterdir()
    }
    items = finished.test[0]
    assert [*Model.load(tmp_path).predict(items)] == [*model.predict(items)]


@pytest.mark.parametrize("which", ["classes", "pairs"])
def test_a_prediction_has_the_refits_probability_and_the_online_bounds(request, which) -> None:
    finished = request.getfixturevalue(which)
    model, items = finished.run.model, finished.test[0]
    block = model.features.transform(items)
    assert model.head is not None
    for item, inputs, policy, row in zip(
        items, block, model.head.probabilities(block), model.predict(items), strict=True
    ):
        assert set(row) == FIELDS
        assert row["id"] == item.id
        assert row["index"] == int(np.argmax(policy))
        assert row["choice"] == item.candidates[row["index"]]
        assert row["probability"] == float(np.max(policy))
        assert 1 / len(item.candidates) <= row["probability"] <= 1
        view = model.scorer.bounds(inputs, tuple(range(len(item.candidates))))
        assert row["online_choice"] == item.candidates[view.choice]
        assert row["lower"] <= row["score"] <= row["upper"]
        assert row["upper"] - row["score"] == pytest.approx(view.radius * view.widths[view.choice])


def test_predictions_do_not_depend_on_their_company(classes) -> None:
    items = classes.test[0]
    model = classes.run.model
    together = {row["id"]: row for row in model.predict(items)}
    alone = next(iter(model.predict(items[7:8])))
    for name, value in alone.items():
        assert together[alone["id"]][name] == (
            pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
        )


def test_the_model_knows_more_than_chance(classes) -> None:
    items, answers = classes.test
    right = np.mean([row["index"] == answers[row["id"]] for row in classes.run.predict(items)])
    assert right > 0.6, "a third by chance, and the topics' words are disjoint"


@pytest.mark.parametrize("step", [-1, 1])
def test_a_folder_of_another_format_is_refused(classes, spoil, step) -> None:
    path = spoil(classes).path / "model" / "model.json"
    about = formats.from_json(path.read_text())
    other = formats.MODEL + step
    path.write_text(formats.to_json({**about, formats.FORMAT: other}))
    with pytest.raises(RunError, match=f"number {formats.MODEL}, .* {other}: use the"):
        Model.load(path.parent)


@pytest.mark.parametrize("text", ["", "[]", '{"format": 1}', '{"sha256": "x"}', "[" * 100_000])
def test_a_damaged_description_is_a_sentence(classes, spoil, text) -> None:
    path = spoil(classes).path / "model" / "model.json"
    path.write_text(text)
    with pytest.raises(RunError, match=r"model\.json cannot be read"):
        Model.load(path.parent)


@pytest.mark.parametrize("name", ["features", "online", "head"])
@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_damaged_arrays_are_a_sentence(classes, spoil, name, damage) -> None:
    path = spoil(classes).path / "model" / f"{name}.safetensors"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    with pytest.raises(RunError, match="cannot be read"):
        Model.load(path.parent)


def test_arrays_of_another_model_are_a_sentence(classes, pairs, spoil) -> None:
    from stacksl.errors import StackslError

    folder = spoil(classes).path / "model"
    for name in ("online", "features"):
        mine = folder / f"{name}.safetensors"
        kept = mine.read_bytes()
        mine.write_bytes((pairs.run.path / "model" / mine.name).read_bytes())
        with pytest.raises(StackslError):
            Model.load(folder)
        mine.write_bytes(kept)


def test_there_is_no_model_before_the_end(classes, spoil) -> None:
    again = spoil(classes)
    (again.path / "model" / "model.json").unlink()
    with pytest.raises(RunError, match="stacksl resume"):
        _ = again.model


@pytest.mark.parametrize("written", [0, 1, 2, 3])
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
    with pytest.raises(RunError, match=r"no model in .*stacksl resume"):
        _ = again.model
    monkeypatch.undo()
    again.folder.write_state("finished")
    items = classes.test[0]
    assert [*again.resume().predict(items)] == [*classes.run.predict(items)]


def test_other_candidates_than_the_models_classes_are_refused(classes) -> None:
    for wrong in (("bread", "sea"), ("sea", "bread", "night"), (*CLASSES, "day")):
        with pytest.raises(DataError, match="item 'x'.*classes of the data in their order"):
            classes.run.predict([Item("x", "wave", wrong)])


def test_with_fewer_than_two_classes_bought_there_is_no_refit_and_the_run_says_so(tmp_path) -> None:
    items, _ = class_items(30)
    answers = {item.id: 0 for item in items}
    done = run(items, answers, budget=5, names=False, out=tmp_path / "run")
    assert done.model.head is None
    assert not (done.path / "model" / "head.safetensors").exists()
    assert "no refit" in (done.path / "report.html").read_text().lower()
    assert all(0 < row["probability"] <= 1 for row in done.predict(items))


def test_class_names_make_a_refit_where_one_class_alone_was_bought(tmp_path) -> None:
    items, _ = class_items(30)
    done = run(items, {item.id: 0 for item in items}, budget=5, out=tmp_path / "run")
    assert done.model.head is not None
    bought = {row.item for row in done.ledger.rows() if row.event == "answered"}
    predicted = done.predict([item for item in items if item.id in bought])
    assert [row["choice"] for row in predicted] == [CLASSES[0]] * 5


def test_the_papers_preset_ends_with_the_last_theta(tmp_path) -> None:
    items, answers = class_items(40)
    done = run(items, answers, preset="paper", budget=10, out=tmp_path / "run")
    assert done.model.head is None
    row = next(iter(done.predict(items)))
    assert row["choice"] is not None
    assert not any(r.event == "refit" for r in done.ledger.rows())
