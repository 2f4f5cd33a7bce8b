"""Examples in the file of classes, from the file to the vectors, and what a run refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stacksl.api import Run
from stacksl.core.blocks import SharedBlock
from stacksl.data import read_classes
from stacksl.errors import DataError
from stacksl.runs.loop.class_names import name_rows
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder

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


def test_an_item_may_be_no_example(tmp_path) -> None:
    text = next(iter(texts_of(write_pool(tmp_path, 60)).values()))
    own = f"bread,{text.upper()}\nsea,\nnight,\n"
    with pytest.raises(DataError, match="1 items of the data have the text of one"):
        begin(tmp_path, classes=listed(tmp_path, own))
    assert not (tmp_path / "run").exists()
    held = tmp_path / "held.csv"
    held.write_text("text,label\nWaves at the  shore,sea\n", encoding="utf-8")
    with pytest.raises(DataError, match="1 items of the test set have the text of one"):
        begin(tmp_path, classes=listed(tmp_path), test=held)
    waiting = begin(tmp_path, classes=listed(tmp_path))
    more = tmp_path / "more.csv"
    more.write_text("id,text\nx,crust and crumb\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"more\.csv have the text of one"):
        waiting.change(items=more)
