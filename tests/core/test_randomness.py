"""Seeded numbers: the same everywhere, whatever ran before."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl.core.rng import generator, uniforms

WORD = (1 << 64) - 1


def philox(key: int, blocks: int) -> list[int]:
    """Philox 4x64-10 (Salmon et al. 2011), written out again, from counter 1 as NumPy counts."""
    words = []
    for counter in range(1, blocks + 1):
        x = [counter, 0, 0, 0]
        k = [key & WORD, key >> 64]
        for step in range(10):
            if step:
                k = [(k[0] + 0x9E3779B97F4A7C15) & WORD, (k[1] + 0xBB67AE8584CAA73B) & WORD]
            one, two = 0xD2E7470EE14C6C93 * x[0], 0xCA5A826395121157 * x[2]
            x = [(two >> 64) ^ x[1] ^ k[0], two & WORD, (one >> 64) ^ x[3] ^ k[1], one & WORD]
        words += x
    return words


@pytest.mark.parametrize(("seed", "purpose"), [(0, "gate"), (7, "order"), (-3, "gate")])
def test_uniforms_are_philox_keyed_by_the_hash_of_seed_and_purpose(seed: int, purpose: str) -> None:
    digest = blake2b(f"{seed}\x1f{purpose}".encode(), digest_size=16).digest()
    expected = [(w >> 11) * 2.0**-53 for w in philox(int.from_bytes(digest, "little"), 5)]
    assert uniforms(seed, purpose, 20).tolist() == expected


@given(st.integers(0, 2**40), st.integers(0, 50), st.integers(0, 50))
def test_a_round_has_its_number_whatever_the_count(seed: int, short: int, longer: int) -> None:
    many = uniforms(seed, "gate", short + longer)
    assert np.array_equal(many[:short], uniforms(seed, "gate", short))
    assert ((many >= 0) & (many < 1)).all()


def test_seeds_purposes_and_keys_give_different_numbers() -> None:
    streams = [
        uniforms(0, "gate", 8),
        uniforms(1, "gate", 8),
        uniforms(0, "order", 8),
        generator(0, "gate", 1).random(8),
        generator(0, "gate", 1, 1).random(8),
        generator(0, "gate", 11).random(8),
    ]
    assert len({s.tobytes() for s in streams}) == len(streams)


def test_a_key_says_where_one_part_ends() -> None:
    assert generator(1, "1gate").random() != generator(11, "gate").random()
