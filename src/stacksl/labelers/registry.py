"""The registry of labelers, by the name that their setting begins with, and the first of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from stacksl.errors import LabelerError, SettingsError
from stacksl.labelers.protocol import Labeler, Pending
from stacksl.ledger.purchases import Answer, Purchase

NONE = -1  # the answer of an item of which no candidate is right


class OracleLabeler:
    """The data file's own answers, at once, each at the purchase's price."""

    name = "oracle"
    repeatable = True

    def __init__(self, answers: Mapping[str, int], sizes: Mapping[str, int]) -> None:
        """Store the answers.

        Args:
            answers: item id to the index of its gold candidate; `NONE` for "none of these".
            sizes: item id to K, for every item that may be asked.

        Raises:
            LabelerError: items without an answer.
        """
        missing = [item for item in sizes if item not in answers]
        if missing:
            raise LabelerError(
                "the run reveals the answers that the file has, and it has none to"
                f" {len(missing)} of {len(sizes)} items (the first is '{missing[0]}'): let people"
                " answer with --labeler file, add the answers, or leave these items out of the file"
            )
        self._answers = {item: int(answers[item]) for item in sizes}
        self._ready: dict[tuple[str, int, int], Answer] = {}

    def ask(self, requests: Sequence[Purchase]) -> None:
        """Look the answers up; only the purchase of a request is read."""
        for p in requests:
            if p.item not in self._answers:
                raise LabelerError(
                    f"the labeler was asked for item '{p.item}', which is not in its file"
                )
            index = self._answers[p.item]
            answer = p.answer(None if index == NONE else index, self.name, p.price)
            self._ready[p.item, p.slot, p.token] = answer

    def answers(self) -> list[Answer]:
        """The answers to the requests, in their order, once."""
        ready = list(self._ready.values())
        self._ready.clear()
        return ready

    def pending(self) -> list[Pending]:
        """No answer is open."""
        return []


def _oracle(
    argument: str | None, answers: Mapping[str, int], sizes: Mapping[str, int], seed: int
) -> Labeler:
    """`oracle`: the file's own answers."""
    if argument is not None:
        raise SettingsError(f"the labeler 'oracle' takes nothing after it, got 'oracle:{argument}'")
    return OracleLabeler(answers, sizes)


Maker = Callable[[str | None, Mapping[str, int], Mapping[str, int], int], Labeler]

LABELERS: Final[dict[str, Maker]] = {"oracle": _oracle}
"""Every labeler by the name its setting begins with.

A maker gets what follows the name after a colon (None without a colon), the file's answers by item
id, K of every item that may be asked by its id, and the run's seed.
"""
