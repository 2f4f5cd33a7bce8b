"""Random walks over all that can happen to a run of people; its laws hold after each step."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from stacksl.api import Run
from stacksl.errors import RunError, SettingsError

from ..ledgers import bought, handed_rows
from ..tables import write_table
from .conftest import CLASSES
from .people_cases import (
    begin,
    expect_sound,
    fill,
    gold,
    open_rows,
    play,
    read_rows,
    sheets,
    texts_of,
    truth,
    write_pool,
    wrong,
)

BATCH = 6


class Walk:
    """A run with colleagues, and what may be done to it, drawn by a seed."""

    def __init__(self, folder: Path, seed: int, mode: str, *, second_look: bool = False) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.came = 0
        self.run: Run = begin(
            folder,
            count=50,
            mode=mode,
            budget=30,
            open_questions=BATCH,
            sheets={"overlap": 0 if second_look else 3},
            seed=seed,
            annotators="anna,ben,carl",
            price="3",
            **({"audit": 10, "second_look": True} if second_look else {"audit": 5}),
        )

    def step(self) -> str:
        steps: list[Callable[[], object]] = [self.answer] * 6
        steps += [self.old_sheet, self.free, self.drop, self.resume, self.delete]
        steps += [self.more_money, self.less_money, self.more_items, self.held]
        chosen = self.rng.choice(steps)
        chosen()
        return chosen.__name__

    def answer(self) -> None:
        words = [truth, truth, wrong, lambda row: "none: other", lambda row: "?", lambda row: ""]
        files = [fill(path, lambda row: self.rng.choice(words)(row)) for path in sheets(self.run)]
        if files:
            self.run.answer(*self.rng.sample(files, self.rng.randint(1, len(files))))

    def old_sheet(self) -> None:
        known = sorted((self.run.path / "ask").glob("0*.csv"))
        self.run.answer(fill(self.rng.choice(known), wrong))

    def free(self, *, drop: bool = False) -> None:
        keys = [row["key"] for path in sheets(self.run) for row in read_rows(path)]
        with suppress(RunError):  # no row waits
            self.run.people(keys=self.rng.sample(keys, min(len(keys), 3)), drop=drop)

    def drop(self) -> None:
        self.free(drop=True)

    def resume(self) -> None:
        self.run.resume()

    def delete(self) -> None:
        for path in sheets(self.run)[:1]:
            path.unlink()
        self.run.resume()

    def more_money(self) -> None:
        self._budget(self.run.status()["budget"] + self.rng.randint(1, 9))

    def less_money(self) -> None:
        self._budget(self.run.status()["spent"])

    def _budget(self, labels: int) -> None:
        with suppress(SettingsError):  # nothing is left to buy
            self.run.change(budget=str(labels))

    def more_items(self) -> None:
        self.came += 1
        more = write_pool(self.folder, 5, seed=self.came, first=1000 * self.came)
        self.run.change(items=more)

    def held(self) -> None:
        self.came += 1
        texts = texts_of(write_pool(self.folder, 4, seed=self.came, first=1000 * self.came))
        old = list(texts_of(self.folder / "pool-0-0.csv").values())
        path = self.folder / f"held-{self.came}.csv"
        rows = [(text, gold(text)) for text in [*texts.values(), self.rng.choice(old)]]
        self.run.change(owned=write_table(path, ("text", "label"), rows))


def expect_laws(walk: Walk) -> None:
    status, rows = walk.run.status(), bought(walk.run)
    assert status["state"] in ("waiting", "finished")
    waits = sum(open_rows(walk.run).values())
    assert waits <= BATCH
    assert (waits > 0) == (status["state"] == "waiting")
    charged = [row for row in rows if row["purpose"] != "owned"]
    spent = sum(row["state"] in ("open", "answered") for row in charged)
    first = [row for row in charged if row["purpose"] == "audit" and not row["slot"]]
    assert spent <= status["budget"]
    if status["state"] == "waiting":  # until the end an audit counts as it was planned
        spent += sum(row["state"] in ("released", "late") for row in first)
        spent = min(spent, status["budget"])  # a label given back may have been bought since
    assert status["spent"] == spent
    lessons = [row["item"] for row in rows if row["learned_at"] is not None]
    assert len(lessons) == len(set(lessons))
    measuring = {row["item"] for row in rows if row["purpose"] == "audit"}
    assert not measuring & set(lessons)
    for row in charged:
        unpaid = row["state"] in ("released", "late")
        assert row["price"] == (0 if unpaid else 3_000_000)
        assert row["answer"] is None or 0 <= int(str(row["answer"])) < len(CLASSES)
    expect_asked_once(walk)
    expect_sound(walk.run)


def expect_asked_once(walk: Walk) -> None:
    """Nobody answers a row twice that is looked at again, and the labels kept for that suffice.

    A row that was taken back unanswered may come to the same person again.
    """
    rows = bought(walk.run, purpose="audit")
    looks = {(row["item"], row["slot"]): row["state"] for row in rows if row["slot"]}
    again = {item for item, _ in looks}
    ended = {(row["item"], row["slot"]): row["labeler"] for row in rows if row["state"] != "open"}
    handed = {(row.item, row.slot, row.annotator) for row in handed_rows(walk.run)}
    had = [(item, who) for item, slot, who in handed if ended.get((item, slot), who) == who]
    assert all(n == 1 for (item, _), n in Counter(had).items() if item in again)
    paid = sum(state in ("open", "answered") for state in looks.values())
    table = walk.run.folder.resolved()
    assert paid <= table["budget_now"][3]


def walk_through(
    folder: Path, seed: int, mode: str, steps: int = 14, *, second_look: bool = False
) -> None:
    walk = Walk(folder, seed, mode, second_look=second_look)
    for _ in range(steps):
        walk.step()
        expect_laws(walk)
    play(walk.run)
    expect_laws(walk)
    assert walk.run.status()["state"] == "finished"


@pytest.mark.parametrize("mode", ["pool", "stream"])
def test_the_laws_hold_whatever_happens(tmp_path: Path, mode: str) -> None:
    walk_through(tmp_path, 0, mode, steps=8)


def test_the_laws_hold_with_a_second_look(tmp_path: Path) -> None:
    walk_through(tmp_path, 1, "pool", steps=12, second_look=True)


@pytest.mark.slow
@pytest.mark.parametrize("second_look", [False, True])
@pytest.mark.parametrize("mode", ["pool", "stream"])
@pytest.mark.parametrize("seed", range(8))
def test_the_laws_hold_on_more_walks(tmp_path, seed: int, mode: str, second_look: bool) -> None:
    walk_through(tmp_path, seed, mode, steps=20 if second_look else 14, second_look=second_look)
