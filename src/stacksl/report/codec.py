"""A tree of `Fact`s as JSON text, and back with every field checked."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, ClassVar, Self, cast

from stacksl.files import formats

_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")


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


class Fact:
    """A frozen dataclass that is read from JSON with every field checked."""

    __slots__ = ()
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "strict": True}

    def to_json(self) -> str:
        """These facts as JSON text in ASCII with its digest; equal facts give equal text.

        A number that is not finite is null; a lone surrogate, which is no text, is U+FFFD.
        """
        return formats.to_json(_plain(asdict(cast(Any, self))))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The facts that `to_json` wrote.

        Raises:
            ValueError: the text does not match its digest, or a field is missing, unknown or of
                the wrong type.
        """
        from pydantic import ValidationError

        content = json.dumps(formats.from_json(text))
        try:
            found: Self = _adapter(cast(Any, cls)).validate_json(content)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, (cls.__name__.lower(), *first["loc"])))
            raise ValueError(f"{where}: {first['msg']}") from None
        return found


@dataclass(frozen=True, slots=True)
class Named(Fact):
    """A name with a value (a version, a fingerprint, a count by reason)."""

    name: str
    value: str
