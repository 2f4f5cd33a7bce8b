"""Those who know the answers: at once, tomorrow, twice or never."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol, runtime_checkable

from stacksl.errors import LabelerError, SettingsError, unknown_name
from stacksl.ledger.purchases import Answer, Purchase
from stacksl.types import Item


@dataclass(frozen=True, slots=True)
class Request(Purchase):
    """A purchase with what is to be answered.

    Attributes:
        prompt: what the item asks.
        candidates: what can be answered, in the order in which it is shown.
        order: for each of them its index in the item's own list, which an `Answer` names.
    """

    prompt: str
    candidates: tuple[str, ...]
    order: tuple[int, ...]

    @classmethod
    def of(cls, purchase: Purchase, item: Item, order: tuple[int, ...]) -> Request:
        """The request for a purchase of `item`, whose candidates are shown in this `order`."""
        p, candidates = purchase, tuple(item.candidates[index] for index in order)
        about = (p.item, p.slot, p.token, p.round, p.purpose, p.price)
        return cls(*about, item.prompt, candidates, order)

    def answer(self, position: int, labeler: str, price: int = 0) -> Answer:
        """The answer that the candidate shown at `position` is the right one."""
        return Answer(self.item, self.slot, self.token, self.order[position], labeler, price)


class Pending(NamedTuple):
    """Where answers are waited for: a `place`, such as the path of a sheet, and how many."""

    place: str
    open: int


@runtime_checkable
class Labeler(Protocol):
    """One who can be asked for labels.

    Attributes:
        name: as it stands in the ledger.
        repeatable: gives the same answer again, for free. Its answers need not be on disk before
            they are learnt from.
    """

    name: str
    repeatable: bool

    def ask(self, requests: Sequence[Request]) -> None:
        """Ask for labels; asking again with the same token asks nothing new."""
        ...

    def answers(self) -> list[Answer]:
        """What was answered since the last call: perhaps nothing, perhaps out of order."""
        ...

    def pending(self) -> list[Pending]:
        """Where answers are waited for; called when the run can go on with answers alone.

        Whoever gathers what is asked sends it now. A labeler that answers at once waits for none.
        """
        ...


class OracleLabeler:
    """The data file's own answers, at once, each at the purchase's price."""

    repeatable = True

    def __init__(self, answers: Mapping[str, int], sizes: Mapping[str, int]) -> None:
        """Hold the answers.

        Args:
            answers: item id to the index of its gold candidate.
            sizes: item id to K, for every item that may be asked.

        Raises:
            LabelerError: items without an answer, or with one outside their candidates.
        """
        self.name = "oracle"
        self._answers = _complete(answers, sizes, self.name)
        self._asked: dict[tuple[str, int, int], Answer] = {}

    def ask(self, requests: Sequence[Purchase]) -> None:
        """Look the answers up; of a request only the purchase matters."""
        for p in requests:
            index = self._answers[_known(p, self._answers)]
            key = (p.item, p.slot, p.token)
            self._asked[key] = Answer(*key, index, self.name, p.price)

    def answers(self) -> list[Answer]:
        """The answers to what was asked, in that order, once."""
        given = list(self._asked.values())
        self._asked.clear()
        return given

    def pending(self) -> list[Pending]:
        """Nothing is waited for."""
        return []


class NoisyLabeler:
    """The data file's answers, but each with probability P a wrong one, drawn uniformly.

    Whether and how slot s of item i is wrong is a function of (seed, i, s) alone: u and v in
    [0, 1) are the halves of a keyed BLAKE2b hash; the answer is wrong iff u < P, and then the
    ⌊v·(K − 1)⌋-th of the wrong candidates. An item with one candidate is never wrong.
    """

    repeatable = True

    def __init__(
        self, probability: float, answers: Mapping[str, int], sizes: Mapping[str, int], seed: int
    ) -> None:
        """Hold the answers; see `OracleLabeler` for the arguments.

        Raises:
            SettingsError: a probability outside [0, 1].
            LabelerError: items without an answer, or with one outside their candidates.
        """
        if not 0.0 <= probability <= 1.0:
            raise SettingsError(
                f"the labeler 'noisy:P' needs a probability P from 0 to 1, came {probability:g}"
            )
        self.name = f"noisy:{probability:g}"
        self._probability = probability
        self._answers = _complete(answers, sizes, self.name)
        self._sizes = dict(sizes)
        self._seed = seed
        self._asked: dict[tuple[str, int, int], Answer] = {}

    def ask(self, requests: Sequence[Purchase]) -> None:
        """Draw the answers; of a request only the purchase matters."""
        for p in requests:
            index = self._drawn(_known(p, self._answers), p.slot)
            key = (p.item, p.slot, p.token)
            self._asked[key] = Answer(*key, index, self.name, p.price)

    def answers(self) -> list[Answer]:
        """The answers to what was asked, in that order, once."""
        given = list(self._asked.values())
        self._asked.clear()
        return given

    def pending(self) -> list[Pending]:
        """Nothing is waited for."""
        return []

    def _drawn(self, item: str, slot: int) -> int:
        gold, wrong = self._answers[item], self._sizes[item] - 1
        text = f"{self._seed}\x00{slot}\x00{item}".encode("utf-8", "surrogatepass")
        digest = blake2b(text, digest_size=16, key=b"stacksl noisy").digest()
        u, v = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")
        if wrong < 1 or u >= self._probability * 2.0**64:
            return gold
        other = (v * wrong) >> 64
        return other if other < gold else other + 1


def _oracle(
    rest: str | None, answers: Mapping[str, int], sizes: Mapping[str, int], seed: int
) -> Labeler:
    """`oracle`: the file's own answers."""
    if rest is not None:
        raise SettingsError(f"the labeler 'oracle' takes nothing after it, came 'oracle:{rest}'")
    return OracleLabeler(answers, sizes)


def _noisy(
    rest: str | None, answers: Mapping[str, int], sizes: Mapping[str, int], seed: int
) -> Labeler:
    """`noisy:P`: the file's own answers, each wrong with probability P (for studies)."""
    try:
        probability = float(rest or "")
    except ValueError:
        raise SettingsError(
            f"the labeler 'noisy:P' needs a probability P from 0 to 1, came {rest!r}"
        ) from None
    return NoisyLabeler(probability, answers, sizes, seed)


Maker = Callable[[str | None, Mapping[str, int], Mapping[str, int], int], Labeler]

LABELERS: Final[dict[str, Maker]] = {"oracle": _oracle, "noisy": _noisy}
"""Every labeler by the word its setting begins with."""


def make_labeler(
    spec: str, answers: Mapping[str, int], sizes: Mapping[str, int], seed: int
) -> Labeler:
    """The labeler that a setting names.

    Args:
        spec: `oracle`, or `noisy:P`.
        answers: item id to the index of its gold candidate.
        sizes: item id to K, for every item that may be asked.
        seed: the run's seed.

    Raises:
        SettingsError: an unknown name or a wrong parameter.
        LabelerError: it cannot answer every item.

    Example:
        >>> labeler = make_labeler("oracle", {"q1": 1}, {"q1": 4}, seed=0)
        >>> labeler.ask([Purchase("q1", 0, 1, 1, "train", 0)])
        >>> labeler.answers()[0].index
        1
    """
    name, colon, rest = spec.partition(":")
    if name not in LABELERS:
        raise unknown_name("labeler", name, LABELERS)
    return LABELERS[name](rest if colon else None, answers, sizes, seed)


def _complete(answers: Mapping[str, int], sizes: Mapping[str, int], name: str) -> dict[str, int]:
    """The answers, after every item was found to have a possible one."""
    missing = [item for item in sizes if item not in answers]
    if missing:
        raise LabelerError(
            f"the labeler '{name}' needs an answer for each of the {len(sizes)} items, "
            f"{len(missing)} have none (the first is '{missing[0]}'): add the answers, leave these "
            "items out of the file, or let people answer with --labeler file"
        )
    wrong = [item for item, size in sizes.items() if not 0 <= answers[item] < size]
    if wrong:
        first = wrong[0]
        raise LabelerError(
            f"an answer should be the index of one of the item's candidates, that of '{first}' "
            f"is {answers[first]} of {sizes[first]}: correct the file"
        )
    return {item: int(answers[item]) for item in sizes}


def _known(purchase: Purchase, answers: Mapping[str, int]) -> str:
    if purchase.item not in answers:
        raise LabelerError(
            f"the labeler was asked for item '{purchase.item}', which is not in its file"
        )
    return purchase.item
