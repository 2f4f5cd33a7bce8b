"""Examples in the file of classes, from the file to the vectors, and what a run refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stacksl.api import Run
from stacksl.core.blocks import SharedBlock
from stacksl.data import read_classes
from stacksl.errors import DataError
from stacksl.runs.changes.forgetting import forget
from stacksl.runs.loop.class_names import name_rows
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder

from ..ledgers import bought, verify
from .conftest import CLASSES
from .people_cases import begin, play, texts_of, write_pool

EXAMPLES = "bread,a loaf from the oven|crust and crumb\nsea,waves at the shore\nnight,\n"


class Letters:
    """A feature map that counts the letters a to d, in rows of norm at most 1."""

    def transform(self, items, progress=None):
        h = np.array([[i.prompt.count(c) for c in "abcd"] for i in items], dtype=np.float32)
        norms = np.linalg.norm(h, axis=1, keepdims=True)
        return SharedBlock(h / np.where(norms > 0, norms, 1), len(items[0].candidates))


def listed(folder: Path, text: str = EXAMPLES) -> str:
    (folder / "with.csv").write_text(f"name,examples\n{text}", encoding="utf-8")
    return str(folder / "with.csv")


def test_a_class_is_the_mean_of_its_name_and_examples(tmp_path) -> None:
    kept = tmp_path / "names.safetensors"
    rows = name_rows(Letters(), ["a", "b"], kept, (("c", "c"), ()))
    np.testing.assert_allclose(rows[0], [1 / 3, 0, 2 / 3, 0], atol=1e-6)
    np.testing.assert_array_equal(rows[1], [0, 1, 0, 0])
    again = name_rows(None, ["a", "b"], kept, (("c", "c"), ()))
    np.testing.assert_array_equal(again, rows)
    assert len(name_rows(Letters(), ["a", "b", "ab"], kept)) == 3, "another set of names"
    moved = name_rows(Letters(), ["a", "b"], kept, ((), ("c", "c")))
    np.testing.assert_array_equal(moved[0], [1, 0, 0, 0])
    names = name_rows(Letters(), ["aab", "cd"])
    np.testing.assert_array_equal(name_rows(Letters(), ["aab", "cd"], examples=((), ())), names)


def test_examples_stay_with_a_run_to_its_end(tmp_path) -> None:
    waiting = begin(tmp_path, classes=listed(tmp_path), class_names=True)
    given = waiting.folder.classes()
    assert given == read_classes(listed(tmp_path))
    assert given.examples == (
        ("a loaf from the oven", "crust and crumb"), ("waves at the shore",), (),
    )  # fmt: skip
    assert RunSpec.open(RunFolder(waiting.path)).sources.given == given
    (tmp_path / "plain").mkdir()
    plain = begin(tmp_path / "plain", class_names=True)
    kept = [(r.path / "features" / "names.safetensors").read_bytes() for r in (waiting, plain)]
    assert kept[0] != kept[1], "the vectors of the classes are others"
    waiting.change(classes={"rain": "wet"})
    after = RunSpec.open(RunFolder(waiting.path)).sources.classes
    assert after.names == (*CLASSES, "rain")
    assert after.examples == (*given.examples, ())
    done = play(Run(waiting.path))
    assert done.replay()["labels"] > 0


def test_an_item_that_is_an_example_is_excluded_and_forgotten_with_it(tmp_path) -> None:
    texts = texts_of(write_pool(tmp_path, 60))
    own = list(texts)[:20]
    lines = "".join(f"{texts[i].upper()}|" for i in own)
    waiting = begin(tmp_path, classes=listed(tmp_path, f"bread,{lines}\nsea,\nnight,\n"), audit=4)
    assert RunSpec.open(RunFolder(waiting.path)).sources.excluded == frozenset(range(20))
    done = play(waiting)
    assert not set(own) & {each["item"] for each in bought(done)}, "nobody was asked"
    assert done.status()["audit"]["n"] == 4
    held = texts[own[0]].upper().encode()
    assert held in (done.path / "run.db").read_bytes()
    forget(done.path, own[0])
    assert held not in b"".join(f.read_bytes() for f in done.path.rglob("*") if f.is_file())
    assert len(done.folder.classes().examples[0]) == 19
    done.resume()
    verify(done)


def test_a_test_item_may_be_no_example(tmp_path) -> None:
    held = tmp_path / "held.csv"
    held.write_text("text,label\nWaves at the  shore,sea\n", encoding="utf-8")
    with pytest.raises(DataError, match="an example of a class, got 1, the first is row-0"):
        begin(tmp_path, classes=listed(tmp_path), test=held)
    assert not (tmp_path / "run").exists()
