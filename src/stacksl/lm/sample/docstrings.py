"""What installed libraries say of their own functions and classes, read without importing them.

Everything comes from the syntax trees of a library's own `.py` files, so nothing is run, nothing
warns, and the result depends on the installed version alone.
"""

from __future__ import annotations

import ast
import contextlib
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Literal, TypeAlias

from stacksl.errors import DataError

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
    found = {}
    for package, distribution in LIBRARIES.items():
        _folder(package)
        found[distribution] = metadata.version(distribution)
    return found


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
