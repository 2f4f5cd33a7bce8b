"""Facts as JSON text, and back with every field checked."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from stacksl.files import formats

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from stacksl.report.facts import Facts

_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")


def write(facts: Facts) -> str:
    """The facts as JSON text in ASCII with their digest.

    A number that is not finite is null; a lone surrogate, which is no text, is U+FFFD.
    """
    return formats.to_json(_plain(asdict(facts)))


def read(text: str) -> Facts:
    """The facts that `write` wrote.

    Raises:
        ValueError: the text does not match its digest, or a field is missing, unknown or of the
            wrong type.
    """
    from pydantic import ValidationError

    content = json.dumps(formats.from_json(text))
    try:
        return _adapter().validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, ("facts", *first["loc"])))
        raise ValueError(f"{where}: {first['msg']}") from None


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[Facts]:
    from pydantic import TypeAdapter

    from stacksl.report.facts import Facts

    return TypeAdapter(Facts)


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
