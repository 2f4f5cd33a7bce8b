"""The sample model's questions: true, fair, the same everywhere, and made without imports."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from stacksl.data.dataset import Dataset
from stacksl.errors import DataError, MissingExtra
from stacksl.types import Item
from stacksl_lab.sample import questions as module
from stacksl_lab.sample.questions import Described, described, give_away, made_from, questions

from ..once import made_once, shared_folder

pytest.importorskip("tokenizers", reason="tokenizers is not installed (the extra lm)")

Sets = tuple[Dataset, Dataset]


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    return made_once(shared_folder(tmp_path_factory), questions)


def query_of(item: Item) -> tuple[str, str]:
    """Sentence and keyword of an item."""
    found = re.fullmatch(r"# ([^\n]+)\n(def|class)", item.prompt)
    assert found, item.prompt
    return found[1], found[2]


def gold(side: Dataset, item: Item) -> str:
    return item.candidates[side.answers[item.id]].removesuffix("(")


@pytest.mark.slow
def test_the_set_is_large_says_nothing_twice_and_gives_no_answer_away(sets: Sets) -> None:
    to_label, test = sets
    stated = "-".join(f"{name}-{version}" for name, version in made_from().items())
    assert [side.name for side in sets] == [f"docstrings-{stated}", f"docstrings-{stated}-test"]
    assert len(to_label.items) >= 2000
    assert len(test.items) >= 500
    pairs = [(gold(side, item), query_of(item)[0], item.id) for side in sets for item in side.items]
    for values in zip(*pairs, strict=True):
        assert len(set(values)) == len(pairs)
    for side in sets:
        assert side.format == "sample:options"
        assert side.classes is None
        assert set(side.answers) == {item.id for item in side.items}
        for item in side.items:
            sentence = re.sub(r"[\W_]", "", query_of(item)[0].lower())
            assert len(set(item.candidates)) == 4
            for text in item.candidates:
                assert re.fullmatch(r"[A-Za-z]\w*\(", text)
                assert re.sub(r"[\W_]", "", text.lower()) not in sentence


@pytest.mark.slow
def test_wrong_names_are_answers_of_the_same_library_kind_and_side(sets: Sets) -> None:
    for side in sets:
        kinds = {gold(side, item): (item.id[16:], query_of(item)[1]) for item in side.items}
        known = [
            (kinds[gold(side, i)], [kinds.get(c[:-1]) for c in i.candidates]) for i in side.items
        ]
        right = [kind == own for own, found in known for kind in found if kind is not None]
        assert all(right)
        # a name that its group left without three others is a candidate but no answer: rare
        assert len(right) > 0.99 * 4 * len(side.items)


def test_another_process_makes_the_same_without_loading_the_libraries(monkeypatch) -> None:
    """Of one library, which takes a sixth of the time of all three."""
    few = {"numpy": "numpy"}
    code = (
        "import sys; from hashlib import sha256;"
        "from stacksl_lab.sample import questions as module;"
        f"module.LIBRARIES = {few};"
        "sets = module.questions();"
        "assert not {'torch', 'transformers', 'scipy', 'sklearn'} & set(sys.modules);"
        "print(sha256(repr(sets).encode()).hexdigest())"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    monkeypatch.setattr(module, "LIBRARIES", few)
    made = questions.__wrapped__()
    assert len(made[0].items) > 100
    assert run.stdout.strip() == sha256(repr(made).encode()).hexdigest()
    assert not run.stderr


@pytest.mark.parametrize(
    ("name", "sentence", "told"),
    [
        ("khatri_rao", "Khatri-Rao product of two matrices.", True),
        ("trapezoid", "Integrate by the composite trapezoidal rule.", True),
        ("NMF", "Non-negative factorization (NMF).", True),
        ("sort_complex", "Sort a complex array.", False),
        ("vdot", "Return the dot product of two vectors.", False),
    ],
)
def test_what_gives_a_name_away(name: str, sentence: str, told: bool) -> None:
    assert give_away(name, sentence) is told


PACKAGE = '''
"""The module's own."""
raise RuntimeError("this module must not be imported")

def plain(x):
    """plain(x) -> y

    What the function
    does, with an \\escape.

    More.
    """

async def later(): "Wait for it."
def silent(): pass
def _hidden(): """Nobody asks for it."""
def headed():
    """
    Parameters
    ----------
    x : int
    """

class Shown:
    """A thing that is shown."""
    def method(self):
        """A method comes last."""
    def __len__(self):
        """Never."""

class _Hidden:
    """Never."""
    def method_of_hidden(self):
        """Never."""

add_newdoc("pkg.core", "compiled", """compiled(a, b=(1, 2), /) -- compiled(a) The sum of both.""")
add_newdoc("pkg.core", "constant", """A number.""")
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    root = tmp_path / "questioned"
    (root / "tests").mkdir(parents=True)
    (root / "__init__.py").write_text(PACKAGE)
    (root / "broken.py").write_text('def no(: """never"""')
    (root / "tests" / "test_it.py").write_text('def test_it():\n    """A test of it."""\n')
    (root / "zeta.py").write_text('def zeta():\n    """.. deprecated:: 1\n\n    The function."""\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    return root.name


def test_docstrings_are_read_and_nothing_is_run(package: str) -> None:
    def one(kind: module.Kind, name: str, sentence: str) -> Described:
        return Described(package, kind, name, sentence)

    assert list(described(package)) == [
        one("def", "plain", "What the function does, with an \\escape."),
        one("def", "later", "Wait for it."),
        one("class", "Shown", "A thing that is shown."),
        one("def", "compiled", "The sum of both."),
        one("def", "zeta", "The function."),
        one("def", "method", "A method comes last."),
    ]
    assert package not in sys.modules


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^the sample model's tokenizer is not at .*install"):
        module._counter(tmp_path / "tokenizer.json")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "tokenizers", None)
        with pytest.raises(MissingExtra, match=r"stacksl\[lm\]"):
            questions.__wrapped__()
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "sklearn" else find(name)
    )
    with pytest.raises(DataError, match="scikit-learn, which is not installed: pip install"):
        made_from()
