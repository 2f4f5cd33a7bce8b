"""A Python function as a labeler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from numbers import Integral, Real
from typing import Any, Final

from stacksl.errors import LabelerError, expect
from stacksl.labelers.protocol import Labeler, Pending, Request
from stacksl.ledger.purchases import Answer
from stacksl.report.wording import MICRO

ABSTAIN: Final = object()
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
        self.warnings: list[str] = []
        self._open: list[Request] = []
        self._abstained: list[Request] = []

    def ask(self, requests: Sequence[Request]) -> None:
        """Note the requests that are not open yet."""
        known = [*self._open, *self._abstained]
        self._open += [request for request in requests if request not in known]

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
        if content is ABSTAIN:
            return None
        if content is None:
            return request.answer(None, self.name, price)
        if isinstance(content, str) and content in request.candidates:
            return request.answer(request.candidates.index(content), self.name, price)
        index = isinstance(content, Integral) and not isinstance(content, bool)
        if index and 0 <= int(content) < len(request.candidates):
            return request.answer(int(content), self.name, price)
        raise LabelerError(
            f"the labeler '{self.name}' should return one of the {len(request.candidates)}"
            f" candidates of item '{request.item}', the index of one, None or ABSTAIN, got a"
            f" {type(content).__name__} that is none of them: correct the function, then resume"
        )

    def _price(self, price: Any, request: Request) -> int:
        if isinstance(price, Real) and 0 <= float(price) * MICRO <= request.price:
            return round(float(price) * MICRO)
        raise LabelerError(
            f"the labeler '{self.name}' should return a price from 0 to {request.price / MICRO:g}"
            f" for the answer to item '{request.item}', got {price!r}: give the run that --price"
        )


def as_labeler(given: Any) -> Labeler | None:
    """A labeler object, or the labeler that a function is; None for None.

    Raises:
        SettingsError: it is neither.
    """
    if given is None or (isinstance(given, Labeler) and not isinstance(given, type)):
        return given
    what = "labeler should be a name such as 'oracle', a function, or an object with a name,"
    what += " repeatable, ask, answers and pending"
    expect(callable(given) and not isinstance(given, type), what, given)
    return FunctionLabeler(given)
