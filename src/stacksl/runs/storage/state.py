"""Writing of `state.json`: the state of a run from its creation to its end, failures included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from stacksl.errors import RunError, StackslError, kind_and_place
from stacksl.labelers.protocol import Labeler
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import TIMES, RunFolder, State


def begin(folder: RunFolder, warnings: Sequence[str], labeler: Labeler | None) -> None:
    """Write the first state of a run, before its `run.toml`.

    So a run that is killed early still has the warnings about its data, and the name of a labeler
    that is a Python object.
    """
    own = {} if labeler is None else {"labeler": _name(labeler)}
    folder.write_state("running", warnings=unique((), warnings), **own)


@dataclass(slots=True)
class Record:
    """The contents of `state.json` while a run is open.

    Attributes:
        folder: of the run.
        facts: all that the file has besides the state.
    """

    folder: RunFolder
    facts: dict[str, Any]
    _before: dict[str, Any]

    @classmethod
    def resume(cls, spec: RunSpec, labeler: Labeler | None) -> Record:
        """Mark the run as running; earlier facts are kept.

        Raises:
            RunError: a Python object answered before, and none is given now.
        """
        before = spec.folder.read_state() if (spec.folder.path / "state.json").exists() else {}
        own = expect_labeler(spec.folder, labeler)
        facts: dict[str, Any] = {
            "created": before.get("created", now()),
            "interruptions": list(before.get("interruptions", [])),
            "warnings": list(before.get("warnings", [])),
            "began": bool(before.get("began", False)),
        }
        if own is not None:
            facts["labeler"] = own
        record = cls(spec.folder, facts, before)
        cut = before.get("state") in ("interrupted", "stopped", "failed", "running")
        if "created" in before and cut and not before.get("reopened"):
            was = "interrupted" if before["state"] == "running" else before["state"]
            facts["interruptions"].append(f"resumed {now()} after it was {was}")
            record.warn(spec.changed_versions())
        record.write("running")
        return record

    def warn(self, sentences: Sequence[str]) -> None:
        """Add warnings, each sentence once."""
        self.facts["warnings"] = unique(self.facts["warnings"], sentences)

    def write(self, state: State) -> None:
        """Write the state of the run."""
        self.folder.write_state(state, **self.facts)

    def keep(self) -> None:
        """The state on disk is the one to leave behind."""
        self._before = {}

    def restore_before(self) -> None:
        """Write the state from before the run was opened, since it was not played."""
        if self._before:
            self.folder.write_state(**self._before)

    @contextmanager
    def recording_failure(self) -> Iterator[None]:
        """Write the state `stopped` or `failed` if the block ends so."""
        try:
            yield
        except KeyboardInterrupt:
            self.write("stopped")
            raise
        except BaseException as fault:
            known = isinstance(fault, StackslError)
            sentence = str(fault) if known else f"unexpected {kind_and_place(fault)}"
            with suppress(StackslError):  # the disk may be what failed
                self.folder.write_state("failed", **self.facts, sentence=sentence)
            raise


def expect_labeler(folder: RunFolder, labeler: Labeler | None) -> str | None:
    """The name of the Python object that answers; None where the settings name the labeler.

    Raises:
        RunError: such an object answered before, and none is given now.
    """
    known = folder.read_state().get("labeler")
    if labeler is None and known is not None:
        raise RunError(
            f"the labels of {folder.path} come from the labeler '{known}', an object made in"
            " Python: resume it there, with stacksl.Run.open(...).resume(labeler=...)"
        )
    return None if labeler is None else _name(labeler)


def _name(labeler: Labeler) -> str:
    return str(getattr(labeler, "name", type(labeler).__name__))


def now() -> str:
    """The current time, as times are shown."""
    return datetime.now(UTC).strftime(TIMES)


def unique(known: Sequence[str], new: Sequence[str]) -> list[str]:
    """`known` and what is `new`, each sentence once, in their order."""
    return list(dict.fromkeys([*known, *new]))
