"""Operations of other processes that the page carries out on its run; see `api.handover`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from stacksl.api.handover import result_of, unpacked
from stacksl.errors import RunError
from stacksl.runs.changes.change import change_run, preview
from stacksl.runs.changes.correcting import list_corrections, record_corrections
from stacksl.runs.changes.forgetting import forget_in
from stacksl.runs.changes.freeing import free_rows
from stacksl.runs.session.answering import answer
from stacksl.runs.storage.folder import RunFolder

READING = (preview, list_corrections)
CHANGING = (free_rows, change_run, record_corrections, forget_in)
KNOWN: dict[str, Callable[..., Any]] = {f.__name__: f for f in (*READING, *CHANGING, answer)}


@dataclass(slots=True)
class Order:
    """A function of a run's folder to be called with `words`, its result, and the reply to it."""

    function: Callable[..., Any]
    words: Mapping[str, Any]
    outcome: Future[dict[str, Any]] = field(default_factory=Future)
    result: Any = None

    @classmethod
    def of(cls, name: str, words: Mapping[str, Any]) -> Order:
        """The order with this name and arguments as JSON.

        Raises:
            RunError: there is no such order, or its arguments are of other kinds.
        """
        try:
            return cls(KNOWN[name], unpacked(KNOWN[name], words))
        except (KeyError, ValueError):
            raise RunError(f"the page carries out {', '.join(KNOWN)}, got another order") from None

    @property
    def changes(self) -> bool:
        """Whether the run has to be closed for it, and opened again."""
        return self.function in CHANGING

    def carry_out(self, folder: RunFolder) -> None:
        """Call the function and reply; the caller holds the run's lock."""
        with folder.as_held():
            self.reply(lambda: self.function(folder, **self.words))

    def reply(self, function: Callable[[], Any]) -> None:
        """Reply with what `function` returns or raises; nothing is done once nobody waits."""
        if not self.outcome.set_running_or_notify_cancel():
            return

        def noted() -> Any:
            self.result = function()
            return self.result

        self.outcome.set_result(result_of(noted, self.function))
