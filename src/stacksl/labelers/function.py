"""A Python function as a labeler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

from stacksl.errors import LabelerError, SettingsError
from stacksl.labelers.protocol import Labeler, Pending, Request
from stacksl.ledger.purchases import Answer


class FunctionLabeler:
    """Asks `function(request)` for each label, in order.

    The function gets a `Request` with the `prompt` and the `candidates`, and returns a candidate,
    its index in `candidates`, or None where none of them is right. An answer costs the price of the
    purchase. Where the function raises, answers that it gave before are entered first.
    """

    repeatable = False

    def __init__(self, function: Callable[[Request], Any]) -> None:
        self._function = function
        self.name = getattr(function, "__name__", type(function).__name__).strip("<>")
        self.warnings: list[str] = []
        self._open: list[Request] = []
        self._fault: Exception | None = None

    def ask(self, requests: Sequence[Request]) -> None:
        """Note the requests that are not open yet."""
        self._open += [request for request in requests if request not in self._open]

    def answers(self) -> list[Answer]:
        """The function's answers to the open requests.

        Raises:
            LabelerError: the function returned none of the candidates.
        """
        self._raise()
        given = []
        try:
            while self._open:
                given.append(self._answer(self._open[0]))
                del self._open[0]
        except Exception as fault:
            if not given:
                raise
            self._fault = fault
        return given

    def pending(self) -> list[Pending]:
        """Nothing waits: the function answers at once."""
        self._raise()
        return []

    def _raise(self) -> None:
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def _answer(self, asked: Request) -> Answer:
        said = self._function(asked)
        if said is None:
            key = (asked.item, asked.slot, asked.token)
            return Answer(*key, None, self.name, asked.price, "none")
        if isinstance(said, str) and said in asked.candidates:
            return asked.answer(asked.candidates.index(said), self.name, asked.price)
        if isinstance(said, Integral) and 0 <= int(said) < len(asked.candidates):
            return asked.answer(int(said), self.name, asked.price)
        raise LabelerError(
            f"the labeler '{self.name}' should return one of the {len(asked.candidates)} candidates"
            f" of item '{asked.item}', the index of one, or None, got a {type(said).__name__} that"
            " is none of them: correct the function, then resume"
        )


def as_labeler(given: Any) -> Labeler | None:
    """A labeler object, or the labeler that a function is; None for None.

    Raises:
        SettingsError: it is neither.
    """
    if given is None or isinstance(given, Labeler):
        return given
    if callable(given) and not isinstance(given, type):
        return FunctionLabeler(given)
    raise SettingsError(
        "labeler should be a name such as 'oracle', a function, or an object with a name,"
        f" repeatable, ask, answers and pending, got a {type(given).__name__}"
    )
