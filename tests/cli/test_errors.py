"""Whatever goes wrong, one sentence says what to do, and the code tells what kind it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from stacksl.cli.entry import REMOVED
from stacksl.errors import RunError

RUN = ("run", "toy.csv", "--budget", "5", "--out", "first")


@pytest.fixture
def fails(toy: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Lets a run fail once its folder is there."""

    def fail(fault: BaseException) -> None:
        opened = Mock(side_effect=fault)
        monkeypatch.setattr("stacksl.runs.session.session.Session.open", opened)

    return fail


def test_a_mistake_of_the_user_is_one_sentence_and_code_2(stacksl, fails) -> None:
    fails(RunError("the disk is full: free some space,\nthen resume"))
    sentence = "stacksl: the disk is full: free some space, then resume\n"
    assert stacksl.refused(*RUN, "--quiet") == sentence
    said = stacksl(*RUN[:-1], "second", "--quiet", "--debug")
    assert said.code == 2
    assert "Traceback" in said.err
    assert said.err.endswith(sentence)


def test_what_the_system_refuses_is_no_fault_of_ours(stacksl, fails) -> None:
    fails(PermissionError(13, "Permission denied", "/somewhere"))
    assert "/somewhere" in stacksl.refused(*RUN, "--quiet")


def test_ctrl_c_says_how_to_go_on(stacksl, fails, monkeypatch) -> None:
    fails(KeyboardInterrupt())
    said = stacksl(*RUN, "--quiet")
    assert said.code == 130
    assert said.err.endswith("stacksl: stopped; continue with: stacksl resume first\n")
    monkeypatch.setattr("stacksl.api.prepare", Mock(side_effect=KeyboardInterrupt))
    said = stacksl(*RUN)
    assert said.code == 130
    kept = "what was recorded is kept: give the same command again, or `stacksl ls` if it"
    kept += " says that the run has ended"
    assert said.err == f"stacksl: stopped; {kept}\n", "this holds at every moment"


def test_a_run_that_stopped_itself_ends_like_ctrl_c(stacksl, toy) -> None:
    said = stacksl(*RUN, "--json", "--stop-when", "time=0.001s", "--open-questions", "1")
    assert (said.code, said.out) == (130, "")
    assert "stacksl resume first" in said.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["rnu"], "did you mean 'run'? see `stacksl --help`"),
        (["ledger", "verfy", "x"], "did you mean 'verify'? see `stacksl ledger --help`"),
        (["run", "--bugdet", "5"], "--budget"),
        (["evaluate", "runs/first"], "see `stacksl evaluate --help`"),
        (["run", "--seed", "many"], "seed must be a valid integer, not 'many'"),
    ],
)
def test_a_mistyped_command_is_one_line_with_a_hint(stacksl, words, hint) -> None:
    said = stacksl.refused(*words)
    assert said.startswith("stacksl: ")
    assert said.count("\n") == 1
    assert hint in said


@pytest.mark.parametrize("words", REMOVED)
def test_a_verb_that_is_gone_names_the_command_to_use(stacksl, words: str) -> None:
    said = stacksl.refused(*words.split(), "x")
    name = words if words.startswith("--") else f"stacksl {words}"
    assert said == f"stacksl: `{name}` is gone: {REMOVED[words]}\n"


@pytest.mark.parametrize("words", [[], ["ledger"]])
def test_no_verb_shows_the_help_once(stacksl, words) -> None:
    said = stacksl.done(*words)
    assert said.out.count("Usage:") == 1


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """A real pipe, closed after one of very many lines: no word on stderr, the code of SIGPIPE."""
    script = (
        "import sys; from types import ModuleType, SimpleNamespace as S; m = ModuleType('a');"
        "rows = ({'id': i} for i in range(10**6));"
        "read = lambda data, given: S(rejected=());"
        "from pathlib import Path; folder = S(database=Path('none'));"
        "run = S(read=read, predict=lambda data, progress, right: rows, folder=folder);"
        "m.Run = S(open=lambda p: run);"
        "sys.modules['stacksl.api'] = m; p = ModuleType('p'); p.label_parts = None;"
        "p.in_parts = lambda file: False; sys.modules['stacksl.api.parts'] = p;"
        "p.TO_PERSON = p.label_file = p.threshold_of = None;"
        "sys.modules['stacksl.api.labeling'] = p;"
        "from stacksl.cli import main; main()"
    )
    words = [sys.executable, "-c", script, "predict", "runs/first", "new.csv"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b'{"id": 0}\n'
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def shell(command: str, home: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    script = f'stacksl() {{ {sys.executable} -m stacksl "$@"; }}; {command}'
    return subprocess.run(
        ["/bin/sh", "-c", script], cwd=home, capture_output=True, env={**os.environ, **environment}
    )


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `foreign.csv`."""
    home = tmp_path_factory.mktemp("foreign")
    rows = (f"{word} {n},{label}\n" for n in range(20) for word, label in FOREIGN)
    (home / "foreign.csv").write_text("text,label\n" + "".join(rows), encoding="utf-8")
    return home


FOREIGN = (("مرحبا", "جيد"), ("salut", "mauvais 😀"))


def test_closed_streams_are_no_error(foreign: Path, stacksl) -> None:
    """A run whose files must never be given the number of stdin, stdout or stderr."""
    done = shell("stacksl run foreign.csv --out closed --quiet <&- >&- 2>&-", foreign)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert stacksl("ledger", "verify", foreign / "closed").code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("closed", "printed"), [(">&-", False), (">&- 2>&-", False), ("2>&-", True)]
)
def test_a_closed_stream_leaves_the_others_alone(foreign: Path, closed: str, printed: bool) -> None:
    done = shell(f"stacksl run foreign.csv --features hashing --dry-run {closed}", foreign)
    assert (done.returncode, bool(done.stdout), done.stderr) == (0, printed, b"")


NARROW = {"PYTHONIOENCODING": "ascii"}  # an old terminal, or a bare cron job


def test_a_narrow_encoding_escapes_what_it_cannot_write(foreign: Path) -> None:
    said = shell("stacksl run foreign.csv --features hashing --dry-run", foreign, **NARROW)
    assert (said.returncode, said.stderr) == (0, b"")
    assert b"the largest '" in said.stdout
    assert b"\\u062c" in said.stdout


@pytest.mark.slow
def test_json_in_a_narrow_encoding_stays_json(foreign: Path, stacksl) -> None:
    stacksl.done("run", foreign / "foreign.csv", "--out", foreign / "made", "--quiet")
    rows = shell("stacksl predict made foreign.csv --quiet", foreign, **NARROW)
    assert rows.returncode == 0
    choices = {json.loads(line)["choice"] for line in rows.stdout.decode("ascii").splitlines()}
    assert choices <= {label for _, label in FOREIGN}


@pytest.mark.parametrize("kind", ["folder", "empty", "picture", "unreadable"])
@pytest.mark.parametrize(
    "words",
    [
        ("run", "FILE"),
        ("run", "toy.csv", "--owned", "FILE"),
        ("run", "toy.csv", "--classes", "FILE"),
        ("run", "toy.csv", "--test", "FILE"),
        ("run", "toy.csv", "--model-labels", "FILE"),
        ("run", "toy.csv", "--config", "FILE"),
        ("topics", "FILE"),
    ],
    ids=" ".join,
)
def test_a_path_that_is_no_readable_file_is_one_sentence(
    words, kind, stacksl, toy, tmp_path
) -> None:
    path = tmp_path / "odd.csv"
    if kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"\x89PNG\r\n\x1a\n\0\xff" * (kind == "picture"))
    if kind == "unreadable":
        path.chmod(0)
        if os.access(path, os.R_OK):
            pytest.skip("this user may read everything")
    if kind == "empty" and "--config" in words:
        pytest.skip("no settings are a config")
    said = stacksl(*(path.name if word == "FILE" else word for word in words), "--features=hashing")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "Traceback" not in said.err
