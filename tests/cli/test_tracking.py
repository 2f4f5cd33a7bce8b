"""`--report-to`: each refit to a tracker of accelerate, which here only remembers."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stacksl.api import Run
from stacksl.lm import tracking

from ..ledgers import rows_of
from ..runs.people_cases import fill
from ..tables import write_table

TRACKERS: list[Tracker] = []


class Tracker:
    """What a tracker of accelerate was made with and told."""

    def __init__(self, name: str, **where: Any) -> None:
        self.name, self.where, self.rows, self.state = name, where, [], "made"  # type: ignore[var-annotated]
        TRACKERS.append(self)

    def start(self) -> None:
        self.state = "started"

    def log(self, values: dict[str, float], step: int | None = None) -> None:
        assert self.state == "started"
        self.rows.append((step, values))

    def finish(self) -> None:
        self.state = "finished"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of two classes, where the trackers of accelerate are ours."""
    monkeypatch.chdir(tmp_path)
    TRACKERS.clear()
    module = ModuleType("accelerate.tracking")
    module.__dict__["LOGGER_TYPE_TO_CLASS"] = {"mlflow": Tracker, "tensorboard": Tracker}
    monkeypatch.setitem(sys.modules, "accelerate.tracking", module)
    monkeypatch.setitem(sys.modules, "accelerate", ModuleType("accelerate"))
    monkeypatch.setattr(tracking, "find_spec", lambda name: ModuleSpec(name, None))
    topics = [("sand", "beach"), ("moss", "forest")]
    rows = [(f"{topics[n % 2][0]} {n}", topics[n % 2][1]) for n in range(120)]
    write_table(tmp_path / "data.csv", ("text", "label"), rows)
    return tmp_path


RUN = (
    "run",
    "data.csv",
    "--budget",
    "80",
    "--price",
    "2",
    "--features",
    "hashing",
    "-y",
    "--quiet",
)


@pytest.mark.parametrize("name", ["mlflow", "tensorboard"])
def test_each_refit_is_reported_and_nothing_else_changes(stacksl, folder: Path, name: str) -> None:
    assert stacksl(*RUN, "--out", "plain").code == 0
    stacksl.done(*RUN, "--out", "run", "--report-to", name)
    (tracker,) = TRACKERS
    assert tracker.state == "finished"
    where = {"mlflow": {"run_name": "run"}, "tensorboard": {"logging_dir": Path("run")}}
    assert tracker.where == where[name]
    *refits, (step, last) = tracker.rows
    made = sum(row.event == "refit" for row in rows_of(Run.open("run")))
    assert len(refits) in (made, made - 1), "the last refit is that of the end"
    assert len(refits) > 1
    labels = [values["labels"] for _, values in refits]
    assert [step for step, _ in refits] == labels == sorted(labels)
    assert all(values["cost"] == 2 * (values["labels"] + 20) for _, values in refits)
    assert all(0 <= values["accuracy"] <= 1 for _, values in refits if values["labels"])
    audit = Run.open("run").status()["audit"]
    assert (step, last) == (60, {"measured_accuracy": audit["accuracy"]})
    assert Run.open("run").replay() == Run.open("plain").replay()
    models = [Path(each, "model", "head.safetensors").read_bytes() for each in ("run", "plain")]
    assert models[0] == models[1]


def test_of_people_no_accuracy_is_reported_on_the_way(stacksl, folder: Path) -> None:
    stacksl.done(*RUN, "--out", "run", "--labeler", "file", "--sheets", "csv")
    run = Run.open("run")
    while run.status()["state"] == "waiting":
        (path,) = (Path(sheet["file"]) for sheet in run.status()["sheets"])
        fill(path, lambda row: "forest" if "moss" in row["prompt"] else "beach")
        stacksl.done("answer", "run", path, "--quiet", "--report-to", "mlflow")
    rows = [values for tracker in TRACKERS for _, values in tracker.rows if len(values) > 1]
    assert rows
    assert all(set(values) == {"labels", "cost"} for values in rows)
    assert set(TRACKERS[-1].rows[-1][1]) == {"measured_accuracy"}
    assert sum("measured_accuracy" in values for t in TRACKERS for _, values in t.rows) == 1


def test_what_cannot_be_reported_is_one_sentence_before_anything_is_bought(
    stacksl, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = stacksl.refused(*RUN, "--out", "run", "--report-to", "wandb", before=1)
    assert "--report-to should be mlflow or tensorboard, got 'wandb'" in said
    monkeypatch.setattr(tracking, "find_spec", lambda name: None if name == "mlflow" else name)
    said = stacksl.refused(*RUN, "--out", "run", "--report-to", "mlflow", before=1)
    assert "--report-to mlflow needs mlflow: pip install mlflow" in said
    assert not (folder / "run" / "run.db").exists()
