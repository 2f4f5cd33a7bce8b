"""One call of the command line: from the words typed to an exit code, never with a traceback.

====  ==========================================================================
code  meaning
====  ==========================================================================
0     done
1     a fault of ours; the sentence asks to report it with ``--debug``
2     what was asked cannot be done: one sentence says what to do instead
130   stopped with Ctrl-C; the sentence has the command that continues
141   whoever read stdout went away (``stacksl predict ... | head``)
====  ==========================================================================

Of several processes of one command (torchrun --nproc-per-node 2 -m stacksl run ...) the first runs
it, and the others serve its calls of the model.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib import import_module
from typing import Any

import typer

from stacksl.errors import SettingsError, StackslError, kind_and_place

# the root of the usage errors, whether typer includes click or imports it
_ClickException: type[Any] = typer.BadParameter.__mro__[2]


def settle_streams() -> None:
    """Make stdin, stdout and stderr accept any text.

    A stream that was closed (``>&-``) becomes the null device, whose number no file of a run can
    then be given. What an encoding cannot write (``LANG=C``) is escaped.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - kept
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


REMOVED = {
    "compare": "use `stacksl-lab compare FILE`",
    "data": "use `stacksl run FILE --dry-run`",
    "people": "`stacksl status RUN` lists who answers, `stacksl change RUN --away NAME` changes it",
    "plan": "`stacksl run FILE --dry-run` forecasts a file, `stacksl status RUN` a run",
    "refit": "use `stacksl change RUN --train-on-audit`",
    "reproduce": "use `stacksl-lab reproduce STUDY`",
    "size": "use `stacksl run DATA --model NAME --adapt lora --dry-run`",
    "ledger export": "use `stacksl export RUN --labels FILE`",
    "export --task": "`stacksl run --test FILE` leaves FILE as a task of lm-eval in model/lm_eval",
    "resume --set": "use `stacksl change RUN --set NAME=VALUE`",
    "ls studies": "use `stacksl-lab reproduce`",
    "--aim": "give `--gate information` in place of regret, and nothing in place of model",
    "--pairs": "use `--labels FILE`, whose rows have the options",
    "--buy-anew": "`stacksl change RUN --budget B` buys labels of other items instead",
    "--no-text": "`stacksl report RUN` writes a report that has no prompts and no ids",
    "--strict": "`stacksl run FILE --dry-run` lists the unusable rows",
    "--bank": "give each question its candidates in the data file",
    "--wait": "a command waits 30 seconds for the process that holds the run; then give it again",
    "--rounds": "`head -n N FILE | stacksl run - --mode stream --set order=file` plays N lines",
}
"""Verbs and options of earlier versions, each with what to use now."""


def call(words: Sequence[str], program: str = "stacksl", app: str = "stacksl.cli.app") -> int:
    """The exit code of `stacksl WORDS`; see the table above.

    Nothing is raised, and a traceback is printed only where the words hold ``--debug``. `app` is
    the module of the verbs of `program`.
    """
    try:
        flags = {word.partition("=")[0] for word in words if word[:2] == "--"}
        typed = {*words[:1], " ".join(words[:2]), *flags, *(f"{words[0]} {flag}" for flag in flags)}
        for removed in typed & REMOVED.keys() if program == "stacksl" else ():
            name = removed if removed[0] == "-" else f"stacksl {removed}"
            raise SettingsError(f"`{name}` is gone: {REMOVED[removed]}")
        code = _invoke(_named(words), program, app)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # to the null device, so that the flush at exit cannot fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (KeyboardInterrupt, Exception) as error:
        verb = " ".join([program, *[word for word in words[:1] if word[:1] != "-"]])
        sentence, code = _sentence_and_code(error, verb, debug="--debug" in words)
    if sentence:
        from stacksl.cli.printing import visible

        sys.stdout.flush()
        print(f"{program}: {visible(sentence)}", file=sys.stderr)
    return code


def _named(words: Sequence[str]) -> list[str]:
    """The words with an empty name after a --free without one, which the parser cannot read."""
    followers = [*words[1:], "--"]  # one more than no words at all
    return [
        "--free=" if word == "--free" and following.startswith("-") else word
        for word, following in zip(words, followers, strict=False)
    ]


def _invoke(words: list[str], program: str, app: str) -> int:
    command = typer.main.get_command(import_module(app).app)
    try:
        with command.make_context(program, words) as context:
            command.invoke(context)
    except typer.Exit as exit_:
        return int(exit_.exit_code)
    finally:
        if (heads := sys.modules.get("stacksl.cli.heads")) is not None:
            heads.keep()
    return 0


def _sentence_and_code(error: BaseException, verb: str, *, debug: bool) -> tuple[str, int]:
    if isinstance(error, _ClickException):
        return _usage(error, verb)
    if isinstance(error, KeyboardInterrupt):
        again = "give the same command again, or `stacksl ls` if it says that the run has ended"
        return str(error) or f"stopped; what was recorded is kept: {again}", 130
    if isinstance(error, typer.Abort):
        return "stopped before anything was bought", 130
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, StackslError):
        return str(error), 2
    if isinstance(error, OSError):
        file, why = f" {error.filename!r}" if error.filename else "", error.strerror or error
        return f"the system refused{file}: {why}; check the path and the free space", 2
    hint = "see above" if debug else "please report it with what the same command and --debug print"
    return f"unexpected {kind_and_place(error)} ({hint})", 1


def _usage(error: BaseException, verb: str) -> tuple[str, int]:
    """What is said of a mistyped command; a bare `stacksl` or `stacksl ledger` shows the help."""
    if type(error).__name__ == "NoArgsIsHelpError":  # typer has printed the help by now
        return "", 0
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else verb
    message = " ".join(error.format_message().split()).rstrip(".")  # type: ignore[attr-defined]
    message = message[:1].lower() + message[1:].replace(". Did", ": did")
    return f"{message}{'' if message.endswith('?') else ';'} see `{path} --help`", 2


def in_crew(play: Callable[[], int]) -> int:
    """The exit code of `play`, which only the first of several processes runs.

    The others serve it until it is done, or one of them says why it cannot. Torch is loaded only
    where there is more than one process.
    """
    count, number = int(os.environ.get("WORLD_SIZE") or "1"), int(os.environ.get("RANK") or "0")
    if count < 2:
        return play()
    from stacksl.lm.distributed import current_processes
    from stacksl.lm.worker import Worker

    try:
        with closing(current_processes()) as processes:
            if number == 0:
                return play()
            processes.serve(Worker(processes))
    except (KeyboardInterrupt, Exception) as error:
        sentence, code = _sentence_and_code(error, "stacksl", debug=False)
        place = f"process {number + 1} of {count}"
        sys.stderr.write(f"stacksl: {place}: {sentence}\n")  # in one piece
        if number == 0:
            return code
    return 0  # or the launcher would end the first process before it says what it lost
