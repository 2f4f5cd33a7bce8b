"""A tree of `Fact`s as JSON text, and back with every field checked."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, ClassVar, Literal, TypedDict, TypeVar, cast

from stacksl.files import formats

Tree = TypeVar("Tree")

_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")


def write(tree: Any) -> str:
    """The dataclass `tree` as JSON text in ASCII with its digest.

    A number that is not finite is null; a lone surrogate, which is no text, is U+FFFD.
    """
    return formats.to_json(_plain(asdict(tree)))


def read(kind: type[Tree], text: str) -> Tree:
    """The dataclass of `kind` that `write` wrote.

    Raises:
        ValueError: the text does not match its digest, or a field is missing, unknown or of the
            wrong type.
    """
    from pydantic import ValidationError

    content = json.dumps(formats.from_json(text))
    try:
        found: Tree = _adapter(cast(Any, kind)).validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, (kind.__name__.lower(), *first["loc"])))
        raise ValueError(f"{where}: {first['msg']}") from None
    return found


@cache
def _adapter(kind: type[Any]) -> Any:
    """What checks a dataclass of `kind`: it takes as long to make as to read many facts."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _plain(value: Any) -> Any:
    """`value` as JSON can hold it: NumPy scalars as Python numbers, text without surrogates."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and not value.isascii():
        return value.translate(_SURROGATES)
    return value


class _Config(TypedDict):
    """How pydantic reads a fact (a part of its `ConfigDict`, which is slow to import)."""

    extra: Literal["forbid"]
    strict: bool


class Fact:
    """A frozen dataclass that is read from JSON with every field checked."""

    __slots__ = ()
    __pydantic_config__: ClassVar[_Config] = {"extra": "forbid", "strict": True}


@dataclass(frozen=True, slots=True)
class Named(Fact):
    """A name with a value (a version, a fingerprint, a count by reason)."""

    name: str
    value: str
