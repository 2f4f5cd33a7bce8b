"""A model that is handed over: the folder's probabilities are those of `predict`."""

from __future__ import annotations

import json
import pydoc_data.topics
import random
import runpy
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import stacksl
from stacksl.api.labeling import write_model
from stacksl.errors import MissingExtra, RunError, SettingsError
from stacksl.features import GivenFeatures, minilm, weights
from stacksl.files import formats
from stacksl.models.portable.folder import write_folder
from stacksl.models.portable.use import Model
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import read_facts

from .conftest import CLASSES, sentence

pytest.importorskip("onnxruntime", reason="the extra 'minilm' is not installed")
pytest.importorskip("onnx", reason="the extra 'minilm' is not installed")
pytestmark = pytest.mark.skipif(
    weights.minilm_lacks(), reason="the weights of 'minilm' are not installed"
)
TOPICS = list(pydoc_data.topics.topics.values())
TEXTS = [
    "flour and an oven",
    ".",
    "日本語 und ein Satz mit ﬁ, İ und Ⅷ",
    "lone \ud800 surrogate",
    "[PAD] [unused0] [CLS] as a text",
    "a bb ccc dddd " * 3,
    *(text[:300] for text in TOPICS[:4]),
    max(TOPICS, key=len)[:3_000],  # three or four parts
]
ALONE = """
import runpy, sys

class Refused:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "stacksl":
            raise AssertionError("stacksl is imported")

sys.meta_path.insert(0, Refused)
sys.argv = sys.argv[1:]
sys.path.insert(0, str(__import__("pathlib").Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name="__main__")
assert "stacksl" not in sys.modules
"""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[stacksl.Run, Path]:
    """A run with `minilm+tokens` whose final model is a mixture, and its folder."""
    rng = random.Random(0)
    topics = [rng.choice(CLASSES) for _ in range(60)]
    made = stacksl.run(
        [f"{sentence(rng, topic)} {n}" for n, topic in enumerate(topics)],
        [CLASSES.index(topic) for topic in topics],
        classes=CLASSES,
        features="sentences:minilm+tokens",
        budget=30,
        out=tmp_path_factory.mktemp("mixed") / "run",
    )
    return made, write_model(made, made.path / "out")


@pytest.fixture(scope="module")
def model(mixed) -> Model:
    """The model of that folder, as its own file loads it."""
    return Model(mixed[1])


def predicted(run: stacksl.Run, texts: list[str], monkeypatch) -> np.ndarray:
    monkeypatch.setenv("STACKSL_NO_CACHE", "1")
    items = [stacksl.Item(f"{n}", text, CLASSES) for n, text in enumerate(texts)]
    return np.array(run.model.policies(items))


def test_probabilities_are_those_of_predict(mixed, monkeypatch) -> None:
    run, out = mixed
    expected = predicted(run, TEXTS, monkeypatch)
    found = stacksl.load(out).probabilities(TEXTS)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert np.ptp(expected, axis=0).max() > 0.1, "the texts differ, and so does what is said"


def test_the_graph_reads_texts_of_several_parts_with_others(mixed, model, monkeypatch) -> None:
    run, _ = mixed
    texts = [TEXTS[-1], "owl", ".", TEXTS[-2]]
    read = model.tokenizer.encode_batch(texts)
    rows = [(n, part) for n, text in enumerate(read) for part in [text, *text.overflowing]]
    fed = {"ids": [p.ids for _, p in rows], "mask": [p.attention_mask for _, p in rows]}
    fed["text"] = [n for n, _ in rows]
    assert fed["text"][:2] == [0, 0]
    (found,) = model.session.run(None, fed)
    np.testing.assert_allclose(found, predicted(run, texts, monkeypatch), rtol=0, atol=1e-5)


@pytest.mark.parametrize("features", ["sentences:minilm", "sentences:minilm+tokens"])
def test_vectors_without_n_grams_are_handed_over(tmp_path, monkeypatch, features: str) -> None:
    """None are wanted, or the texts share none."""
    texts = ["alpha", "river", "stone", "maple", "violin", "copper"]
    given = {"classes": CLASSES, "features": features, "budget": 4, "audit": 0}
    made = stacksl.run(texts, [0, 1, 2] * 2, out=tmp_path / "run", **given)
    if features.endswith("tokens"):
        assert not len(made.model.features.encoder.state()["grams"])
    short = TEXTS[:6]
    there = Model(write_model(made, tmp_path / "out")).probabilities(short)
    assert np.abs(there - predicted(made, short, monkeypatch)).max() < 1e-5


def test_as_many_tokens_are_read_as_by_the_encoder(model, monkeypatch) -> None:
    seen = []

    def noted(names: None, fed: dict[str, list]) -> list:
        seen.append(np.shape(fed["ids"]))
        return [np.zeros((1, len(CLASSES)))]

    monkeypatch.setattr(model.session, "run", noted)
    model.probabilities(["word " * 10_000])
    assert seen == [(minilm.PARTS, minilm.LONGEST)]


def test_both_doors_take_the_same_texts_and_refuse_what_is_none(model) -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    texts = ["an owl", "salt"]
    frame = pandas.DataFrame({"n": [1, 2], "text": texts})
    expected = model.probabilities(texts)
    for data in (frame, frame.text, np.array(texts), tuple(texts)):
        np.testing.assert_array_equal(model.probabilities(data), expected)
    assert model.probabilities("an owl").shape == (1, len(model.about["classes"]))
    holed = frame.assign(text=["an owl", float("nan")])
    wrong = [(holed, 1), (frame[["n"]], 0), (["an owl", 5], 1), (None, 0), (["an owl", " "], 1)]
    for data, row in [*wrong, (7, 0), (texts[:1] * 2 + [texts], 2)]:
        for door in (model.probabilities, model.predict):
            with pytest.raises(ValueError, match=f"'text', item {row} is empty or no text$"):
                door(data)
    assert model.predict([]) == []


def test_use_runs_without_stacksl(mixed, monkeypatch) -> None:
    run, out = mixed
    texts = ["flour dough oven", "owl and moon"]
    expected = list(run.predict(texts))
    script = [sys.executable, "-I", "-c", ALONE, str(out / "use.py")]
    said = subprocess.run([*script, *texts], capture_output=True, check=True, text=True).stdout
    rows = [line.split("\t") for line in said.splitlines()]
    assert [row[0] for row in rows] == [row["choice"] for row in expected]
    for (_, number), row in zip(rows, expected, strict=True):
        assert float(number) == pytest.approx(row["probability"], abs=1e-5)
    lines = "\n".join([*texts, "a form feed \x0c and \u2028 more\r", "", "with "]).encode()
    lines += b"\xff, no end of line"
    again = subprocess.run(script, input=lines, capture_output=True, check=True).stdout
    *same, first, empty, third = again.splitlines()  # only the end of a line ends a text
    assert same == said.encode().splitlines()
    assert (b"\t" in first, empty, b"\t" in third) == (True, b"", True)


def test_a_loaded_model_predicts_as_the_run(mixed) -> None:
    pandas = pytest.importorskip("pandas")
    run, out = mixed
    texts = ["flour dough oven", "owl and moon"]
    model = stacksl.load(out)
    rows = model.predict(texts)
    assert list(rows[0]) == ["choice", "index", "probability"]
    for row, expected in zip(rows, run.predict(texts), strict=True):
        probability = pytest.approx(expected["probability"], abs=1e-5)
        assert row == {**{name: expected[name] for name in row}, "probability": probability}
    assert model.predict(pandas.DataFrame({"text": texts}, index=[5, 7])) == rows
    assert model.about["classes"] == list(CLASSES)
    assert model.predict(texts[0]) == model.predict(texts[:1]), "a text is no list of characters"


def test_mlflow_loads_the_folder(mixed, model) -> None:
    pandas = pytest.importorskip("pandas")
    _, out = mixed
    flavor = (out / "MLmodel").read_text(encoding="utf-8")
    assert "loader_module: use\n" in flavor
    use = runpy.run_path(str(out / "use.py"))
    frame = pandas.DataFrame({"text": ["owl", "salt"]})
    assert use["_load_pyfunc"](str(out)).predict(frame) == model.predict(["owl", "salt"])


def test_the_threshold_of_a_share_goes_along_into_an_empty_folder(mixed, tmp_path) -> None:
    run, out = mixed
    (tmp_path / "out").mkdir()
    right = {0.8: 0.5, 0.9: 0.75, 0.95: 0.75}
    write_folder(tmp_path / "out", run.model, read_facts(run.folder), right)
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {*files_of(out)}
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    sure = "At least 95% of its labels with a probability of 0.750000 or more are right; each such"
    assert f"{sure} threshold holds with 95% confidence" in card
    assert (card.count("0.500000"), card.count("0.750000")) == (1, 1), "95% right says 90% as well"


def test_what_cannot_be_handed_over_is_refused(
    mixed, classes, pairs, tmp_path, monkeypatch
) -> None:
    run, _ = mixed
    facts = read_facts(run.folder)
    refused = {
        "ONNX has no operator for.*classes, a refit and 'hashing'": classes.run.model,
        "another encoder runs on torch, .*, a refit and 'sentences:other'": replace(
            run.model, features=SimpleNamespace(spec="sentences:other")
        ),
        "classes, a refit and 'given'": replace(run.model, features=GivenFeatures(3)),
        r"classes, no refit and 'sentences:minilm\+tokens'": replace(run.model, head=None),
        "options for each item, a refit and": pairs.run.model,
    }
    for words, model in refused.items():
        with pytest.raises(SettingsError, match=words):
            write_folder(tmp_path / "out", model, facts, {})
    monkeypatch.setattr("stacksl.models.adapted.is_adapted", lambda folder: True)
    with pytest.raises(SettingsError, match="PEFT loads its folder .* without stacksl"):
        write_model(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_package_that_is_missing_is_named(mixed, tmp_path, monkeypatch) -> None:
    run, out = mixed
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtra, match=r"of which onnx is not installed: pip install"):
        write_model(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    monkeypatch.delitem(sys.modules, "stacksl.models.portable.use", raising=False)
    monkeypatch.delattr("stacksl.models.portable.use", raising=False)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    needed = r"stacksl\.load needs the extra 'minilm' of which onnxruntime is not installed: pip"
    with pytest.raises(MissingExtra, match=needed):
        stacksl.load(out)


def files_of(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


def test_a_folder_is_never_overwritten(mixed) -> None:
    run, out = mixed
    before = files_of(out)
    with pytest.raises(RunError, match="is not empty"):
        write_model(run, out)
    assert files_of(out) == before


def test_what_is_no_such_folder_is_refused(mixed, tmp_path) -> None:
    run, handed = mixed
    with pytest.raises(RunError, match=r"No such file.*export RUN --model OUT` writes one"):
        stacksl.load(run.path)
    with pytest.raises(RunError, match="Not a directory"):
        stacksl.load(handed / "use.py")
    out = shutil.copytree(handed, tmp_path / "out")
    (out / "use.py").write_text("raise SystemExit\n", encoding="utf-8")
    with pytest.raises(RunError, match=r"use\.py does not match its SHA-256"):
        stacksl.load(out)
    shutil.copy(handed / "use.py", out / "use.py")
    (out / "README.md").write_text("Edited before it is published.\n", encoding="utf-8")
    assert stacksl.load(out).about["classes"]
    (out / "use.py").unlink()
    with pytest.raises(RunError, match=r"No such file.*use\.py"):
        stacksl.load(out)
    about = json.loads((out / "stacksl.json").read_text(encoding="utf-8"))
    for damaged in ("{", "[]", json.dumps({**about, "classes": 3}), "[" * 100_000, "{}"):
        (out / "stacksl.json").write_text(damaged, encoding="utf-8")
        with pytest.raises(RunError, match="holds no whole model"):
            stacksl.load(out)
    newer = formats.to_json({**formats.verified(about), formats.FORMAT: 99})
    (out / "stacksl.json").write_text(newer, encoding="utf-8")
    with pytest.raises(RunError, match="should have the format number 3"):
        stacksl.load(out)


def test_the_card_names_no_text_and_a_license(mixed) -> None:
    run, out = mixed
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "python use.py" in card
    assert "Apache-2.0" in card
    assert "Run.open" not in card
    prompts = [item.prompt for item in RunSpec.open(run.folder).dataset.items]
    assert prompts
    assert not any(prompt in card for prompt in prompts)
