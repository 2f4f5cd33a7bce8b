"""The registry of labelers, by the name that their setting begins with; the oracle, a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from numbers import Integral, Real
from typing import Any, Final

from stacksl.data.values import text as text_of
from stacksl.errors import LabelerError, SettingsError, expect, kind_of
from stacksl.labelers.protocol import Labeler, Pending, Request
from stacksl.ledger.purchases import Answer, Purchase
from stacksl.report.wording import MICRO

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
                "the run reveals the answers that the file has, and it has none for"
                f" {len(missing):,} of {len(sizes):,} items (the first is '{missing[0]}'): let"
                " people answer with --labeler file, add the answers, or leave these items out of"
                " the file"
            )
        self._answers = {item: int(answers[item]) for item in sizes}
        self._ready: dict[tuple[str, int, int], Answer] = {}

    def ask(self, requests: Sequence[Purchase]) -> None:
        """Look the answers up; only the purchase of a request is read."""
        for request in requests:
            index = self._answers[request.item]
            answer = request.answer(None if index == NONE else index, self.name, request.price)
            self._ready[request.item, request.slot, request.token] = answer

    def answers(self) -> list[Answer]:
        """The answers to the requests, in their order, once."""
        ready_answers = list(self._ready.values())
        self._ready.clear()
        return ready_answers

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


# A Python function as a labeler -----------------------------------------------------------------


class Abstention(Enum):
    """What a function returns that gives no answer; it is itself in other processes, too."""

    ABSTAIN = "abstain"


ABSTAIN: Final = Abstention.ABSTAIN
"""What a function returns that gives no answer; it costs nothing, and the question stays open."""


class FunctionLabeler:
    """Asks `function(request)` for each label, in order.

    The function gets a `Request` with the `prompt` and the `candidates`, and returns a candidate,
    its index in `candidates`, None where none of them is right, or `ABSTAIN`. An answer costs the
    price of the purchase, or less where the function returns a pair: (answer, price). A question of
    which it abstained is asked again in another session. Each answer is on disk before the next
    question is asked, so that none is lost or asked again where the function raises or is stopped.
    """

    repeatable = False

    def __init__(self, function: Callable[[Request], Any]) -> None:
        self._function = function
        self.name = getattr(function, "__name__", type(function).__name__).strip("<>")
        self._open: list[Request] = []
        self._abstained: list[Request] = []

    def ask(self, requests: Sequence[Request]) -> None:
        """Note the requests that are not open yet."""
        open_requests = [*self._open, *self._abstained]
        self._open += [request for request in requests if request not in open_requests]

    def answers(self) -> Iterator[Answer]:
        """The function's answers to the open requests, each when it is asked for.

        Raises:
            LabelerError: the function returned none of the candidates.
        """
        while self._open:
            answer = self._answer(self._open[0])
            request = self._open.pop(0)
            if answer is None:
                self._abstained.append(request)
            else:
                yield answer

    def pending(self) -> list[Pending]:
        """The questions of which the function abstained."""
        open_now = len(self._abstained)
        return [Pending(self.name, open_now, "it abstained")] if open_now else []

    def _answer(self, request: Request) -> Answer | None:
        """The function's answer to one request; None where it abstains."""
        content, price = self._function(request), request.price
        if isinstance(content, tuple) and len(content) == 2:
            content, price = content[0], self._price(content[1], request)
        if getattr(content, "ndim", None) == 0:  # a number or truth value of numpy or torch
            content = content.item()
        if content is ABSTAIN:
            return None
        if content is None:
            return request.answer(None, self.name, price)
        if isinstance(content, str) and content in request.candidates:
            return request.answer(request.candidates.index(content), self.name, price)
        index = isinstance(content, Integral) and not isinstance(content, bool)
        index = index and 0 <= int(content) < len(request.candidates)
        written = {str(content), text_of(content, "")} if isinstance(content, Real) else set()
        texts = [text for text in request.candidates if text in written]
        if texts and not index:
            return request.answer(request.candidates.index(texts[0]), self.name, price)
        if any(request.candidates.index(text) != content for text in texts):
            raise LabelerError(
                f"the labeler '{self.name}' returned a number that is the text of one candidate of"
                f" item '{request.item}' and may be the index of another: return a text such as"
                " '3', then resume"
            )
        if index:
            return request.answer(int(content), self.name, price)
        raise LabelerError(
            f"the labeler '{self.name}' should return one of the {len(request.candidates)}"
            f" candidates of item '{request.item}', the index of one, None or ABSTAIN, got"
            f" {kind_of(content)} that is none of them: correct the function, then resume"
        )

    def _price(self, price: Any, request: Request) -> int:
        if isinstance(price, Real | Decimal) and 0 <= float(price) * MICRO <= request.price:
            return round(float(price) * MICRO)
        raise LabelerError(
            f"the labeler '{self.name}' should return a price from 0 to {request.price / MICRO:g}"
            f" for the answer to item '{request.item}', got {price!r}: correct the"
            " function, or begin a run with a higher price"
        )


def as_labeler(labeler: Any) -> Labeler | None:
    """A labeler object, or the labeler that a function is; None for None.

    Raises:
        SettingsError: it is neither.
    """
    if labeler is None or (isinstance(labeler, Labeler) and not isinstance(labeler, type)):
        return labeler
    expected = "labeler should be a name such as 'oracle', a function, or an object with a name,"
    expected += " repeatable, ask, answers and pending"
    expect(callable(labeler) and not isinstance(labeler, type), expected, labeler)
    return FunctionLabeler(labeler)
