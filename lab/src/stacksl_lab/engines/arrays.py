"""The arrays of a stream, checked, and the arrays of its result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array
from stacksl.errors import FeatureError, SettingsError

_CHUNK = 1 << 20  # numbers of features converted to float64 and played at a time: 8 MiB


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Checked inputs: `features` (T, M, d) or, with `classes`, (T, d); feedback of all rounds.

    Of `labels`, (T,), `rewards`, (T, M), and `utilities`, (T, M), all but one are empty.
    """

    features: NDArray[Any]
    labels: NDArray[np.int64]
    rewards: Array
    utilities: Array
    classes: int | None

    @property
    def rounds(self) -> int:
        """T."""
        return len(self.features)

    @property
    def dim(self) -> int:
        """d, the columns of φ or of h."""
        return int(self.features.shape[-1])

    @property
    def candidates(self) -> int:
        """M."""
        return int(self.features.shape[1]) if self.classes is None else self.classes

    def chunks(self, marks: Sequence[int] = ()) -> Iterator[tuple[int, int, Array]]:
        """(start, stop, float64 features) of consecutive rounds, cut after each of `marks`."""
        size = max(1, _CHUNK // max(1, int(np.prod(self.features.shape[1:]))))
        stops = sorted({*range(size, self.rounds, size), *marks, self.rounds})
        for start, stop in pairwise([0, *stops]):
            yield start, stop, _plain(self.features[start:stop], np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """The estimate after `round` rounds: for coverage, and for curves of what was learned.

    Attributes:
        round: rounds gone by, 1 to T.
        theta: θ, (d,), or (K, d) for class heads.
        gram_inv: V⁻¹ (H⁻¹), (d, d); None where `StreamResult.gram_inv` is.
        learned: labels learned, since the last reset where there is a drift guard.
    """

    round: int
    theta: Array
    gram_inv: Array | None
    learned: int


@dataclass(frozen=True, slots=True, eq=False)
class StreamResult:
    """The result of a stream of T rounds: one entry a round, (T,) each, and the last estimate.

    Attributes:
        choices: the index of the action played, among all candidates.
        asked: whether the label was bought.
        statistics, thresholds: the gate asked iff statistic > threshold (score units), but for the
            two rules above every gate. Without certificates NaN from the round on in which no
            label is left: the statistics of the gates made of widths, and their thresholds but for
            `llf`'s, constant ones too.
        gate_scores: the statistic of `contested`, whichever gate decided (`docs/paper.md`, D8),
            at the greedy action where the action is `asked`; NaN without certificates.
        scores: θᵀφ of the choice (score units).
        reaches: radius·width of the choice, so that its bounds are scores ± reaches; NaN without
            certificates.
        theta: the last θ, (d,), or (K, d) for class heads.
        gram_inv: the last V⁻¹ (H⁻¹), (d, d); None for sgd on class heads.
        learned: labels learned, since the last reset where there is a drift guard.
        clipped: those of them whose loss was above the clip level; 0 but for `sgd`.
        engine: `fused` or `loop`, what played.
        marks: the estimates after the rounds that were asked for.
        presented: the candidates that an adaptive follower showed, (T, present) int32, ascending;
            None where all were shown.
        resets: (n,) the rounds, counted from 1, after which the drift guard started over.
    """

    choices: NDArray[np.int64]
    asked: NDArray[np.bool_]
    statistics: Array
    thresholds: Array
    gate_scores: Array
    scores: Array
    reaches: Array
    theta: Array
    gram_inv: Array | None
    learned: int
    clipped: int
    engine: Literal["fused", "loop"]
    marks: tuple[Mark, ...]
    presented: NDArray[np.int32] | None
    resets: NDArray[np.int64]


def checked_stream(
    features: NDArray[Any],
    labels: NDArray[Any] | None,
    rewards: NDArray[Any] | None,
    utilities: NDArray[Any] | None,
    classes: int | None,
) -> Stream:
    """The stream of these arrays, with feedback of the features' size.

    Raises:
        FeatureError: features of a wrong shape.
        SettingsError: not one kind of feedback, or feedback of a wrong shape.
    """
    features = np.asarray(features)
    wanted = "(T, K, d)" if classes is None else "(T, d)"
    if features.ndim != wanted.count(",") + 1 or 0 in features.shape:
        raise FeatureError(
            f"features should have the shape {wanted}, none of it 0, not {features.shape}: "
            "give φ a row for each candidate, or h a row for each item with `classes`"
        )
    if classes is not None and classes < 1:
        raise SettingsError(f"there should be at least 1 class, not {classes}")
    if sum(given is not None for given in (labels, rewards, utilities)) != 1:
        raise SettingsError("a stream needs labels, rewards or utilities, one of the three")
    rounds, size = len(features), features.shape[1] if classes is None else classes
    gold = np.zeros(0, dtype=np.int64) if labels is None else _gold(labels, rounds, size)
    gains = _table("rewards", rewards, rounds, size)
    return Stream(features, gold, gains, _table("utilities", utilities, rounds, size), classes)


def expect_finite(rows: Array, stopped: int, start: int) -> None:
    """Refuse what made the scores of a round no finite numbers; `stopped` is that round, or −1.

    A feature that is not finite makes its score NaN or infinite, for every θ.
    """
    if stopped < 0:
        return
    if np.isfinite(rows[stopped - start]).all():
        raise SettingsError(
            f"the scores of round {stopped + 1} are no finite numbers, though its features are: "
            "θ has grown beyond all bounds; lower the learning rate"
        )
    raise FeatureError(
        f"features should be finite numbers, but round {stopped + 1} has NaN or infinite ones: "
        "remove the item or repair its features"
    )


def _plain(array: Any, dtype: type) -> NDArray[Any]:
    """A C-ordered, writable array: numba would compile a second loop for any other kind."""
    return np.require(np.asarray(array), dtype=dtype, requirements=["C", "W", "E"])


def _gold(labels: NDArray[Any], rounds: int, size: int) -> NDArray[np.int64]:
    indices = np.asarray(labels)
    if indices.shape != (rounds,) or not np.isin(indices, np.arange(size)).all():
        raise SettingsError(
            f"labels should be {rounds} indices from 0 to {size - 1}, one per round, but the "
            f"given ones have the shape {indices.shape} or hold something else"
        )
    return _plain(indices, np.int64)


def _table(what: str, values: NDArray[Any] | None, rounds: int, size: int) -> Array:
    if values is None:
        return np.zeros((0, 0))
    table = _plain(values, np.float64)
    if table.shape != (rounds, size) or not np.isfinite(table).all():
        raise SettingsError(
            f"{what} should be finite, one for each candidate of each round, of the shape "
            f"{(rounds, size)}, but those given have the shape {table.shape}"
        )
    return table
