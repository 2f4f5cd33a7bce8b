"""Several options, one prompt, one row: the tree of an item as arrays for one forward pass.

A row is `[padding | prompt | options]`, every option without its last token, which predicts
nothing. Positions restart at P for every option, and a boolean mask lets a token see the prompt and
its own option. Prompts end, and so options begin, in the same column of every row of a batch: the
columns whose logits are needed are then nearly the same, which `logits_to_keep` wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stacksl.lm.prompt.tokens import TokenItem

Ints = NDArray[np.int64]
BLOCK = 32  # items scored side by side
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
        heads: (n,) the column in which the prompt of each option begins.
        slots: (n, L) index into `keep` of the column that predicts each token of each option.
        targets: (n, L) those tokens.
        valid: (n, L) whether the option has that token.
        carried: (n, L) the column that holds each token of the option itself, -1 where it does not
            have one or the row does not carry it (its last, unless packed `with_last`).
        counts: options of each item.
    """

    ids: Ints
    positions: Ints
    mask: NDArray[np.bool_]
    keep: Ints
    rows: Ints
    heads: Ints
    slots: Ints
    targets: Ints
    valid: NDArray[np.bool_]
    carried: Ints
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Packing:
    """How items share batches.

    Args:
        batch_tokens: items of like length share a batch as long as rows x longest row is at most
            this; a row that is longer is alone.
    """

    batch_tokens: int = 2048

    def batches(self, items: Sequence[TokenItem], *, with_last: bool = False) -> list[list[int]]:
        """Batches of indices into `items`, the longest first."""
        sizes = [len(item.prompt) + _tail(item, with_last) for item in items]
        found: list[list[int]] = []
        for index in sorted(range(len(items)), key=lambda index: (-sizes[index], index)):
            if found and (len(found[-1]) + 1) * sizes[found[-1][0]] <= self.batch_tokens:
                found[-1].append(index)
            else:
                found.append([index])
        return found

    def shared(self, items: Sequence[TokenItem], processes: int) -> list[list[int]]:
        """`batches`, cut so that each of `processes` has as many, of about the same size.

        The fewest batches are taken whose number is a multiple of the processes, each as small as
        that number allows; with fewer items than processes each is one. One process has `batches`.
        """
        found = self.batches(items)
        if processes < 2 or not found:
            return found
        wanted = processes * -(-len(found) // processes)
        low, high = 1, self.batch_tokens
        while low < high:  # the smallest bound that needs no more batches than wanted
            middle = (low + high) // 2
            if len(replace(self, batch_tokens=middle).batches(items)) <= wanted:
                high = middle
            else:
                low = middle + 1
        found = replace(self, batch_tokens=low).batches(items)
        while len(found) < wanted and max(map(len, found)) > 1:  # rows of very unlike lengths
            most = max(range(len(found)), key=lambda number: len(found[number]))
            half = len(found[most]) // 2
            found[most : most + 1] = [found[most][:half], found[most][half:]]
        return found


def pack(items: Sequence[TokenItem], *, with_last: bool = False) -> Packed:
    """One batch of packed rows, one an item.

    Args:
        items: one at least.
        with_last: carry the last token of every option too (P + Σ L_i columns instead of
            P + Σ (L_i - 1)), for those who need its hidden state.

    >>> item = TokenItem("a", (7, 8), ((1, 2), (3,)), (1, 1))
    >>> packed = pack([item])
    >>> packed.ids.tolist(), packed.positions.tolist(), packed.slots.tolist()
    ([[7, 8, 1]], [[0, 1, 2]], [[0, 1], [0, 0]])
    """
    start = max(len(item.prompt) for item in items)
    width = start + max(_tail(item, with_last) for item in items)
    options = [option for item in items for option in item.options]
    sheet = _Sheet.empty(len(items), width, len(options), max(map(len, options)))
    done = 0
    for number, item in enumerate(items):
        done = sheet.fill(number, item, start, done, with_last)
    keep = np.unique(sheet.predictors[sheet.valid])
    slots = np.where(sheet.valid, np.searchsorted(keep, sheet.predictors), 0)
    counts = tuple(len(item.options) for item in items)
    return Packed(sheet.ids, sheet.positions, sheet.mask(), keep, sheet.rows, sheet.heads, slots,
                  sheet.targets, sheet.valid, sheet.carried, counts)  # fmt: skip


def _tail(item: TokenItem, with_last: bool) -> int:
    return sum(len(option) - (not with_last) for option in item.options)


@dataclass
class _Sheet:
    """The arrays while they are filled; `branch` says whose token a column holds."""

    ids: Ints
    positions: Ints
    branch: Ints  # -1 for padding, 0 for the prompt, else the option's number from 1
    rows: Ints
    heads: Ints
    predictors: Ints
    targets: Ints
    carried: Ints
    valid: NDArray[np.bool_]

    @classmethod
    def empty(cls, rows: int, width: int, options: int, longest: int) -> _Sheet:
        def full(shape: tuple[int, ...], value: int) -> Ints:
            return np.full(shape, value, np.int64)

        return cls(
            full((rows, width), _PADDING),
            full((rows, width), 0),
            full((rows, width), -1),
            full((options,), 0),
            full((options,), 0),
            full((options, longest), 0),
            full((options, longest), 0),
            full((options, longest), -1),
            np.zeros((options, longest), np.bool_),
        )

    def fill(self, row: int, item: TokenItem, start: int, done: int, with_last: bool) -> int:
        """Write a row whose options begin in column `start`; the number of options so far."""
        tail, length = start, len(item.prompt)
        self._write(row, start - length, item.prompt, 0, 0)
        self.heads[done : done + len(item.options)] = start - length
        for branch, option in enumerate(item.options, 1):
            body = option if with_last else option[:-1]
            self._write(row, tail, body, length, branch)
            columns = np.arange(tail, tail + len(body))
            self._option(done, row, option, np.array([start - 1, *columns]), columns)
            tail += len(body)
            done += 1
        return done

    def _write(
        self, row: int, column: int, ids: tuple[int, ...], position: int, branch: int
    ) -> None:
        where = (row, slice(column, column + len(ids)))
        self.ids[where] = ids
        self.positions[where] = np.arange(position, position + len(ids))
        self.branch[where] = branch

    def _option(
        self, number: int, row: int, option: tuple[int, ...], predictors: Ints, columns: Ints
    ) -> None:
        length = len(option)
        self.rows[number] = row
        self.predictors[number, :length] = predictors[:length]
        self.targets[number, :length] = option
        self.carried[number, : len(columns)] = columns
        self.valid[number, :length] = True

    def mask(self) -> NDArray[np.bool_]:
        """Padding sees the padding before it: a query that sees nothing would be NaN."""
        seeing, seen = self.branch[:, :, None], self.branch[:, None, :]
        above = (seen == seeing) | ((seen == 0) & (seeing > 0))
        return np.asarray(above & np.tri(self.branch.shape[1], dtype=np.bool_))
