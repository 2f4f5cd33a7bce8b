"""The registry of labelers, by the name that their setting begins with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from stacksl.errors import SettingsError, unknown_name
from stacksl.labelers.oracle import OracleLabeler
from stacksl.labelers.protocol import Labeler


def _oracle(
    argument: str | None, answers: Mapping[str, int], sizes: Mapping[str, int], seed: int
) -> Labeler:
    """`oracle`: the file's own answers."""
    if argument is not None:
        raise SettingsError(f"the labeler 'oracle' takes nothing after it, got 'oracle:{argument}'")
    return OracleLabeler(answers, sizes)


Maker = Callable[[str | None, Mapping[str, int], Mapping[str, int], int], Labeler]

LABELERS: Final[dict[str, Maker]] = {"oracle": _oracle}
"""Every labeler by the name its setting begins with."""


def make_labeler(
    spec: str, answers: Mapping[str, int], sizes: Mapping[str, int], seed: int
) -> Labeler:
    """The labeler that a setting names.

    Args:
        spec: a name in `LABELERS`, and after a colon what that labeler takes.
        answers: item id to the index of its gold candidate.
        sizes: item id to K, for every item that may be asked.
        seed: the run's seed.

    Raises:
        SettingsError: an unknown name or a wrong parameter.
        LabelerError: it cannot answer every item.

    Example:
        >>> labeler = make_labeler("oracle", {"q1": 1}, {"q1": 4}, seed=0)
        >>> from stacksl.ledger.purchases import Purchase
        >>> labeler.ask([Purchase("q1", 0, 1, 1, "train", 0)])
        >>> labeler.answers()[0].index
        1
    """
    name, colon, argument = spec.partition(":")
    if name not in LABELERS:
        raise unknown_name("labeler", name, LABELERS)
    return LABELERS[name](argument if colon else None, answers, sizes, seed)
