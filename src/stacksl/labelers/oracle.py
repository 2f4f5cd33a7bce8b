"""The labeler that reads the answers of the data file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stacksl.errors import LabelerError
from stacksl.labelers.protocol import Pending
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
                f"the run reveals the answers that the file has, but of {len(sizes)} items"
                f" {len(missing)} have none (the first is '{missing[0]}'): let people answer with"
                " --labeler file, add the answers, or leave these items out of the file"
            )
        self._answers = {item: int(answers[item]) for item in sizes}
        self._asked: dict[tuple[str, int, int], Answer] = {}

    def ask(self, requests: Sequence[Purchase]) -> None:
        """Look the answers up; only the purchase of a request is read."""
        for p in requests:
            if p.item not in self._answers:
                raise LabelerError(
                    f"the labeler was asked for item '{p.item}', which is not in its file"
                )
            index = self._answers[p.item]
            key = (p.item, p.slot, p.token)
            self._asked[key] = (
                Answer(*key, None, self.name, p.price, "none")
                if index == NONE
                else Answer(*key, index, self.name, p.price)
            )

    def answers(self) -> list[Answer]:
        """The answers to the requests, in their order, once."""
        given = list(self._asked.values())
        self._asked.clear()
        return given

    def pending(self) -> list[Pending]:
        """No answer is open."""
        return []
