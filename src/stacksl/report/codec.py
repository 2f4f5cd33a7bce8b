"""A tree of frozen dataclasses as JSON text, and back with every field checked."""

from __future__ import annotations

import math
from dataclasses import asdict, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from stacksl.files import formats

Tree = TypeVar("Tree")


def write(tree: Any) -> str:
    """The dataclass `tree` as JSON text in ASCII with its digest; a number not finite is null."""
    return formats.to_json(_plain(asdict(tree)))


def read(kind: type[Tree], text: str) -> Tree:
    """The dataclass of `kind` that `write` wrote.

    Raises:
        ValueError: the text does not match its digest, or a field is missing, unknown or of the
            wrong type.
    """
    return cast("Tree", _build(kind, formats.from_json(text), kind.__name__.lower()))


def _plain(value: Any) -> Any:
    """`value` with NumPy scalars as Python numbers and every non-finite float as None."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _build(kind: Any, value: Any, where: str) -> Any:
    """`value`, read from JSON, as an object of the annotated `kind`."""
    if get_origin(kind) in (Union, UnionType):
        return _build_optional(kind, value, where)
    if get_origin(kind) is tuple:
        return _build_tuple(get_args(kind), value, where)
    if is_dataclass(kind):
        return _build_fields(kind, value, where)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{where}: expected {kind.__name__}, got {type(value).__name__}")
    return value


def _build_optional(kind: Any, value: Any, where: str) -> Any:
    if value is None:
        return None
    (inner,) = (option for option in get_args(kind) if option is not NoneType)
    return _build(inner, value, where)


def _build_tuple(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{where}: expected a list, got {type(value).__name__}")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise ValueError(f"{where}: expected {len(kinds)} entries, got {len(value)}")
    return tuple(
        _build(kind, entry, f"{where}[{at}]")
        for at, (kind, entry) in enumerate(zip(kinds, value, strict=True))
    )


def _build_fields(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object, got {type(value).__name__}")
    hints = get_type_hints(kind)
    unknown = sorted(set(value) - {field.name for field in fields(kind)})
    if unknown:
        raise ValueError(f"{where}: unknown field {unknown[0]!r}")
    try:
        return kind(**{name: _build(hints[name], value[name], f"{where}.{name}") for name in value})
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None
