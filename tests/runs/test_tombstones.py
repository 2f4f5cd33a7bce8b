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
from stacksl.runs.items.sources import Stock
from stacksl.runs.storage.folder import RunFolder
from stacksl.runs.storage.tombstones import TOMBSTONES, Tombstones, as_it_was

CLASSES = ("a", "b", "c")


def stock_of(names: list[str], texts: list[str], owned: int = 0) -> Stock:
    """Items with two options of their own; the last `owned` of them were held before."""
    items = tuple(Item(n, t, (f"{t} 1", f"{t} 2")) for n, t in zip(names, texts, strict=True))
    answers = {item.id: n % 2 for n, item in enumerate(items)}
    cut = len(items) - owned
    pool = Dataset("d", "m", items[:cut], {i.id: answers[i.id] for i in items[:cut]})
    if not owned:
        return Stock.of(pool)
    held = Dataset("o", "m", items[cut:], {i.id: answers[i.id] for i in items[cut:]})
    return Stock.of(pool, owned=held)


def forgotten(stock: Stock, rows: list[int]) -> tuple[Tombstones, Stock]:
    """The tombstones of `rows`, forgotten one after the other, and the stock as it is then."""
    known = Tombstones.over(stock)
    for row in rows:
        known = known.with_stone(stock, row, f"forgotten-{row}")
        stock = known.place(stock)
    return known, stock


def without(stock: Stock, rows: set[int]) -> Stock:
    """The stock as files without `rows` of the first file give it; rows without ids move up."""
    kept = [item for n, item in enumerate(stock.pool.items) if n not in rows]
    if all(item.id.startswith("row-") for item in stock.pool.items):
        kept = [replace(item, id=f"row-{n:06d}") for n, item in enumerate(kept, 1)]
    labels = [stock.pool.answers[i.id] for n, i in enumerate(stock.pool.items) if n not in rows]
    answers = {item.id: label for item, label in zip(kept, labels, strict=True)}
    return Stock.of(replace(stock.pool, items=tuple(kept), answers=answers))


@given(data=st.data(), size=st.integers(2, 14), numbered=st.booleans(), few=st.booleans())
def test_all_others_are_where_they_were(
    data: st.DataObject, size: int, numbered: bool, few: bool
) -> None:
    names = [f"row-{n:06d}" if numbered else f"q{n}" for n in range(1, size + 1)]
    texts = [f"text {n}" for n in range(size)]
    stock = stock_of(names, texts)
    most = 2 if few else size
    rows = data.draw(st.lists(st.integers(0, size - 1), unique=True, min_size=1, max_size=most))
    deleted = data.draw(st.sets(st.sampled_from(rows)))
    known, placed = forgotten(stock, rows)
    if len(deleted) < size:
        again = known.place(without(stock, deleted))
        assert again.dataset.items == placed.dataset.items
        assert again.pool.answers == placed.pool.answers
        assert again.gone == frozenset(rows)
    for row, item in enumerate(placed.dataset.items):
        before = stock.dataset.items[row]
        if row in rows:
            assert item == Item(f"forgotten-{row}", "(forgotten)", ("option 1", "option 2"))
            assert before.id not in placed.pool.answers
        else:
            assert item == before


def test_items_of_other_files_are_told_apart_from_the_data() -> None:
    stock = stock_of([f"q{n}" for n in range(8)], [f"text {n}" for n in range(8)], owned=3)
    known, placed = forgotten(stock, [4, 5])  # the last of the data, the first that was owned
    assert placed.gone == {4, 5}
    assert set(placed.owned) == {"owned/q6", "owned/q7"}
    items = stock.pool.items[:4]
    shorter = Dataset("d", "m", items, {i.id: 0 for i in items})
    held = Dataset("o", "m", tuple(replace(i, id=i.id[6:]) for i in stock.dataset.items[6:]), {
        "q6": 0, "q7": 1
    })  # fmt: skip
    again = known.place(Stock.of(shorter, owned=held))
    assert [i.id for i in again.dataset.items] == [i.id for i in placed.dataset.items]
    assert (again.first, again.parts) == (8, ((8, "owned"),))
    assert again.owned == {"owned/q6": 0, "owned/q7": 1}


def test_a_class_that_only_a_forgotten_item_had_stays_a_class(tmp_path: Path) -> None:
    lines = [f"text {n},{CLASSES[n % 2]}" for n in range(8)]
    lines[3] = "text 3,aa"
    path = tmp_path / "d.csv"
    path.write_text("text,label\n" + "\n".join(lines) + "\n", encoding="utf-8")
    stock = Stock.of(read(path))
    known, placed = forgotten(stock, [3])
    assert stock.pool.classes == ("a", "aa", "b")
    path.write_text("text,label\n" + "\n".join(lines[:3] + lines[4:]) + "\n", encoding="utf-8")
    again = known.place(Stock.of(read(path)))
    assert again.dataset == placed.dataset


def test_what_is_read_back_is_what_was_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    stock = stock_of(["q0", "q1", "q2"], ["x", "y", "z"])
    assert Tombstones.read(folder) is None
    assert as_it_was(folder, stock) is stock
    known = replace(forgotten(stock, [1])[0], gate_scale=0.25, gate_state=(0.0, 1.5, 2.0))
    known.write(folder)
    assert Tombstones.read(folder) == known
    assert as_it_was(folder, stock).dataset.items[1].id == "forgotten-1"
    assert "y" not in (tmp_path / TOMBSTONES).read_text().replace("numbered", "")
    (tmp_path / TOMBSTONES).write_text("{}")
    with pytest.raises(RunError, match=r"forgotten\.json cannot be read"):
        Tombstones.read(folder)
