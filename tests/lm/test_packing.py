"""The packed row's arrays, held to what each option's own sequence would be."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.packing import batches, pack, shared_batches

TOKENS = st.integers(1, 9)
ITEMS = st.builds(
    lambda prompt, options: TokenItem(
        "i", tuple(prompt), tuple(map(tuple, options)), tuple(map(len, options))
    ),
    st.lists(TOKENS, min_size=1, max_size=5),
    st.lists(st.lists(TOKENS, min_size=1, max_size=4), min_size=1, max_size=4),
)
SOME = st.lists(ITEMS, min_size=1, max_size=3)


@given(SOME, st.booleans())
def test_what_a_column_sees_is_its_own_sequence(items: list[TokenItem], last: bool) -> None:
    """The predictor of token l of an option sees the prompt and the option's first l tokens."""
    packed = pack(items, with_last=last)
    assert packed.mask.any(axis=-1).all(), "a query that sees nothing would be NaN"
    pairs = [(row, item.prompt, option) for row, item in enumerate(items)
             for option in item.options]  # fmt: skip
    assert packed.counts == tuple(len(item.options) for item in items)
    for number, (row, prompt, option) in enumerate(pairs):
        assert packed.rows[number] == row
        assert packed.targets[number][packed.valid[number]].tolist() == list(option)
        for step in range(len(option)):
            column = packed.keep[packed.slots[number, step]]
            seen = np.flatnonzero(packed.mask[row, column])
            order = seen[np.argsort(packed.positions[row, seen])]
            assert packed.ids[row, order].tolist() == [*prompt, *option[:step]]
            assert sorted(packed.positions[row, seen]) == list(range(len(prompt) + step))


@given(SOME, st.booleans())
def test_options_carry_their_tokens_but_the_last(items: list[TokenItem], last: bool) -> None:
    packed = pack(items, with_last=last)
    options = [option for item in items for option in item.options]
    for number, option in enumerate(options):
        held = packed.ids[packed.rows[number], packed.texts[number]].tolist()
        assert held == list(option if last else option[:-1])
    longest = max(len(item.prompt) for item in items)
    tails = [sum(len(o) - (not last) for o in item.options) for item in items]
    assert packed.ids.shape == (len(items), longest + max(tails))


@given(st.lists(ITEMS, max_size=24), st.integers(1, 60), st.integers(1, 5))
def test_every_process_has_a_batch_where_there_are_items_enough(
    items: list[TokenItem], batch_tokens: int, processes: int
) -> None:
    shared = shared_batches(items, batch_tokens, processes)
    assert shared_batches(items, batch_tokens, 1) == batches(items, batch_tokens)
    assert sorted(index for batch in shared for index in batch) == list(range(len(items)))
    assert len(shared) >= min(processes, len(items))
    assert len(shared) % processes == 0 or len(shared) == len(items)
    widths = [len(i.prompt) + sum(len(o) - 1 for o in i.options) for i in items]
    for batch in shared:
        widest = max(widths[index] for index in batch)
        assert len(batch) == 1 or len(batch) * widest <= batch_tokens


def test_short_items_are_cut_evenly() -> None:
    items = [TokenItem(str(n), (1,) * 9, ((2, 3),), (1,)) for n in range(8)]  # 10 tokens a row
    sizes = {n: [len(batch) for batch in shared_batches(items, 4096, n)] for n in (1, 2, 3, 8, 9)}
    assert sizes == {1: [8], 2: [4, 4], 3: [2, 2, 4], 8: [1] * 8, 9: [1] * 8}
    assert [len(batch) for batch in shared_batches(items, 30, 2)] == [1, 2, 3, 2]
