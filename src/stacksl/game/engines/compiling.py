"""How the loops are compiled, and how their machine code is kept between processes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import numba

__all__ = ["compiled", "kept", "stamp", "summed"]

F = TypeVar("F", bound=Callable[..., Any])

_SUMS = {"reassoc", "contract"}  # sums may be regrouped; NaN and infinity keep their meaning


def compiled(function: F) -> F:
    """The function compiled, for use inside other compiled functions."""
    return cast(F, numba.njit(error_model="numpy")(function))


def summed(function: F) -> F:
    """As `compiled`, with sums in whatever order fills the vector registers.

    Sums of products and nothing else belong in it: there it moves the last bits, which the tie
    rule of the action forgives (DESIGN D17).
    """
    return cast(F, numba.njit(error_model="numpy", fastmath=_SUMS)(function))


def kept(function: F) -> F:
    """An entry point, whose machine code is kept on disk; its closure should hold a `stamp`."""
    return cast(F, numba.njit(error_model="numpy", cache=True)(function))


def stamp(*modules: ModuleType) -> int:
    """The hash of the text of `modules`: an entry point holds it in its closure.

    numba keeps an entry point's machine code, with that of all it calls, until the entry point's
    own file changes. Its cache is also keyed by the closure, so that a change of any module in
    the stamp compiles it anew.
    """
    texts = b"".join(Path(str(module.__file__)).read_bytes() for module in modules)
    return int.from_bytes(hashlib.blake2b(texts, digest_size=6).digest(), "little")
