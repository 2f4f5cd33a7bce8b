"""How the loops are compiled, and how their machine code is kept between processes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])

_SUMS = {"reassoc", "contract"}  # sums may be regrouped; NaN and infinity keep their meaning
# Called by compiled code alone: to be called from Python too takes a fifth of all compiling.
_INNER = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def allocating(function: F) -> F:
    """The function compiled, which may make arrays of its own."""
    return cast(F, numba.njit(**_INNER, _nrt=True)(function))


def compiled(function: F) -> F:
    """The function compiled into its caller, for loops that make no arrays.

    Arrays are not counted: the caller holds them all, and counting would take half of a round.
    """
    return cast(F, numba.njit(**_INNER, forceinline=True, _nrt=False)(function))


def inlined(function: F) -> F:
    """The function put into its caller before types are found, and not compiled by itself.

    For functions that one place of a loop calls: one that is `compiled` is made into machine code
    alone too, which takes half as long again for the whole loop.
    """
    return cast(F, numba.njit(**_INNER, inline="always", _nrt=False)(function))


def summed(function: F) -> F:
    """The function compiled with its caller, its sums in the order that fills vector registers.

    Sums of products and nothing else belong in it: there it moves the last bits, which the tie
    rule of the action forgives (`docs/paper.md`, D17).
    """
    return cast(F, numba.njit(**_INNER, fastmath=_SUMS, _nrt=False)(function))


def cached_entry(function: F) -> F:
    """An entry point, whose machine code is kept on disk; its closure should hold a `stamp`.

    The loop should stand in the entry point: one that it calls is compiled twice, once more inside
    it, which takes 20 to 30 s more on a first run.
    """
    return cast(F, numba.njit(error_model="numpy", cache=True, _nrt=False)(function))


def stamp(*modules: ModuleType) -> int:
    """The hash of the text of `modules`: an entry point holds it in its closure.

    numba keeps an entry point's machine code, with that of all it calls, until the entry point's
    own file changes. Its cache is also keyed by the closure, so that a change of any module in
    the stamp, or of this one, compiles it again.
    """
    files = [__file__, *(str(module.__file__) for module in modules)]
    texts = b"".join(Path(file).read_bytes() for file in files)
    return int.from_bytes(hashlib.blake2b(texts, digest_size=6).digest(), "little")
