"""The sample model's own questions: which function does this sentence describe?

The sentences are the first paragraphs of docstrings in the installed NumPy, SciPy and
scikit-learn, which the sample model was not pretrained on; the candidates are four names of the
same length in its tokens. So the set is real, needs no download, and its answer is known. They are
read from the syntax trees of the libraries' own files, so nothing is run and nothing warns.
"""

from __future__ import annotations

import ast
import contextlib
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib import metadata, util
from itertools import islice
from pathlib import Path
from typing import Literal, TypeAlias

from stacksl.core.rng import generator
from stacksl.data.dataset import Dataset
from stacksl.errors import DataError, MissingExtra
from stacksl.types import Item

TEMPLATE = "plain"
"""The template the questions are made for: their prompts are finished as they are."""

CANDIDATES = 4
TEST_SHARE = 0.25
_SEED = 20_260_101
_SHORTEST, _LONGEST = 15, 300  # characters of a sentence, as in pretraining
_SAMPLE = Path(__file__).parent


@cache
def questions() -> tuple[Dataset, Dataset]:
    """The multiple-choice set of the sample model as two datasets: (to label, to test on).

    An item's prompt is `# SENTENCE` and, on the next line, `def` or `class`; its candidates are
    four names with an opening bracket, `NAME(`. With the template `plain` the model therefore
    reads the text it would find in a source file. Use `TEMPLATE`: the default one adds "Answer:".

    Which items there are: a name counts once over the three libraries and a sentence once; the
    sentence has 15 to 300 characters and does not give the name away (`give_away`). The three
    wrong names are drawn from the same library, kind (class or not), number of tokens and side of
    the split, among those that the sentence does not give away either. Every name of such a group
    is the answer of one item, so the names alone say nothing.

    One name in four is to test on, by a hash of the name, so that it stays there under every
    version of the libraries; `made_from` has the installed ones, and so has the dataset's name.
    Wrong names and the order of candidates come from a constant seed and the name, the order of
    items from the name.

    Raises:
        DataError: one of the libraries or the sample's tokenizer is missing.
        MissingExtra: `tokenizers` is not installed.
    """
    tokens = _counter(_SAMPLE / "tokenizer.json")
    symbols = [symbol for package in LIBRARIES for symbol in described(package)]
    groups: dict[tuple[str, str, int, bool], list[Described]] = defaultdict(list)
    for symbol in _once(symbols):
        held = _draw(symbol.name) < TEST_SHARE
        groups[symbol.library, symbol.kind, tokens(symbol.name), held].append(symbol)
    rows: dict[bool, list[tuple[Item, int]]] = {False: [], True: []}
    for (_, _, _, held), group in groups.items():
        rows[held].extend(_asked(group))
    name = "docstrings-" + "-".join(f"{key}-{value}" for key, value in made_from().items())
    return _dataset(name, rows[False]), _dataset(f"{name}-test", rows[True])


def give_away(name: str, sentence: str) -> bool:
    """Whether a sentence spells a name out, as it is or run together; case and marks do not count.

    A name whose words, or their stems, stand apart in the sentence is fair: reading them out of a
    description is what there is to know.

    >>> give_away("LogisticRegression", "Logistic regression (aka logit) classifier.")
    True
    >>> give_away("sort_complex", "Sort a complex array by its real part first.")
    False
    """
    return _bare(name) in _bare(sentence)


def _bare(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))


def _once(symbols: Iterable[Described]) -> list[Described]:
    """The usable ones; of a name or a sentence that is repeated, the first."""
    names, sentences, usable = set(), set(), []
    for symbol in symbols:
        fits = _SHORTEST <= len(symbol.sentence) <= _LONGEST
        new = symbol.name not in names and _bare(symbol.sentence) not in sentences
        if fits and new and not give_away(symbol.name, symbol.sentence):
            names.add(symbol.name)
            sentences.add(_bare(symbol.sentence))
            usable.append(symbol)
    return usable


def _asked(group: Sequence[Described]) -> list[tuple[Item, int]]:
    """An item and the index of its answer for each of a group that has three other names."""
    rows = []
    names = sorted(symbol.name for symbol in group)
    for symbol in sorted(group, key=lambda symbol: symbol.name):
        rng = generator(_SEED, "questions", _hash(symbol.name))
        others = (names[index] for index in rng.permutation(len(names)))
        fair = (n for n in others if n != symbol.name and not give_away(n, symbol.sentence))
        texts = [symbol.name, *islice(fair, CANDIDATES - 1)]
        if len(texts) < CANDIDATES:
            continue
        order = rng.permutation(CANDIDATES)
        item = Item(
            f"{_hash(symbol.name):016x}-{symbol.library}",
            f"# {symbol.sentence}\n{symbol.kind}",
            tuple(f"{texts[index]}(" for index in order),
        )
        rows.append((item, order.tolist().index(0)))
    return rows


def _counter(file: Path) -> Callable[[str], int]:
    """The number of tokens of a name where it follows `def`, by the tokenizer in `file`."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtra.of("the sample model's questions", "lm") from None
    if not file.is_file():
        raise DataError(
            f"the sample model's tokenizer is not at {file}, so that its questions cannot be "
            "made: install stacksl again"
        )
    tokenizer = Tokenizer.from_file(str(file))
    return lambda name: len(tokenizer.encode(f" {name}(", add_special_tokens=False).ids)


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest())


def _draw(name: str) -> float:
    """A number in [0, 1) that depends on the name alone."""
    return _hash(name) / 2.0**64


def _dataset(name: str, rows: list[tuple[Item, int]]) -> Dataset:
    rows = sorted(rows, key=lambda row: row[0].id)
    return Dataset(
        name=name,
        format="sample:options",
        items=tuple(item for item, _ in rows),
        answers={item.id: answer for item, answer in rows},
    )


Kind: TypeAlias = Literal["def", "class"]

LIBRARIES = {"numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn"}
"""Package to distribution: what is read, in this order."""

# tests, examples, builds; parts of other projects; what repeats the standard library
_LEFT_OUT = {
    "tests", "_test_common", "_examples", "_build_utils", "_pyinstaller",
    "externals", "_lib", "_external", "distutils", "_inspect.py",
}  # fmt: skip
_HEADING = re.compile(r"[^\n]+\n\s*[-=]{3,}\s*(\n|$)")  # of a section: without a sentence before it
_REGISTRARS = {"add_newdoc", "_add_newdoc", "add_docstring"}


@dataclass(frozen=True, slots=True)
class Described:
    """A public function, method or class and the first paragraph of its docstring, in one line."""

    library: str
    kind: Kind
    name: str
    sentence: str


def made_from() -> dict[str, str]:
    """The versions of the three libraries that are read, by distribution.

    Raises:
        DataError: one of them is not installed.
    """
    versions = {}
    for package, distribution in LIBRARIES.items():
        _folder(package)
        versions[distribution] = metadata.version(distribution)
    return versions


def described(package: str) -> Iterator[Described]:
    """The public functions, classes and methods of `package`: methods last, else file by file.

    Left out are names that begin with an underscore, methods of such classes, and what has no
    docstring. Compiled functions come from the files that register their docstrings
    (`add_newdoc`). A name is given as often as it is defined.

    Raises:
        DataError: the package is not installed.
    """
    root = _folder(package)
    methods: list[Described] = []
    for path in sorted(root.rglob("*.py"), key=Path.as_posix):
        if _LEFT_OUT.isdisjoint(path.relative_to(root).parts):
            tree = _tree(path)
            yield from _read(package, tree.body)
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    methods.extend(_read(package, node.body))
    yield from methods


def _folder(package: str) -> Path:
    spec = util.find_spec(package)  # a name without a dot: found, not imported
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"the sample model's questions are made from {LIBRARIES[package]}, which is not "
            f"installed: pip install {LIBRARIES[package]}"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _tree(path: Path) -> ast.Module:
    """The syntax tree of a file; an empty one where it holds no docstring or is no Python."""
    source = path.read_bytes()
    if b'"""' in source:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes in other people's strings
            with contextlib.suppress(SyntaxError, ValueError):
                return ast.parse(source)
    return ast.Module([], [])


def _read(package: str, body: list[ast.stmt]) -> Iterator[Described]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            kind: Kind = "class" if isinstance(node, ast.ClassDef) else "def"
            name, text = node.name, ast.get_docstring(node) or ""
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            kind, (name, text) = "def", _registered(node.value)
        else:
            continue
        sentence = "" if name.startswith("_") else _first(text, name)
        if sentence:
            yield Described(package, kind, name, sentence)


def _registered(call: ast.Call) -> tuple[str, str]:
    """Name and docstring of the compiled function that `add_newdoc(..., name, text)` describes.

    A docstring that does not open with a signature is a class's or a constant's: left out.
    """
    values = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
    strings = [value for value in values if isinstance(value, str)]
    called = getattr(call.func, "id", getattr(call.func, "attr", None))
    if called in _REGISTRARS and 2 <= len(strings) == len(call.args):
        name, text = strings[-2:]
        if text.lstrip().startswith(f"{name}("):
            return name, text
    return "", ""


def _first(docstring: str, name: str) -> str:
    """The first paragraph in one line, the signatures and marks in front of it left out."""
    for paragraph in re.split(r"\n[ \t]*\n", docstring.strip()):
        line = " ".join(paragraph.split())
        while line.startswith(f"{name}("):
            line = _past(line)
        if _HEADING.match(paragraph):
            return ""
        if line and not line.startswith((".. ", "--")):
            return line
    return ""


def _past(line: str) -> str:
    """What follows the signature that a line begins with."""
    depth = 0
    for place, mark in enumerate(line):
        depth += (mark == "(") - (mark == ")")
        if depth == 0 and mark == ")":
            return re.sub(r"^( -> \S+(, \S+)*)?( --)?", "", line[place + 1 :]).strip()
    return ""
