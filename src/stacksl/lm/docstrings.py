"""What installed libraries say of their own functions and classes, read without importing them.

Everything comes from the syntax trees of a library's own `.py` files, so nothing is run, nothing
warns, and the outcome hangs on the installed version alone.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Literal, TypeAlias

from ..errors import DataError

__all__ = ["LIBRARIES", "Described", "Kind", "described", "versions"]

Kind: TypeAlias = Literal["def", "class"]

LIBRARIES = {"numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn"}
"""Package to distribution: what is read, in this order."""

# tests, examples and builds; parts of other projects; what repeats the standard library
_LEFT_OUT = {
    "tests", "_test_common", "_examples", "_build_utils", "_pyinstaller",
    "externals", "_lib", "_external", "distutils",
}  # fmt: skip
_REGISTRARS = {"add_newdoc", "_add_newdoc", "add_docstring"}
_SIGNATURE = re.compile(r"[\w.]+\(.*\)(\s*->.*)?|--", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Described:
    """A public function or class and the first paragraph of its docstring, in one line."""

    library: str
    kind: Kind
    name: str
    sentence: str


def versions() -> dict[str, str]:
    """Distribution to installed version, for the three libraries that are read.

    Raises:
        DataError: one of them is not installed.
    """
    found = {}
    for package, distribution in LIBRARIES.items():
        _folder(package)
        found[distribution] = metadata.version(distribution)
    return found


def described(package: str) -> Iterator[Described]:
    """The functions and classes on the top level of the modules of `package`, file by file.

    Names that begin with an underscore, methods and what has no docstring are left out; compiled
    functions come from the files that register their docstrings (`add_newdoc`). A name comes as
    often as it is defined.

    Raises:
        DataError: the package is not installed.
    """
    root = _folder(package)
    for path in sorted(root.rglob("*.py")):
        if _LEFT_OUT.isdisjoint(path.relative_to(root).parts):
            for kind, name, text in _documented(path):
                sentence = _first(text)
                if sentence and name.isidentifier() and not name.startswith("_"):
                    yield Described(package, kind, name, sentence)


def _folder(package: str) -> Path:
    spec = util.find_spec(package)  # a name without a dot: found, not imported
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"the sample model's questions are made from {LIBRARIES[package]}, which is not "
            f"installed: pip install {LIBRARIES[package]}"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _documented(path: Path) -> Iterator[tuple[Kind, str, str]]:
    """Kind, name and docstring of each documented thing on the top level of one file."""
    source = path.read_bytes()
    if b'"""' not in source:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # escapes in other people's strings
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            kind: Kind = "class" if isinstance(node, ast.ClassDef) else "def"
            yield kind, node.name, ast.get_docstring(node) or ""
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield from _registered(node.value)


def _registered(call: ast.Call) -> Iterator[tuple[Kind, str, str]]:
    """The docstring that `add_newdoc(..., name, text)` gives a compiled function.

    One that does not open with a signature is of a class, a constant or an attribute: left out.
    """
    values = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
    strings = [value for value in values if isinstance(value, str)]
    called = getattr(call.func, "id", getattr(call.func, "attr", None))
    if called in _REGISTRARS and 2 <= len(strings) == len(call.args):
        name, text = strings[-2:]
        if text.lstrip().startswith(f"{name}("):
            yield "def", name, text


def _first(docstring: str) -> str:
    """The first paragraph that is no signature, in one line."""
    for paragraph in re.split(r"\n[ \t]*\n", docstring.strip()):
        line = " ".join(paragraph.split())
        lines = [row for row in paragraph.splitlines() if not _SIGNATURE.fullmatch(row.strip())]
        if lines and not line.startswith(".. "):
            return " ".join(" ".join(lines).split())
    return ""
