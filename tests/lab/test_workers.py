"""Processes that play: every call once, faults as they are, and an end at once on Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from pathlib import Path

import pytest

from stacksl.errors import RunError, SettingsError
from stacksl_lab.study.workers import in_processes


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def refuse(number: int) -> int:
    raise SettingsError(f"{number} is refused")


class Odd(Exception):
    """One that cannot be sent."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def refuse_oddly(number: int) -> int:
    raise Odd(number, number)


def die(number: int) -> None:
    os._exit(7)


def note(folder: str, number: int) -> None:
    """Leaves its process behind as a file, and takes its time."""
    Path(folder, f"{number}.{os.getpid()}").touch()
    time.sleep(0.2 if number == 0 else 600)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_every_call_is_played_once() -> None:
    with closing(in_processes(square, [(n,) for n in range(7)], 2)) as played:
        found = dict(played)
    assert {place: answer for place, (answer, _) in found.items()} == {n: n * n for n in range(7)}
    pids = {pid for _, pid in found.values()}
    assert len(pids) <= 2
    assert os.getpid() not in pids
    assert not any(map(alive, pids)), "no process outlives the play"


def test_a_fault_is_what_was_raised_there() -> None:
    with pytest.raises(SettingsError, match="3 is refused") as fault:
        list(in_processes(refuse, [(3,)], 2))
    assert "in refuse" in fault.value.__notes__[0], "with its traceback"
    with pytest.raises(RuntimeError, match="Odd: 3 and 3"):
        list(in_processes(refuse_oddly, [(3,)], 1))


def test_a_process_that_is_ended_from_outside_is_named() -> None:
    with pytest.raises(RunError, match=r"exit code 7.*smaller --jobs"):
        list(in_processes(die, [(1,), (2,)], 1))


def test_closing_ends_what_runs_and_begins_nothing_more(tmp_path: Path) -> None:
    calls = [(str(tmp_path), number) for number in range(9)]
    with closing(in_processes(note, calls, 2)) as played:
        assert next(played) == (0, None)
        start = time.monotonic()
    assert time.monotonic() - start < 300
    begun = [path.name.split(".") for path in tmp_path.iterdir()]
    assert {int(number) for number, _ in begun} <= {0, 1, 2}, "two run at a time"
    assert not any(alive(int(pid)) for _, pid in begun)


STUDY = """
    import sys, time
    from pathlib import Path
    from stacksl.cli import entry
    from stacksl_lab.streams.trial import StreamStudy, Trial
    from stacksl_lab.study.study import Line
    from stacksl_lab.verbs import app

    def trials(quick):
        return [Trial({"out": str(Path(sys.argv[1]))}, (Line("one"),))]

    def stream(out, seed):
        return Path(out)

    def measure(out, line, seed):
        if seed > 1:
            (out / f"runs-{seed}").touch()
            time.sleep(600)
        return {"height": 1.0}

    TOY = StreamStudy("toy", "Toy", "it rises", "long", ("height",), 9, trials, measure, stream)

    if __name__ == "__main__":
        import stacksl_lab.studies
        stacksl_lab.studies.study_named = lambda name: TOY
        words = ["reproduce", "toy", "--jobs", "2", "--out", sys.argv[1]]
        sys.exit(entry.call(words, "stacksl-lab", "stacksl_lab.verbs.app"))
"""


def wait_for(found: Path, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 300
    while not found.exists():
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def test_ctrl_c_ends_everything_at_once_and_keeps_what_is_measured(tmp_path: Path) -> None:
    """As a terminal does it: the signal goes to the command and to its processes alike."""
    script = tmp_path / "toy.py"
    script.write_text(textwrap.dedent(STUDY))
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a test run in a shell's background has it ignored, and hands that on
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        for seed in (2, 3):
            wait_for(tmp_path / f"runs-{seed}", process)
        start = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        printed, said = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert time.monotonic() - start < 300
    assert (process.returncode, printed) == (130, "")
    *progress, last = said.splitlines()
    assert last.startswith("stacksl-lab: stopped; 2 new measurements are kept in ")
    assert len(progress) == 2, said
    assert all("of 9 (seed " in line for line in progress)
    assert len((tmp_path / "toy.jsonl").read_text().splitlines()) == 2
    assert not (tmp_path / "runs-4").exists(), "nothing was taken ahead"
