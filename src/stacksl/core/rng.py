"""Random numbers that depend on a seed and a purpose only, never on earlier draws."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from stacksl.core.blocks import Array


def generator(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """The Philox generator keyed by (seed, purpose, keys): same arguments, same numbers.

    >>> int(generator(0, "order").integers(1000)) == int(generator(0, "order").integers(1000))
    True
    """
    text = "\x1f".join([str(int(seed)), purpose, *(str(int(k)) for k in keys)])
    key = int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "little")
    return np.random.Generator(np.random.Philox(key=key))


def uniforms(seed: int, purpose: str, count: int) -> Array:
    """`count` numbers in [0, 1), (count,): entry t − 1 belongs to round t, for every `count`.

    >>> bool(uniforms(0, "gate", 2)[0] == uniforms(0, "gate", 9)[0])
    True
    """
    return generator(seed, purpose).random(count)
