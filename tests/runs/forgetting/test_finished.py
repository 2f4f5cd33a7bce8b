"""A finished run forgets an item: its copy of the data, its report, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stacksl.api import Run, run
from stacksl.files import formats
from stacksl.runs.changes.forgetting import Forgotten, forget
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder

from ..conftest import Finished


def test_items_in_memory_leave_the_copy_in_the_folder(
    pairs: Finished, spoil: Callable[[Finished], Run]
) -> None:
    made = spoil(pairs)
    item = pairs.items[3]
    table = made.folder.resolved()  # the copy lies elsewhere
    there = str(pairs.run.path)
    made.folder.change_settings(
        {
            name: value.replace(there, str(made.path))
            for name, value in table.items()
            if isinstance(value, str) and there in value
        }
    )
    assert item.prompt in (made.path / "data.jsonl").read_text(encoding="utf-8")
    told = forget(made.path, item.id)
    left = (made.path / "data.jsonl").read_text(encoding="utf-8")
    assert "data.jsonl" in told.changed
    assert item.prompt not in left
    assert left.count("\n") == len(pairs.items) - 1
    assert not any("delete the row" in sentence for sentence in told.yours)
    assert made.resume().status()["state"] == "finished"


def test_texts_without_ids_keep_the_ids_that_their_copy_states(tmp_path: Path) -> None:
    """The copy has the number of each row as its id, which does not move with a row before it."""
    texts = [f"card{n % 5} w{n % 7} n{n}" for n in range(30)]
    made = run(
        texts, classes=["a", "b"], labeler="file", budget=10, audit=4, batch=3, sheets="csv",
        features="hashing", out=tmp_path / "run",
    )  # fmt: skip
    for _ in range(2):
        with made.ledger as ledger:
            item = ledger.open_purchases()[0].item
        forget(made.path, item)
        assert Run.open(made.path).resume().status()["state"] == "waiting"
    items = RunSpec.open(RunFolder(made.path)).dataset.items
    assert sum(each.id == f"row-{n:06d}" for n, each in enumerate(items, start=1)) == 28


def test_the_report_shows_it_no_more(pairs: Finished, spoil: Callable[[Finished], Run]) -> None:
    made = spoil(pairs)
    facts = formats.from_json((made.path / "facts.json").read_text())
    entry = facts["contested"][2]
    item = next(each for each in pairs.items if each.id == entry["item"])
    page = (made.path / "report.html").read_text(encoding="utf-8")
    assert item.prompt in page
    told = forget(made.path, item.id)
    assert {"facts.json", "report.html", "README.md"} <= set(told.changed)
    facts["contested"].remove(entry)
    assert formats.from_json((made.path / "facts.json").read_text()) == facts
    assert item.prompt not in (made.path / "report.html").read_text(encoding="utf-8")
    again = Run(pairs.run.path)  # the run that was copied is as it was
    assert item.prompt in (again.path / "report.html").read_text(encoding="utf-8")


def test_an_id_in_a_sentence_is_replaced(pairs: Finished, spoil: Callable[[Finished], Run]) -> None:
    made, item = spoil(pairs), pairs.items[5]
    said = ["12 texts were cut", "3 are gone (p1, p5, p50)", "see the item 'p5'", "xp5 p5-x"]
    made.folder.write_state("failed", warnings=said, sentence=f"so {item.prompt} it is")
    name = forget(made.path, item.id).name
    state = made.folder.read_state()
    expected = [said[0], f"3 are gone (p1, {name}, p50)", f"see the item '{name}'", said[3]]
    assert state["warnings"] == expected
    assert state["sentence"] == "so (forgotten) it is"


def test_what_is_told_is_plain(pairs: Finished, spoil: Callable[[Finished], Run]) -> None:
    made = spoil(pairs)
    told = forget(made.path, pairs.items[0].id)
    assert isinstance(told, Forgotten)
    assert told.name.startswith("forgotten-")
    assert RunFolder(made.path).path.stat().st_mode & 0o777 == 0o700
    for path in made.path.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_one_refit_is_named_as_one(tmp_path: Path) -> None:
    texts = [f"{word} {n}" for n in range(10) for word in ("card lost", "top up")]
    made = run(texts, ["card", "money"] * 10, out=tmp_path / "run", budget=6, mode="stream",
               features="hashing")  # fmt: skip
    with made.ledger as ledger:
        bought = next(row["item"] for row in ledger.export() if row["state"] == "answered")
    told = forget(made.path, str(bought))
    assert "1 refit of the head learnt it, the one in model/ among them" in told.models
