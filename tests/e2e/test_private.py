"""No run reaches for the network: with sockets watched, and where there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from .conftest import write_classes

WATCH = '''
import os, sys

HERE = ("127.", "::1", "localhost")


def watch(event, arguments):
    """Refuse and note whatever would leave the machine; files of sockets and loopback may pass."""
    if event in ("socket.connect", "socket.bind", "socket.sendto"):
        place = arguments[1]
        outside = isinstance(place, tuple) and not str(place[0]).startswith(HERE)
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        outside = arguments[0] is not None and not str(arguments[0]).startswith(HERE)
    else:
        return
    if outside:
        with open(os.environ["WATCHED"], "a") as file:
            file.write(f"{event} {arguments[-1] if event == 'socket.connect' else arguments[0]}\\n")
        raise PermissionError("no way out of this machine")


sys.addaudithook(watch)
'''
PLAY = """
import json, os, sys
from stacksl.cli.entry import call

for words in json.loads(sys.stdin.read()):
    if code := call(words):
        sys.exit(f"{words} ended with {code}")
NAMES = "HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK", "RAY_USAGE_STATS_ENABLED"
print(json.dumps([n for n in NAMES if n in os.environ]))
"""
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
Commands = Sequence[Sequence[str]]


def surroundings(folder: Path) -> dict[str, str]:
    """The environment of a user who never heard of offline modes, with a cache of its own."""
    kept = {name: value for name, value in os.environ.items() if name not in OFFLINE}
    return {**kept, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}


@pytest.fixture
def watched(tmp_path: Path) -> Callable[..., str]:
    """Plays commands, or a script, in a process whose way out is watched; gives its stdout."""
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch" / "sitecustomize.py").write_text(WATCH, encoding="utf-8")
    noted = tmp_path / "noted"
    noted.touch()

    def play(commands: Commands = (), script: str = PLAY) -> str:
        environment = {
            **surroundings(tmp_path),
            "PYTHONPATH": str(tmp_path / "watch"),
            "WATCHED": str(noted),
        }
        done = subprocess.run(
            [sys.executable, "-c", script],
            input=json.dumps([list(words) for words in commands]),
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            timeout=900,
        )
        tried = noted.read_text()
        assert not tried, f"it reached for the network: {tried}"
        assert done.returncode == 0, done.stderr
        return done.stdout

    return play


def main_job(*more: str) -> list[list[str]]:
    """A run with all that comes after it."""
    run = ["run", "data.csv", "--test", "test.csv", "--budget", "12", "--out", "r", *more]
    return [
        [*run, "--quiet"],
        ["resume", "r"],
        ["evaluate", "r", "test.csv"],
        ["predict", "r", "test.csv", "--out", "said.jsonl"],
        ["report", "r"],
        ["status", "r"],
        ["ledger", "verify", "r"],
        ["ledger", "replay", "r"],
    ]


def write_job(folder: Path) -> None:
    write_classes(folder / "data.csv", 48)
    write_classes(folder / "test.csv", 24, seed=1)


def test_the_watch_sees_who_goes_out(watched: Callable[..., str]) -> None:
    for call in ("s.connect(('192.0.2.1', 80))", "socket.getaddrinfo('example.org', 80)"):
        script = f"import socket\ns = socket.socket()\ntry:\n    {call}\nexcept OSError: pass"
        with pytest.raises(AssertionError, match=r"reached for the network: socket\."):
            watched(script=script)


def test_the_main_job_opens_no_socket(watched: Callable[..., str], tmp_path: Path) -> None:
    write_job(tmp_path)
    watched(main_job())
    assert (tmp_path / "r" / "report.html").exists()


@pytest.mark.slow
def test_a_local_encoder_opens_no_socket(watched: Callable[..., str], tmp_path: Path) -> None:
    if find_spec("sentence_transformers") is None:
        pytest.skip("the extra 'sentences' is not installed")
    from ..features.conftest import write_encoder

    write_encoder(tmp_path / "encoder")
    write_job(tmp_path)
    said = watched(main_job("--features", "sentences:encoder")[:4:3])
    switched_off = ["HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK", "RAY_USAGE_STATS_ENABLED"]
    assert json.loads(said.splitlines()[-1]) == switched_off


@pytest.mark.slow
def test_the_sample_language_model_opens_no_socket(watched: Callable[..., str], tmp_path) -> None:
    pytest.importorskip("peft")
    run = ["run", "--model", "sample", "--budget", "8", "--epochs", "1", "--refit-at", "1"]
    watched([[*run, "--out", "r", "--quiet"], ["ledger", "verify", "r"], ["status", "r"]])
    assert json.loads((tmp_path / "r" / "facts.json").read_text())["budget"]["answered"] == 8


@pytest.mark.slow
def test_the_main_job_needs_no_network_at_all(tmp_path: Path) -> None:
    """In a namespace without any network, not even loopback."""
    alone = ["unshare", "--map-root-user", "--net"]
    try:
        subprocess.run([*alone, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no network namespace can be made here (unshare --map-root-user --net)")
    write_job(tmp_path)
    reach = "import socket; socket.create_connection(('127.0.0.1', 9), 1)"
    lost = subprocess.run([*alone, sys.executable, "-c", reach], capture_output=True, text=True)
    assert "Network is unreachable" in lost.stderr
    done = subprocess.run(
        [*alone, sys.executable, "-c", PLAY],
        input=json.dumps(main_job()),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=surroundings(tmp_path),
    )
    assert done.returncode == 0, done.stderr
