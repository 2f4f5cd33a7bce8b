"""Operations handed over to the page that holds a run: it carries them out, and does not let go.

The page notes in its run's folder where it listens, with a secret that only the owner of the folder
can read. Arguments and results travel as JSON. Where the process of the page was killed, the note
is stale and the lock is free: then the operation is carried out here. So is one that arrives while
the run is ending, once the lock is free.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from stacksl import errors
from stacksl.errors import RunClosed, RunError, StackslError, kind_and_place
from stacksl.files.atomic import write_atomic
from stacksl.runs.storage.folder import WAIT, RunFolder

NOTE = "page-door.json"  # in the run's folder
PATH = "/order"
SECRET = "X-Order-Secret"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Door:
    """Where the page of a run takes operations."""

    folder: RunFolder
    address: str
    port: int
    secret: str

    @classmethod
    def of(cls, folder: RunFolder) -> Door | None:
        """The door of the page that holds a run now; None if no page does."""
        try:
            note = json.loads((folder.path / NOTE).read_bytes())
            found = cls(folder, str(note["address"]), int(note["port"]), str(note["secret"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found if note.get("holder") == folder.holder() and folder.held() else None

    def note(self) -> None:
        """Tell other processes of this door; the caller holds the lock."""
        note = {"address": self.address, "port": self.port, "secret": self.secret}
        text = json.dumps({**note, "holder": self.folder.holder()})
        write_atomic(self.folder.path / NOTE, text)

    def close(self) -> None:
        """Remove the note, if it is this one's."""
        path = self.folder.path / NOTE
        if path.is_file() and self.secret in path.read_text():
            path.unlink(missing_ok=True)

    def call(self, function: Callable[..., T], *words: Any, **named: Any) -> T:
        """The result of `function(folder, *words, **named)`, carried out by the page.

        Raises:
            StackslError: as the function does.
            RunClosed: the page has closed the run, and the function was not called.
            RunError: the page ended on the way, or is busy for too long.
        """
        import http.client

        body = json.dumps({"name": function.__name__, "words": _packed(function, words, named)})
        line = http.client.HTTPConnection(self.address, self.port, timeout=30.0 + WAIT.get())
        headers = {SECRET: self.secret, "Content-Type": "application/json"}
        host = f"[{self.address}]" if ":" in self.address else self.address
        headers |= {"Host": f"{host}:{self.port}", "Origin": f"http://{host}:{self.port}"}
        try:
            line.request("POST", PATH, body.encode(), headers)
            reply = json.loads(line.getresponse().read())
        except ConnectionRefusedError:
            raise RunClosed(f"the page of the run {self.folder.path} has ended") from None
        except TimeoutError:
            raise RunError(
                f"the page of the run {self.folder.path} is busy: look at `stacksl status"
                f" {self.folder.path}` later, and repeat the command if it was not carried out"
            ) from None
        except (OSError, ValueError, http.client.HTTPException):
            raise RunError(
                f"the page of the run {self.folder.path} ended before it replied: repeat the"
                " command, what was entered is kept and not entered twice"
            ) from None
        finally:
            line.close()
        expect_done(reply)
        result: T = _adapter(function, "return").validate_python(reply["result"])
        return result


def carried_out(function: Callable[..., T], folder: RunFolder, *words: Any, **named: Any) -> T:
    """`function(folder, *words, **named)`, by the page that holds the run if one does, else here.

    Raises:
        StackslError: as the function does.
    """
    if (door := Door.of(folder)) is not None:
        with suppress(RunClosed):  # it was ending: the function waits for the lock
            return door.call(function, *words, **named)
    return function(folder, *words, **named)


def result_of(function: Callable[[], Any], like: Callable[..., Any]) -> dict[str, Any]:
    """The reply to `Door.call`: what `function` returns, as `like` is annotated, or its fault."""
    try:
        found = function()
    except StackslError as fault:
        return {"fault": type(fault).__name__, "sentence": str(fault)}
    except Exception as fault:
        return {"fault": "RunError", "sentence": f"unexpected {kind_and_place(fault)}"}
    return {"result": _adapter(like, "return").dump_python(found, mode="json")}


def expect_done(reply: Mapping[str, Any]) -> None:
    """Raise the fault in a reply, if it has one."""
    if "fault" in reply:
        kind = getattr(errors, str(reply["fault"]), RunError)
        raise (kind if issubclass(kind, StackslError) else RunError)(str(reply["sentence"]))


def unpacked(function: Callable[..., Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `function` from JSON.

    Raises:
        ValueError: they are not of the kinds that it takes.
    """
    return {name: _adapter(function, name).validate_python(each) for name, each in words.items()}


def _packed(
    function: Callable[..., Any], words: tuple[Any, ...], named: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments after the folder, by name, as JSON."""
    given = inspect.signature(function).bind_partial(None, *words, **named).arguments
    return {
        name: _adapter(function, name).dump_python(each, mode="json")
        for name, each in given.items()
        if name != "folder"
    }


def _adapter(function: Callable[..., Any], name: str) -> Any:
    from pydantic import TypeAdapter

    hints = get_type_hints(function)
    if name not in hints:
        raise ValueError(f"{function.__name__} has no argument of that name")
    return TypeAdapter(hints[name])
