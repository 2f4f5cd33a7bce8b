"""What `state.json` tells of a run, from before it is one to its end, and true whatever happens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from stacksl.errors import RunError, StackslError, kind_and_place
from stacksl.labels.labelers import Labeler
from stacksl.runs.folder import TIMES, RunFolder
from stacksl.runs.job import Job

__all__ = ["begin", "expect_labeler", "now", "recorded", "unique"]


def begin(folder: RunFolder, warnings: Sequence[str], labeler: Labeler | None) -> None:
    """Write the first state of a run.

    To be called before `run.toml` is there: a run that is killed as soon as it is one still knows
    what was odd about its data, and that the answers come from an object.
    """
    own = {} if labeler is None else {"labeler": _name(labeler)}
    folder.write_state("running", warnings=unique((), warnings), **own)


@contextmanager
def recorded(job: Job, labeler: Labeler | None) -> Iterator[dict[str, Any]]:
    """Keep `state.json` true whatever happens inside; what it knew already stays.

    Raises:
        RunError: an object answered before and none is given now.
    """
    before = job.folder.read_state() if (job.folder.path / "state.json").exists() else {}
    own = expect_labeler(job.folder, labeler)
    state: dict[str, Any] = {
        "created": before.get("created", now()),
        "interruptions": list(before.get("interruptions", [])),
        "warnings": list(before.get("warnings", [])),
        "began": bool(before.get("began", False)),
    }
    if own is not None:
        state["labeler"] = own
    cut = before.get("state") in ("interrupted", "stopped", "failed", "running")
    if "created" in before and cut and not before.get("reopened"):
        state["interruptions"].append(f"taken up again {now()} after it was {_was(before)}")
        state["warnings"] = unique(state["warnings"], job.changed_versions())
    job.folder.write_state("running", **state)
    try:
        yield state
    except KeyboardInterrupt:
        job.folder.write_state("stopped", **_not_yet(state))
        raise
    except BaseException as fault:
        known = isinstance(fault, StackslError)
        sentence = str(fault) if known else f"unexpected {kind_and_place(fault)}"
        with suppress(StackslError):  # the disk may be what failed
            job.folder.write_state("failed", **_not_yet(state), sentence=sentence)
        raise
    name = state.pop("state", "finished")
    job.folder.write_state(name, **state)


def _not_yet(state: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a run that did not come to the end it was about to tell of."""
    return {name: value for name, value in state.items() if name not in ("state", "sheets")}


def expect_labeler(folder: RunFolder, labeler: Labeler | None) -> str | None:
    """The name of the object that answers, None where the settings say who does.

    Raises:
        RunError: such an object answered before and none is given now: another labeler would
            mix its answers with the first one's.
    """
    known = folder.read_state().get("labeler")
    if labeler is None and known is not None:
        raise RunError(
            f"the labels of {folder.path} come from the labeler '{known}', an object made in"
            " Python: go on there, with stacksl.Run.open(...).resume(labeler=...)"
        )
    return None if labeler is None else _name(labeler)


def _name(labeler: Labeler) -> str:
    return str(getattr(labeler, "name", type(labeler).__name__))


def _was(before: Mapping[str, Any]) -> str:
    return "interrupted" if before["state"] == "running" else str(before["state"])


def now() -> str:
    """The clock, as times are shown."""
    return datetime.now(UTC).strftime(TIMES)


def unique(known: Sequence[str], new: Sequence[str]) -> list[str]:
    """`known` and what is `new`, each sentence once, in their order."""
    return list(dict.fromkeys([*known, *new]))
