"""Items keep their places, whatever was forgotten of them and whatever the user has deleted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksl import Item
from stacksl.data import Dataset, read
from stacksl.errors import RunError
from stacksl.runs.items.sources import Sources
from stacksl.runs.storage.folder import RunFolder
from stacksl.runs.storage.tombstones import TOMBSTONES, Tombstones, as_it_was

CLASSES = ("a", "b", "c")


def stock_of(names: list[str], texts: list[str], owned: int = 0) -> Sources:
    """Items with two options of their own; the last `owned` of them were held before."""
    items = tuple(Item(n, t, (f"{t} 1", f"{t} 2")) for n, t in zip(names, texts, strict=True))
    answers = {item.id: n % 2 for n, item in enumerate(items)}
    cut = len(items) - owned
    pool = Dataset("d", "m", items[:cut], {i.id: answers[i.id] for i in items[:cut]})
    if not owned:
        return Sources.of(pool)
    held = Dataset("o", "m", items[cut:], {i.id: answers[i.id] for i in items[cut:]})
    return Sources.of(pool, owned=held)


def forgotten(sources: Sources, rows: list[int]) -> tuple[Tombstones, Sources]:
    """The tombstones of `rows`, forgotten one after the other, and the sources as it is then."""
    known = Tombstones.over(sources)
    for row in rows:
        known = known.with_stone(sources, row, f"forgotten-{row}")
        sources = known.place(sources)
    return known, sources


def without(sources: Sources, rows: set[int]) -> Sources:
    """The sources as files without `rows` of the first file give it; rows without ids move up."""
    kept = [item for n, item in enumerate(sources.pool.items) if n not in rows]
    if all(item.id.startswith("row-") for item in sources.pool.items):
        kept = [replace(item, id=f"row-{n:06d}") for n, item in enumerate(kept, 1)]
    labels = [sources.pool.answers[i.id] for n, i in enumerate(sources.pool.items) if n not in rows]
    answers = {item.id: label for item, label in zip(kept, labels, strict=True)}
    return Sources.of(replace(sources.pool, items=tuple(kept), answers=answers))


@given(data=st.data(), size=st.integers(2, 14), numbered=st.booleans(), few=st.booleans())
def test_all_others_are_where_they_were(
    data: st.DataObject, size: int, numbered: bool, few: bool
) -> None:
    names = [f"row-{n:06d}" if numbered else f"q{n}" for n in range(1, size + 1)]
    texts = [f"text {n}" for n in range(size)]
    sources = stock_of(names, texts)
    most = 2 if few else size
    rows = data.draw(st.lists(st.integers(0, size - 1), unique=True, min_size=1, max_size=most))
    deleted = data.draw(st.sets(st.sampled_from(rows)))
    known, placed = forgotten(sources, rows)
    if len(deleted) < size:
        again = known.place(without(sources, deleted))
        assert again.dataset.items == placed.dataset.items
        assert again.pool.answers == placed.pool.answers
        assert again.forgotten == frozenset(rows)
    for row, item in enumerate(placed.dataset.items):
        before = sources.dataset.items[row]
        if row in rows:
            assert item == Item(f"forgotten-{row}", "(forgotten)", ("option 1", "option 2"))
            assert before.id not in placed.pool.answers
        else:
            assert item == before


def test_items_of_other_files_are_told_apart_from_the_data() -> None:
    sources = stock_of([f"q{n}" for n in range(8)], [f"text {n}" for n in range(8)], owned=3)
    known, placed = forgotten(sources, [4, 5])  # the last of the data, the first that was owned
    assert placed.forgotten == {4, 5}
    assert set(placed.owned) == {"owned/q6", "owned/q7"}
    items = sources.pool.items[:4]
    shorter = Dataset("d", "m", items, {i.id: 0 for i in items})
    held = Dataset("o", "m", tuple(replace(i, id=i.id[6:]) for i in sources.dataset.items[6:]), {
        "q6": 0, "q7": 1
    })  # fmt: skip
    again = known.place(Sources.of(shorter, owned=held))
    assert [i.id for i in again.dataset.items] == [i.id for i in placed.dataset.items]
    assert (again.first, len(again.parts[1].data.items)) == (8, 3)
    assert again.owned == {"owned/q6": 0, "owned/q7": 1}


def test_a_class_that_only_a_forgotten_item_had_stays_a_class(tmp_path: Path) -> None:
    lines = [f"text {n},{CLASSES[n % 2]}" for n in range(8)]
    lines[3] = "text 3,aa"
    path = tmp_path / "d.csv"
    path.write_text("text,label\n" + "\n".join(lines) + "\n", encoding="utf-8")
    sources = Sources.of(read(path))
    known, placed = forgotten(sources, [3])
    assert sources.pool.classes == ("a", "aa", "b")
    path.write_text("text,label\n" + "\n".join(lines[:3] + lines[4:]) + "\n", encoding="utf-8")
    again = known.place(Sources.of(read(path)))
    assert again.dataset == placed.dataset


def test_what_is_read_back_is_what_was_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    sources = stock_of(["q0", "q1", "q2"], ["x", "y", "z"])
    assert Tombstones.read(folder) is None
    assert as_it_was(folder, sources) is sources
    known = replace(forgotten(sources, [1])[0], gate_scale=0.25, gate_state=(0.0, 1.5, 2.0, 3.0))
    known.write(folder)
    assert Tombstones.read(folder) == known
    assert as_it_was(folder, sources).dataset.items[1].id == "forgotten-1"
    assert "y" not in (tmp_path / TOMBSTONES).read_text().replace("numbered", "")
    (tmp_path / TOMBSTONES).write_text("{}")
    with pytest.raises(RunError, match=r"forgotten\.json cannot be read"):
        Tombstones.read(folder)
