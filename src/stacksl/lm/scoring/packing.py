"""Several options, one prompt, one row: the tree of an item as arrays for one forward pass.

A row is `[padding | prompt | options]`, every option without its last token, which predicts
nothing. Positions restart at P for every option, and a boolean mask lets a token see the prompt and
its own option. Prompts end, and so options begin, in the same column of every row of a batch: the
columns whose logits are needed are then nearly the same, which `logits_to_keep` wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stacksl.lm.prompt.tokens import TokenItem

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
BLOCK = 32  # items scored side by side
BATCH_TOKENS = 2048  # of a forward pass, where nothing else is asked for
_PADDING = 0  # any id: no token sees it, and it is not scored


@dataclass(frozen=True)
class Packed:
    """R rows of S columns, an item each in the order given, that hold n options in all.

    Attributes:
        ids: (R, S) tokens.
        positions: (R, S) position of each token in its own sequence.
        mask: (R, S, S) whether the token in the row's column [q] sees that in column [c].
        keep: (C,) the columns whose logits are needed, in rising order.
        rows: (n,) the row of each option.
        slots: (n, L) index into `keep` of the column that predicts each token of each option.
        targets: (n, L) those tokens.
        valid: (n, L) whether the option has that token.
        texts: for each option the columns that hold its own tokens, without its last unless it was
            packed `with_last`.
        counts: options of each item.
    """

    ids: Ints
    positions: Ints
    mask: Bools
    keep: Ints
    rows: Ints
    slots: Ints
    targets: Ints
    valid: Bools
    texts: tuple[Ints, ...]
    counts: tuple[int, ...]


def batches(
    items: Sequence[TokenItem], batch_tokens: int, *, with_last: bool = False
) -> list[list[int]]:
    """Batches of indices into `items`, the longest first.

    Items of like length share a batch as long as rows x longest row is at most `batch_tokens`; a
    row that is longer is alone.
    """
    sizes = [len(item.prompt) + _tail(item, with_last) for item in items]
    groups: list[list[int]] = []
    for index in sorted(range(len(items)), key=lambda index: (-sizes[index], index)):
        if groups and (len(groups[-1]) + 1) * sizes[groups[-1][0]] <= batch_tokens:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def shared_batches(
    items: Sequence[TokenItem], batch_tokens: int, processes: int
) -> list[list[int]]:
    """`batches`, the largest of them halved until each of `processes` has as many.

    With fewer items than processes each is one. One process has `batches`.
    """
    groups = batches(items, batch_tokens)
    while len(groups) % processes and max(map(len, groups)) > 1:
        largest = max(range(len(groups)), key=lambda number: len(groups[number]))
        half = len(groups[largest]) // 2
        groups[largest : largest + 1] = [groups[largest][:half], groups[largest][half:]]
    return groups


def pack(items: Sequence[TokenItem], *, with_last: bool = False) -> Packed:
    """One batch of packed rows, one per item.

    Args:
        with_last: carry the last token of every option too (P + Σ L_i columns instead of
            P + Σ (L_i - 1)), for those who need its hidden state.

    >>> item = TokenItem("a", (7, 8), ((1, 2), (3,)), (1, 1))
    >>> packed = pack([item])
    >>> packed.ids.tolist(), packed.positions.tolist(), packed.slots.tolist()
    ([[7, 8, 1]], [[0, 1, 2]], [[0, 1], [0, 0]])
    """
    start = max(len(item.prompt) for item in items)  # the column in which options begin
    shape = (len(items), start + max(_tail(item, with_last) for item in items))
    ids, positions = np.full(shape, _PADDING, np.int64), np.zeros(shape, np.int64)
    branch = np.full(shape, -1, np.int64)  # -1 for padding, 0 for the prompt, else an option from 1
    options = [option for item in items for option in item.options]
    table = (len(options), max(map(len, options)))
    rows, texts = np.zeros(len(options), np.int64), list[Ints]()
    predictors, targets = np.zeros(table, np.int64), np.zeros(table, np.int64)
    valid = np.zeros(table, np.bool_)
    for row, item in enumerate(items):
        length = len(item.prompt)
        head, column = start - length, start
        ids[row, head:start] = item.prompt
        positions[row, head:start] = np.arange(length)
        branch[row, head:start] = 0
        for option_number, option in enumerate(item.options):
            columns = np.arange(column, column + len(option) - (not with_last))
            ids[row, columns] = option[: len(columns)]
            positions[row, columns] = np.arange(length, length + len(columns))
            branch[row, columns] = option_number + 1
            number, size = len(texts), len(option)
            texts.append(columns)
            rows[number] = row
            predictors[number, :size] = [start - 1, *columns][:size]
            targets[number, :size] = option
            valid[number, :size] = True
            column += len(columns)
    keep = np.unique(predictors[valid])
    return Packed(
        ids,
        positions,
        _mask(branch),
        keep,
        rows,
        np.where(valid, np.searchsorted(keep, predictors), 0),
        targets,
        valid,
        tuple(texts),
        tuple(len(item.options) for item in items),
    )


def _tail(item: TokenItem, with_last: bool) -> int:
    return sum(len(option) - (not with_last) for option in item.options)


def _mask(branch: Ints) -> Bools:
    """What each token sees, from whose tokens the columns (R, S) hold.

    Padding sees the padding before it: a query that sees nothing would be NaN.
    """
    queries, keys = branch[:, :, None], branch[:, None, :]
    on_path = (keys == queries) | ((keys == 0) & (queries > 0))
    return np.asarray(on_path & np.tri(branch.shape[1], dtype=np.bool_))
