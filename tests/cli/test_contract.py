"""docs/cli.md against what the verbs print, on a run that really takes place."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from stacksl.api import Run
from stacksl.cli.entry import call

from ..ledgers import bought
from ..tables import write_table
from .test_help import VERBS

DOC = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
TOPICS = {
    "bread": "flour dough oven crust loaf yeast knead bake",
    "sea": "wave salt tide harbour ship anchor sail gull",
    "night": "star moon dark lamp sleep owl dream shadow",
}


def documented() -> dict[str, set[str]]:
    """The keys that each section of the contract lists."""
    parts = re.split(r"^### ", DOC.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {
        part.split("\n", 1)[0].strip("`"): set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE))
        for part in parts
    }


KEYS = documented()
STATE = KEYS["status"] - {"forecast", "people"}
"""What other verbs print of the status, too."""


def write(path: Path, rows: int, start: int = 0) -> Path:
    """Sentences of the topics' words, in turn."""
    table = []
    for n in range(start, start + rows):
        topic, words = list(TOPICS.items())[n % 3]
        word = words.split()
        table.append((f"{word[n % 8]} {word[n // 3 % 8]} {word[n // 5 % 8]} {n}", topic))
    return write_table(path, ("text", "topic"), table)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished run, its data and its test file."""
    folder = tmp_path_factory.mktemp("contract")
    data, test = write(folder / "data.csv", 120), write(folder / "test.csv", 30, start=1000)
    texts = [line.split(",")[0] for line in test.read_text(encoding="utf-8").splitlines()]
    (folder / "bare.csv").write_text("\n".join([*texts, *texts[1:]]) + "\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = ["run", str(data), "--budget", "30", "--test", str(test), "--out", "runs/first"]
        assert call([*words, "--price", "0.5", "--quiet"]) == 0
        yield folder


def test_the_verbs_of_the_contract_are_those_of_the_command_line() -> None:
    own = {verb.removeprefix("stacksl ") for verb in VERBS}
    groups = {f"Group {name}" for name in ("data", "forecast", "size")}
    more = {"run --dry-run", "predict --out", "evaluate without answers"}
    assert {*more, *own, *groups} == {*KEYS, "resume"}


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("status", ["status", "runs/first"]),
        ("report", ["report", "runs/first"]),
        ("evaluate", ["evaluate", "runs/first", "test.csv"]),
        ("evaluate without answers", ["evaluate", "runs/first", "bare.csv"]),
        ("predict --out", ["predict", "runs/first", "test.csv", "--out", "answers.jsonl"]),
        ("run --dry-run", ["run", "data.csv", "--test", "test.csv", "--dry-run"]),
        ("ledger path", ["ledger", "path", "runs/first"]),
        ("ledger verify", ["ledger", "verify", "runs/first"]),
        ("ledger replay", ["ledger", "replay", "runs/first"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_verb_prints_the_keys_of_its_contract(stacksl, folder, section, words) -> None:
    told = stacksl.told(*words)
    assert set(told) == KEYS[section]


def test_a_comparison_prints_the_keys_of_its_contract(folder, capfd) -> None:
    words = ["compare", "data.csv", "--strategies", "random", "--budgets", "9", "--seeds", "1"]
    assert call([*words, "--quiet", "--json"], "stacksl-lab", "stacksl_lab.verbs.app") == 0
    assert set(json.loads(capfd.readouterr().out)) == KEYS["stacksl-lab compare"]


def test_run_and_resume_print_status_and_more(stacksl, folder) -> None:
    told = stacksl.told("run", "data.csv", "--budget", "9", "--out", "runs/second", "--quiet")
    assert set(told) == STATE | KEYS["run"]
    assert (told["budget"], told["asked"], told["left"], told["rounds"]) == (9, 9, 0, 9)
    assert (told["state"], told["money"], told["test"]) == ("finished", None, None)
    again = stacksl.told("resume", "runs/second", "--quiet")
    assert again == told, "a finished run is left as it is"


def test_a_forecast_is_told_until_the_accuracy_is_measured(stacksl, folder) -> None:
    assert stacksl.told("status", "runs/first")["forecast"] is None
    words = ("run", "data.csv", "--budget", "9", "--audit", "0", "--out", "runs/unmeasured")
    stacksl.told(*words, "--quiet")
    assert set(stacksl.told("status", "runs/unmeasured")["forecast"]) == KEYS["Group forecast"]
    words = ("run", "data.csv", "--budget", "30", "--audit", "9", "--out", "runs/erased")
    stacksl.told(*words, "--quiet")
    stacksl.told("forget", "runs/erased", "--id", "row-000003")
    assert stacksl.told("status", "runs/erased")["forecast"] is None, "its facts are erased as well"


def test_money_and_the_test_file_are_told(stacksl, folder) -> None:
    told = stacksl.told("resume", "runs/first")
    assert told["money"] == {"price": 0.5, "budget": 15.0, "spent": 15.0}
    evaluated = stacksl.told("evaluate", "runs/first", "test.csv")
    sentence = told["test"].pop("sentence")
    assert told["test"] == {name: evaluated[name] for name in told["test"]}
    assert sentence in stacksl("status", "runs/first").out
    assert "interval" in told["test"]
    assert "$15.00 of $15.00" in stacksl("status", "runs/first").out


def test_a_prediction_is_a_line_with_the_keys_of_the_contract(stacksl, folder) -> None:
    said = stacksl("predict", "runs/first", "test.csv", "--json")
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert len(rows) == 30
    assert all(set(row) == KEYS["predict"] for row in rows)


def test_runs_are_listed(stacksl, folder) -> None:
    told = stacksl.told("ls")
    assert "runs/first" in [row["run"] for row in told]
    assert set(told[0]) == STATE
    shown = stacksl("ls").out.splitlines()
    assert shown[0].split() == ["run", "state", "rounds", "labels", "budget", "accuracy"]
    assert "no runs in nowhere" in stacksl("ls", "runs", "--folder", "nowhere").out


REGISTRIES = {
    "gates": ("stacksl.core.gates.registry", "GATES"),
    "scorers": ("stacksl.core.scorers", "SCORERS"),
    "labelers": ("stacksl.labelers.registry", "LABELERS"),
    "features": ("stacksl.features", "FEATURES"),
}


BESIDE = {"labelers": {"file", "hf", "openai"}, "gates": {"coverage"}}
"""Labelers that need the run's ledger or folder, and the query strategy that is no gate."""


@pytest.mark.parametrize("kind", REGISTRIES)
def test_names_and_words_are_those_of_the_registry(stacksl, monkeypatch, kind) -> None:
    module, name = REGISTRIES[kind]
    registry = getattr(import_module(module), name)

    class Fresh:
        """A part that came a moment ago. With more to say."""

    monkeypatch.setitem(registry, "fresh", Fresh)
    told = {row["name"]: row["about"] for row in stacksl.told("ls", kind)}
    assert set(told) == set(registry) | BESIDE.get(kind, set())
    assert told["fresh"] == "A part that came a moment ago"


def test_an_unknown_kind_has_its_nearest_match(stacksl) -> None:
    assert "did you mean 'gates'" in stacksl.refused("ls", "gats")


def test_a_row_that_cannot_be_read_is_wrong_and_reported(stacksl, folder) -> None:
    text = (folder / "test.csv").read_text(encoding="utf-8")
    (folder / "faulty.csv").write_text(text + ",sea\n", encoding="utf-8")
    told = stacksl.told("evaluate", "runs/first", "faulty.csv")
    assert (told["n"], told["unusable"]) == (31, 1)
    assert told["rejected"][0]["row"] == 31
    shown = stacksl("evaluate", "runs/first", "faulty.csv")
    assert "row 31" in shown.out
    assert "unusable" not in shown.err, "it is named once"
    said = stacksl("predict", "runs/first", "faulty.csv")
    assert len(said.out.splitlines()) == 30
    assert "row 31 has no prediction" in said.err


def test_a_dry_run_says_what_was_understood_and_what_would_be_bought(stacksl, folder) -> None:
    words = ("run", "data.csv", "--test", "test.csv", "--budget", "30", "--price", "0.5")
    told = stacksl.told(*words, "--features", "hashing", "--dry-run")
    assert set(told["data"]) == KEYS["Group data"]
    assert (told["data"]["items"], told["data"]["rejected"]) == (120, [])
    assert (told["test"]["items"], told["test"]["shared"]) == (30, 0)
    assert (told["labels"], told["money"], told["size"]) == (30, {"price": 0.5, "most": 15.0}, None)
    assert set(told["forecast"]) == KEYS["Group forecast"]
    [row] = told["forecast"]["expected"]
    assert (row["labels"], row["cost"]) == (100, 50.0)
    shown = stacksl(*words, "--features", "hashing", "--dry-run").out
    for part in ("120 rows read as csv", "-test, none of them in the data", "$15.00", "$50.00"):
        assert part in shown
    assert "\nAudit " not in shown, "the test file stands in place of one"
    audited = stacksl(*words, "--features", "hashing", "--audit", "10", "--dry-run").out
    assert "\nAudit     10 of the 30 labels are kept" in audited
    assert not list(folder.glob("runs/*-data"))


def test_a_file_that_a_run_would_refuse_is_refused_with_all_its_rows(stacksl, folder) -> None:
    (folder / "bad.csv").write_text("text,topic\na,x\nb,y\n,x\n,y\n,x\n", encoding="utf-8")
    said = stacksl("run", "bad.csv", "--dry-run", "--json")
    assert said.code == 2
    assert [row["row"] for row in json.loads(said.out)["data"]["rejected"]] == [3, 4, 5]
    assert said.err.startswith("stacksl: 3 of 5 rows")
    shown = stacksl("run", "bad.csv", "--dry-run")
    assert (shown.code, shown.err) == (2, said.err)
    assert "row 4 is unusable: empty prompt" in shown.out
    assert stacksl("run", "bad.csv").out == ""


def purchases(run: str) -> list[tuple[Any, ...]]:
    """Item, slot, state and answer of each purchase of a run, in their order."""
    return [
        (row["item"], row["slot"], row["state"], row["answer"]) for row in bought(Run.open(run))
    ]


def test_a_run_is_played_again_on_its_items_though_the_file_is_another(stacksl, folder) -> None:
    data = write(folder / "once.csv", 60)
    assert stacksl("run", data, "--budget", "9", "--out", "runs/once", "--quiet").code == 0
    write(data, 12, start=500)
    stacksl.done("run", "--config", "runs/once", "--out", "runs/twice", "--quiet")
    assert purchases("runs/twice") == purchases("runs/once")
    for run in ("runs/once", "runs/twice"):
        told = stacksl.told("status", run)
        assert told["warnings"][-1].startswith(f"{data} was changed since the run read it")
        done = stacksl("export", run, "--table", "own.csv")
        assert done.code == 0
        why = f"warning: {data} was changed since the run read it: its rows have ids and texts"
        assert why in done.err
        rows = (folder / "own.csv").read_text(encoding="utf-8").splitlines()
        assert len(rows) == 61, "its own items, none of the file as it is now"


def test_a_model_is_handed_over(stacksl, folder, monkeypatch) -> None:
    said = stacksl.refused("export", "runs/first", "--model", "handed")
    assert "but this run has classes, a refit and 'hashing'" in said
    written: list[Path] = []
    target = "stacksl.models.portable.folder.write_folder"
    monkeypatch.setattr(target, lambda out, *_: written.append(out))
    told = stacksl.told("export", "runs/first", "--model", "handed")
    assert set(told) == KEYS["export"]
    assert told["model"] == "handed"
    assert written == [Path("handed")]


@pytest.mark.parametrize("words", [("--owned", "test.csv"), ("--label-column", "text")])
def test_the_items_of_another_run_are_not_read_in_another_way(stacksl, folder, words) -> None:
    said = stacksl.refused(
        "run", "--config", "runs/first", "--out", "runs/other", *words, "--quiet"
    )
    name = {"--label-column": "columns.label"}.get(words[0], words[0][2:])
    assert f"without another {name}: " in said
    assert not (folder / "runs" / "other").exists()


def test_a_run_is_played_again_from_its_settings_as_a_file(stacksl, folder) -> None:
    text = stacksl("status", "runs/first", "--settings", "--toml").out
    assert tomllib.loads(text) == Run.open("runs/first").folder.config()
    (folder / "first.toml").write_text(text, encoding="utf-8")
    words = ("--config", "first.toml", "--out", "runs/third", "--yes", "--quiet")
    assert stacksl("run", *words).code == 0
    assert purchases("runs/third") == purchases("runs/first")
    again = stacksl("status", "runs/third", "--settings", "--toml").out
    assert tomllib.loads(again) == tomllib.loads(text)
    told = stacksl.told("status", "runs/third", "--settings")
    assert told["budget"] == {"value": "30", "origin": "config"}


def test_what_a_run_is_made_with_is_shown_with_where_it_came_from(stacksl, folder) -> None:
    told = stacksl.told("status", "runs/first", "--settings")
    assert told["budget"] == {"value": "30", "origin": "flag"}
    assert told["gate.name"]["origin"] not in (None, "flag")
    assert told["data"] == {"value": str(folder / "data.csv"), "origin": None}
    assert told["labels"]["value"] == 30
    lines = stacksl("status", "runs/first", "--settings").out.splitlines()
    assert lines[0].split() == ["name", "value", "from"]
    assert ["budget", '"30"', "flag"] in [line.split() for line in lines]
    assert len(lines) >= 1 + len(told)
    said = stacksl.refused("status", "runs/first", "--toml")
    assert "--toml is the form of --settings: give both" in said


def test_another_file_with_the_settings_of_a_run_is_judged_by_its_test_file(
    stacksl, folder
) -> None:
    data, test = write(folder / "once.csv", 30), write(folder / "judge.csv", 20, start=900)
    words = ("--budget", "9", "--test", test, "--out", "runs/tested", "--quiet")
    assert stacksl("run", data, *words).code == 0
    other = write(folder / "other.csv", 30, start=500)
    stacksl.done("run", other, "--config", "runs/tested", "--out", "runs/beside", "--quiet")
    assert stacksl.told("status", "runs/beside")["test"]["n"] == 20
