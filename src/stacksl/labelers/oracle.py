"""The labelers that read the answers of the data file; those of studies make some wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from stacksl.errors import LabelerError, SettingsError
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
            LabelerError: items without an answer, or with one outside their candidates.
        """
        self._answers = _complete(answers, sizes, self.name)
        self._asked: dict[tuple[str, int, int], Answer] = {}

    def ask(self, requests: Sequence[Purchase]) -> None:
        """Look the answers up; only the purchase of a request is read."""
        for p in requests:
            index = self._index(p.item, p.slot)
            key = (p.item, p.slot, p.token)
            self._asked[key] = (
                Answer(*key, None, self.name, p.price, "none")
                if index == NONE
                else Answer(*key, index, self.name, p.price)
            )

    def _index(self, item: str, slot: int) -> int:
        """The candidate given as the answer to slot `slot` of an item."""
        return self._gold(item)

    def _gold(self, item: str) -> int:
        if item not in self._answers:
            raise LabelerError(f"the labeler was asked for item '{item}', which is not in its file")
        return self._answers[item]

    def answers(self) -> list[Answer]:
        """The answers to the requests, in their order, once."""
        given = list(self._asked.values())
        self._asked.clear()
        return given

    def pending(self) -> list[Pending]:
        """No answer is open."""
        return []


class NoisyLabeler(OracleLabeler):
    """The data file's answers, but each with probability P a wrong one, drawn uniformly.

    Whether and how slot s of item i is wrong is a function of (seed, i, s) alone: u and v in
    [0, 1) are the halves of a keyed BLAKE2b hash; the answer is wrong iff u < P, and then the
    ⌊v·(K − 1)⌋-th of the wrong candidates. An item with one candidate or none
    that is right is never answered wrongly.
    """

    def __init__(
        self, probability: float, answers: Mapping[str, int], sizes: Mapping[str, int], seed: int
    ) -> None:
        """Store the answers; see `OracleLabeler` for the arguments.

        Raises:
            SettingsError: a probability outside [0, 1].
            LabelerError: items without an answer, or with one outside their candidates.
        """
        if not 0.0 <= probability <= 1.0:
            raise SettingsError(
                f"the labeler 'noisy:P' needs a probability P from 0 to 1, got {probability:g}"
            )
        self.name = f"noisy:{probability:g}"
        super().__init__(answers, sizes)
        self._probability = probability
        self._sizes = dict(sizes)
        self._seed = seed

    def _index(self, item: str, slot: int) -> int:
        gold, wrong = self._gold(item), self._sizes[item] - 1
        text = f"{self._seed}\x00{slot}\x00{item}".encode("utf-8", "surrogatepass")
        digest = blake2b(text, digest_size=16, key=b"stacksl noisy").digest()
        u, v = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")
        if wrong < 1 or gold == NONE or u >= self._probability * 2.0**64:
            return gold
        other = (v * wrong) >> 64
        return other if other < gold else other + 1


def _complete(answers: Mapping[str, int], sizes: Mapping[str, int], name: str) -> dict[str, int]:
    """The answers, after a check that every item has a valid one."""
    missing = [item for item in sizes if item not in answers]
    if missing:
        raise LabelerError(
            f"the labeler '{name}' needs an answer for each of the {len(sizes)} items, "
            f"{len(missing)} have none (the first is '{missing[0]}'): add the answers, leave these "
            "items out of the file, or let people answer with --labeler file"
        )
    wrong = [item for item, size in sizes.items() if not NONE <= answers[item] < size]
    if wrong:
        first = wrong[0]
        raise LabelerError(
            f"an answer should be the index of one of the item's candidates, that of '{first}' "
            f"is {answers[first]} of {sizes[first]}: correct the file"
        )
    return {item: int(answers[item]) for item in sizes}
