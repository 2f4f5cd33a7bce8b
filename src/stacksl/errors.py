"""The errors that the package raises to its caller, as a tree.

::

    StackslError
     ├── SettingsError          a setting, a flag or a config file is wrong
     ├── MissingExtra           an optional dependency is not installed
     ├── DataError              a file of items cannot be used
     │    └── HeaderInDoubt     its first row may hold names or an item
     ├── FeatureError           features are unusable (NaN, wrong dimension, ...)
     ├── LabelerError           a labeler cannot answer, or its answer is invalid
     ├── LedgerError            the ledger cannot be read, written or trusted
     │    └── LedgerCorrupt     a row was edited or the tail was cut
     └── RunError               a run's folder cannot be used
          └── RunLocked         another process holds the run

A module may have an exception for its own use, such as one for an unusable row of a file, which it
catches itself. A message is one sentence: what was expected, what was found, what to do. The
command line prints it on stderr and exits with code 2.
"""

from __future__ import annotations

import re
import sys
import warnings
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class StackslError(Exception):
    """An error with a sentence for the user, on one line; the root of the tree."""

    def __str__(self) -> str:
        line = " ".join(super().__str__().splitlines())  # it may quote a value of any length
        return line if len(line) <= 5_000 else f"{line[:300]} … {line[-300:]}"


class SettingsError(StackslError, ValueError):
    """A setting is wrong; one message names all mistakes."""


class MissingExtra(StackslError, ImportError):
    """An optional dependency is missing; the message holds the pip line that installs it."""

    @classmethod
    def of(cls, what: str, extra: str, missing: str = "") -> MissingExtra:
        """The error for `what`, which needs `extra`, of which some packages may be `missing`."""
        part = f" of which {missing} is not installed" if missing else ""
        return cls(f"{what} needs the extra '{extra}'{part}: pip install 'stacksl[{extra}]'")


class DataError(StackslError, ValueError):
    """A file of items, or a row of it, cannot be used.

    Attributes:
        dataset: what was read of the file, if too many of its rows cannot be used.
    """

    def __init__(self, sentence: str, dataset: Any = None) -> None:
        super().__init__(sentence)
        self.dataset = dataset


class HeaderInDoubt(DataError):
    """The first row of a file looks like an item, and not like a header."""


class FeatureError(StackslError, ValueError):
    """Features cannot be used: not finite, of the wrong dimension, or from another feature map."""


class LabelerError(StackslError):
    """A labeler cannot answer what a run asks, or its answer is invalid."""


class LedgerError(StackslError):
    """The ledger cannot be read or written as asked."""


class LedgerCorrupt(LedgerError):
    """The ledger's chain of hashes is broken: a row was edited, or the tail was cut."""


class RunError(StackslError):
    """A run's folder is missing, foreign, read-only, or in the wrong state for what was asked."""


class RunLocked(RunError):
    """Another process holds this run."""


class RunWarning(UserWarning):
    """What is odd in a run, in a sentence; `Run.status()` keeps it under `warnings`."""


def warn_user(sentence: str) -> None:
    """Warn of what is odd in a run, at the line outside of the package that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] == "stacksl":
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, RunWarning, stacklevel=level)


def kind_and_place(fault: BaseException) -> str:
    """An exception of other code, by its type and where it was raised.

    Its message is left out, since it may quote the data; a traceback has it.
    """
    frame = fault.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None:
        return type(fault).__name__
    name = frame.tb_frame.f_code.co_filename.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{type(fault).__name__} in {name}, line {frame.tb_lineno}"


def kind_of(given: object) -> str:
    """The type of a value, with its article, for a message."""
    name = type(given).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def expect(fits: object, what: str, given: object) -> None:
    """Raise a `SettingsError` unless an argument fits; `what` says what it should be."""
    if not fits:
        raise SettingsError(f"{what}, got {kind_of(given)}")


def expect_path(given: object, what: str) -> Path:
    """The path of an argument; a `SettingsError` says that `what` should be one."""
    expect(isinstance(given, str | PathLike), f"{what} should be a path", given)
    if re.search("[\0\ud800-\udc7f\udd00-\udfff]", str(given)):  # the others are bytes of a name
        unusable = "a NUL character or half of a character"
        raise SettingsError(f"{what} should be a path, got one with {unusable}: remove it")
    return Path(given)  # type: ignore[arg-type]


def unknown_name(kind: str, name: str, known: Iterable[str]) -> SettingsError:
    """The error for a `name` that is not among the `known` ones, with the nearest match.

    >>> str(unknown_name("gate", "margn", ["margin", "first"]))
    "unknown gate 'margn': did you mean 'margin'? known: first, margin"
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return SettingsError(f"unknown {kind} '{name}': {hint}known: {', '.join(names)}")
