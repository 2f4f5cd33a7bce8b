"""Each part that the page on extending adds is one module: written to a file, it plays runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest

import stacksl
from stacksl.cli.entry import call
from stacksl.core import GATES, SCORERS
from stacksl.errors import SettingsError
from stacksl.features import FEATURES, make_features
from stacksl.labelers.registry import LABELERS
from stacksl.testing import check_features, check_gate, check_labeler

from ..contracts.scorer_laws import LAWS, SETTINGS
from .pages_cases import BLOCK, PAGES, ROOT

SECTIONS = {
    section.partition("\n")[0]: block
    for section in PAGES["docs/extending.md"].split("\n## ")
    for kind, block in BLOCK.findall(section)
    if kind == "python"
}
"""The code of the page by its heading."""

ITEMS = [stacksl.Item(f"q{n}", f"Is {n} even or odd?", ("even", "odd")) for n in range(40)]
ANSWERS = {item.id: n % 2 for n, item in enumerate(ITEMS)}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder where Python looks for modules; what they add to registries is gone afterwards."""
    for known in (GATES, SCORERS, LABELERS, FEATURES):
        for name in ("unsure", "perceptron", "service", "vectors", "letters"):
            monkeypatch.setitem(known, name, None)
            monkeypatch.delitem(known, name)
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{ROOT / 'src'}")
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


def write(modules: Path, heading: str) -> str:
    """The page's module of a heading as a file; its name."""
    name = "my_" + re.sub(r"\W", "_", heading.lower())
    (modules / f"{name}.py").write_text(SECTIONS[heading], encoding="utf-8")
    sys.modules.pop(name, None)
    return name


def play(folder: Path, **settings: Any) -> stacksl.Run:
    run = stacksl.run(ITEMS, ANSWERS, out=folder, budget=8, **settings)
    assert run.status()["state"] == "finished"
    assert run.status()["asked"] == 8
    return run


def items_asked(run: stacksl.Run) -> list[Any]:
    with run.ledger as ledger:
        return [row["item"] for row in ledger.export()]


def test_every_module_of_the_page_is_tested() -> None:
    assert set(SECTIONS) == {"A gate", "A labeler", "A feature map", "An encoder"}


@pytest.mark.parametrize("mode", ["stream", "pool"])
def test_a_gate_with_a_setting_is_one_module(modules: Path, tmp_path: Path, mode: str) -> None:
    own = {"gate": "unsure", "plugins": write(modules, "A gate"), "mode": mode}
    run = play(tmp_path / "run", **own, **{"gate.level": 0.25})
    assert run.folder.resolved()["gate.level"] == 0.25
    if mode == "stream":
        with run.ledger as ledger:
            thresholds = {row.decision().threshold for row in ledger.rows() if row.event == "round"}
        assert 0.25 in thresholds
        never = play(tmp_path / "never", **own, **{"gate.level": 2.0})
        assert items_asked(never) != items_asked(run)


def test_the_command_line_imports_the_modules_of_a_run(
    modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """`run` by its options; every later verb by what the run recorded."""
    monkeypatch.chdir(tmp_path)
    gate, encoder = write(modules, "A gate"), write(modules, "An encoder")
    rows = (f"{item.prompt},{item.candidates[ANSWERS[item.id]]}\n" for item in ITEMS)
    Path("data.csv").write_text("text,label\n" + "".join(rows), encoding="utf-8")
    words = ["run", "data.csv", "--budget", "8", "--out", "run", "--quiet"]
    words += ["--gate", "unsure", "--set", "gate.level=0.4", "--features", "letters"]
    assert call([*words, "--set", f"plugins={gate},{encoder}"]) == 0
    words = [sys.executable, "-m", "stacksl", "predict", "run", "data.csv"]
    fresh = subprocess.run(words, capture_output=True)
    assert fresh.returncode == 0, fresh.stderr
    capfd.readouterr()
    assert call(["ls", "gates", "--plugins", gate]) == 0
    assert "unsure " in capfd.readouterr().out
    monkeypatch.delitem(sys.modules, gate)
    (modules / f"{gate}.py").unlink()
    assert call(["status", "run"]) == 0, "a run whose module is gone can be looked at"
    capfd.readouterr()
    assert call(["predict", "run", "data.csv"]) == 2
    assert f"the plugin '{gate}' cannot be imported" in capfd.readouterr().err


@pytest.mark.parametrize("text", ["1 +", "import no_such_module_of_anybody", "1 / 0"])
def test_a_module_that_cannot_be_imported_is_named(modules: Path, text: str) -> None:
    (modules / "broken_module.py").write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match="the plugin 'broken_module' cannot be imported"):
        stacksl.prepare(ITEMS, ANSWERS, settings={"plugins": "broken_module"})


def test_a_changed_module_is_warned_of(modules: Path, tmp_path: Path) -> None:
    name = write(modules, "An encoder")
    run = cut_off(tmp_path / "run", plugins=name, features="letters")
    with (modules / f"{name}.py").open("a", encoding="utf-8") as file:
        file.write("# a change\n")
    run.resume()
    assert any("plugins" in warning for warning in run.status()["warnings"])


def test_a_module_that_changed_before_the_budget_is_warned_of(
    modules: Path, tmp_path: Path
) -> None:
    name = write(modules, "An encoder")
    given: dict[str, Any] = {"plugins": name, "features": "letters", "mode": "pool"}
    run = stacksl.run(ITEMS, ANSWERS, out=tmp_path / "run", budget=8, **given)
    with (modules / f"{name}.py").open("a", encoding="utf-8") as file:
        file.write("# a change\n")
    run.change(budget=10)
    assert any("plugins" in warning for warning in run.status()["warnings"])


def cut_off(folder: Path, **settings: Any) -> stacksl.Run:
    """A run that is stopped in the middle, with arrays saved before."""

    def stop(progress: Any) -> None:
        if progress.phase == "rounds" and progress.done >= 25:
            raise KeyboardInterrupt

    settings = {"mode": "stream", "checkpoint_every": 10, "progress": stop, **settings}
    with pytest.raises(KeyboardInterrupt):
        stacksl.run(ITEMS, ANSWERS, out=folder, budget=8, **settings)
    return stacksl.Run.open(folder)


# A labeler that calls a service -----------------------------------------------------------------


class Jobs(ThreadingHTTPServer):
    """A service on this machine: a job for each name, answered when it was looked for twice."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.made: dict[str, Any] = {}
        self.looked: dict[str, int] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def done(self) -> dict[str, int]:
        ready = [name for name, times in self.looked.items() if times >= 2]
        for name in self.made:
            self.looked[name] += 1
        return {name: self.right(name) for name in ready}

    def right(self, name: str) -> int:
        return ANSWERS[name.partition(".")[0]]


class _Handler(BaseHTTPRequestHandler):
    server: Jobs

    def do_PUT(self) -> None:
        job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.made.setdefault(unquote(self.path[1:]), job)
        self.server.looked.setdefault(unquote(self.path[1:]), 0)
        self.reply({})

    def do_GET(self) -> None:
        self.reply(self.server.done())

    def reply(self, told: Any) -> None:
        payload = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Jobs() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_labeler_that_calls_a_service_is_one_module(
    modules: Path, tmp_path: Path, jobs: Jobs
) -> None:
    """It answers late; a run that is resumed until all have come pays each purchase once."""
    settings = {"plugins": write(modules, "A labeler"), "mode": "stream", "audit": 0}
    settings |= {
        "labeler": f"service:{jobs.url}",
        "budget": "$4",
        "price": "0.5",
        "open_questions": 3,
    }
    run, waited = stacksl.run(ITEMS, out=tmp_path / "run", **settings), 0
    while run.status()["state"] == "waiting":
        assert waited < 30
        run.resume()
        waited += 1
    assert waited
    status = run.status()
    assert (status["state"], status["asked"], status["answered"]) == ("finished", 8, 8)
    assert status["money"]["spent"] == 4.0
    assert len(jobs.made) == 8, "each purchase is one job, paid once"
    assert all(set(job) == {"ask", "options"} for job in jobs.made.values())
    with run.ledger as ledger:
        bought = {row["item"]: row["answer"] for row in ledger.export()}
    assert bought == {name.partition(".")[0]: jobs.right(name) for name in jobs.made}


# Features ---------------------------------------------------------------------------------------


def test_vectors_of_ones_own_are_one_module(modules: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = {
        item.prompt: np.array([1.0, -1.0])[[ANSWERS[item.id]]].repeat(3) + rng.normal(0, 0.1, 3)
        for item in ITEMS
    }
    np.savez(tmp_path / "images.npz", **vectors)
    own = {
        "features": f"vectors:{tmp_path / 'images.npz'}",
        "plugins": write(modules, "A feature map"),
    }
    run = play(tmp_path / "run", **own)
    told = [row["index"] for row in run.predict(ITEMS)]
    assert told == list(ANSWERS.values()), "what no text shows is learned from the vectors"
    assert run.replay()["labels"] == len(items_asked(run))
    check_features(lambda: make_features(own["features"], classes=("even", "odd")), ITEMS)
    stopped = cut_off(tmp_path / "stopped", **own)
    stopped.resume()
    assert items_asked(stopped) == items_asked(run)
    with pytest.raises(stacksl.StackslError, match="has no vector for 'Is it blue"):
        list(run.predict([stacksl.Item("q", "Is it blue?", ("even", "odd"))]))


OWN = [stacksl.Item(i.id, i.prompt, (*i.candidates, f"neither {n}")) for n, i in enumerate(ITEMS)]
"""The same items, each with candidates of its own."""


@pytest.mark.parametrize("items", [ITEMS, OWN], ids=["classes", "own candidates"])
def test_an_encoder_is_one_module(modules: Path, tmp_path: Path, items: list[Any]) -> None:
    settings = {"features": "letters", "plugins": write(modules, "An encoder")}
    run = stacksl.run(items, ANSWERS, out=tmp_path / "run", budget=8, **settings)
    assert run.status()["asked"] == 8
    assert len(list(run.predict(items[:3]))) == 3
    assert run.model.features.dim >= 26
    classes = items[0].candidates if items is ITEMS else None
    check_features(lambda: make_features("letters", classes=classes), items)


# The contracts ----------------------------------------------------------------------------------


def test_the_scorer_of_the_examples_plays_a_run(
    modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (modules / "perceptron.py").write_bytes((ROOT / "examples/modules/perceptron.py").read_bytes())
    play(tmp_path / "run", scorer="perceptron", plugins="perceptron")


def test_gate_scorer_and_labeler_pass_their_contracts(modules: Path, jobs: Jobs) -> None:
    import_module(write(modules, "A gate"))
    check_gate(GATES["unsure"])
    (modules / "perceptron.py").write_bytes((ROOT / "examples/modules/perceptron.py").read_bytes())
    import_module("perceptron")
    for law in LAWS:
        for classes in (False, True):
            law("perceptron", classes, SETTINGS["default"])
    import_module(write(modules, "A labeler"))
    check_labeler(lambda: LABELERS["service"](jobs.url, {}, {}, 0))
