"""What an annotator who has the package sees of a row does not tell whether it measures the model.

The annotator keeps every sheet and every reply: keys, the order of rows, the sheet, how many rows
there are, and which cells were refused, in how many words. Texts and the time that a reply takes
are left out; see docs/SECURITY.md.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold, cross_val_predict

from stacksl.api import Run
from stacksl.labelers.sheets.rows import _DIGITS, _LETTERS

from ..runs.people_cases import Row, begin, fill, read_rows, sheets, truth

WAYS = ("all", "half", "unsure", "refused", "dropped", "away", "overlap")
AUDIT, BUDGET, BATCH, OVERLAP = 12, 36, 9, 8
UNEVEN = (8, 10)  # of such a batch the audit's share is no whole number


def _played(
    folder: Path, way: str, number: int, batch: int
) -> tuple[list[list[float]], list[bool]]:
    """What an annotator saw of each row of a run, and whether it was one of the audit's."""
    rng = random.Random(number)
    waiting = begin(
        folder, count=80, budget=BUDGET, open_questions=batch, audit=AUDIT, annotators="anna,ben",
        **({"sheets.overlap": OVERLAP} if way == "overlap" else {}),
    )  # fmt: skip
    seen: dict[str, list[list[float]]] = {}
    for turn in range(60):
        if waiting.status()["state"] != "waiting":
            break
        _hand_in(waiting, way, turn, rng, seen)
    if way == "refused":  # the look at a row ends with what the reply says of its cell
        assert any(look[-1] for looks in seen.values() for look in looks)
    assert waiting.status()["state"] == "finished"
    with waiting.ledger as ledger:
        handed = {row.key: row.item for row in ledger.private.handed()}
        audit = set(ledger.bought("audit"))
    rows = [[*_of_key(key), *times[0], *times[-1], len(times)] for key, times in seen.items()]
    return rows, [handed[key] in audit for key in seen]


def _hand_in(
    waiting: Run, way: str, turn: int, rng: random.Random, seen: dict[str, list[list[float]]]
) -> None:
    """Look at what is open, and answer it as the `way` has it; `seen` grows by both."""
    open_ = sheets(waiting)
    if way == "dropped" and turn % 3 == 1:
        keys = [row["key"] for row in read_rows(open_[0])]
        waiting.people(free=True, keys=rng.sample(keys, min(2, len(keys))), drop=True)
        waiting.resume()
        open_ = sheets(waiting)
    if way == "away" and turn in (1, 4):
        waiting.people(away=["ben"]) if turn == 1 else waiting.people(back=["ben"])
        waiting.resume()
        open_ = sheets(waiting)

    def say(row: Row) -> str:
        if way == "unsure" and rng.random() < 0.3:
            return "?"
        if way == "refused":
            draw = rng.random()
            if draw < 0.3 and row["key"] not in seen:
                return "no such class"
            return "none" if draw > 0.8 else truth(row)
        return "" if way == "half" and rng.random() < 0.5 else truth(row)

    looks = []
    for path in open_:
        rows = read_rows(path)
        for place, row in enumerate(rows):
            cell = f"{path.name} row {place + 2}, column answer"  # the header is row 1
            looks.append(
                (row["key"], cell, [turn, int(path.name[:4]), place, place / len(rows), len(rows)])
            )
    received = waiting.answer(*[fill(path, say) for path in open_])
    told = [received.accepted.get(kind, 0) for kind in ("label", "none", "ambiguous")]
    told += [received.late, received.empty, len(open_), len(received.faults)]
    refused = {cell: len(why.split()) for cell, why in map(_parts, received.faults)}
    if way == "overlap":  # what two people have in common would tell, so each sees her own alone
        mine = {row["key"] for path in open_ if "anna" in path.name for row in read_rows(path)}
        looks = [look for look in looks if look[0] in mine]
    for key, cell, look in looks:
        seen.setdefault(key, []).append([*look, *told, refused.get(cell, 0)])


def _parts(fault: str) -> tuple[str, str]:
    """The cell that a line names, and what is said of it."""
    cell, _, why = fault.partition(": ")
    return Path(cell).name, why


def _of_key(key: str) -> list[int]:
    """The characters of a key as numbers."""
    known = _LETTERS + _DIGITS
    return [known.index(each) for each in key.replace("-", "")][:5]


def _auc(
    tmp_path: Path, way: str, runs: int, monkeypatch: pytest.MonkeyPatch, batch: int = BATCH
) -> float:
    """How well a classifier, on runs that it was not fitted on, tells audit from training rows."""
    drawn = random.Random(17)
    monkeypatch.setattr("secrets.randbits", drawn.getrandbits)
    rows: list[list[float]] = []
    audit: list[bool] = []
    run: list[int] = []
    for number in range(runs):
        folder = tmp_path / f"{way}-{number}"
        folder.mkdir()
        found, purposes = _played(folder, way, number, batch)
        rows += found
        audit += purposes
        run += [number] * len(found)
    model: Any = HistGradientBoostingClassifier(max_iter=60, max_depth=4, random_state=0)
    folds = GroupKFold(5)
    guess = cross_val_predict(
        model, np.array(rows), np.array(audit), groups=run, cv=folds, method="predict_proba"
    )
    return float(roc_auc_score(audit, guess[:, 1]))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_no_way_of_answering_tells_which_rows_are_the_audit(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 0.45 <= _auc(tmp_path, way, 200, monkeypatch) <= 0.55


@pytest.mark.slow
@pytest.mark.parametrize("batch", UNEVEN)
def test_batches_that_the_audit_does_not_divide_tell_nothing_either(
    tmp_path: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 0.45 <= _auc(tmp_path, "all", 200, monkeypatch, batch) <= 0.55


def test_the_last_sheets_have_rows_of_the_audit(tmp_path, monkeypatch) -> None:
    """Two of their six rows are, on average; none was where each batch's share was rounded up."""
    drawn = random.Random(3)
    monkeypatch.setattr("secrets.randbits", drawn.getrandbits)
    last = 0
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        rows, audit = _played(folder, "all", number, 10)
        end = max(row[5] for row in rows)  # the turn in which it was first seen
        last += sum(of for row, of in zip(rows, audit, strict=True) if row[5] == end)
    assert last >= 3
