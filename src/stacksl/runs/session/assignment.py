"""Assignment of leases to annotators who answer by spreadsheet, and their answers.

A lease of the ledger becomes a row of a sheet. The row is in the ledger before its sheet is
written, so a missing sheet is written again with the same keys.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from stacksl.core.rng import generator
from stacksl.errors import DataError
from stacksl.files.atomic import make_private
from stacksl.labelers.protocol import Pending, Request
from stacksl.labelers.sheets.reading import read_sheet
from stacksl.labelers.sheets.rows import Reply, SheetRow, new_key
from stacksl.labelers.sheets.writing import write_howto, write_sheet
from stacksl.ledger.accounts import DROPPED
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, Handed, Purchase
from stacksl.ledger.queries import LedgerReader
from stacksl.runs.settings.fields import Settings
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import SECRET

FILE = "file"  # the labeler whose answers are spreadsheets of annotators
LISTS = re.compile(r"classes(-of-\d+)?\.csv").fullmatch
SHEET = re.compile(r"(\d{4,}|classes)(-[^\s/]+)?\.(csv|xlsx)").fullmatch


class SheetAnswers(NamedTuple):
    """Answers in sheets, a line for each cell that cannot be read, and the number of empty rows."""

    answers: tuple[Answer, ...]
    faults: tuple[str, ...]
    empty: int


class SheetLabeler:
    """The labeler of annotators who fill in spreadsheets: each request becomes a row of a sheet."""

    name = FILE
    repeatable = False

    def __init__(self, spec: RunSpec, ledger: Ledger) -> None:
        self.spec, self.settings, self.ledger = spec, spec.settings, ledger
        self.folder = ask_folder(spec.settings, spec.folder.path)
        self.items, self.classes = spec.dataset.items, spec.sources.classes
        self.row = {item.id: index for index, item in enumerate(self.items)}
        table = spec.folder.resolved()
        self.people, self.away = spec.settings.people, ledger.absent
        # the number of the last sheet written while there was one annotator
        self._alone = int(table.get("sheets_alone", 0))
        self._secret = int(table[SECRET], 16)
        self._requests: dict[tuple[str, int, int], Request] = {}
        self._answers: list[Answer] = []

    def ask(self, requests: Sequence[Request]) -> None:
        """Note the requests; `pending` assigns them when the run has asked all that it can."""
        self._requests |= {(r.item, r.slot, r.token): r for r in requests}

    def read(self, files: Sequence[Path]) -> SheetAnswers:
        """Read filled-in sheets; `answers` returns their answers.

        Raises:
            DataError: a file cannot be read; no answer of any file is used.
        """
        rows = self.ledger.private.handed()
        rows_by_key = {row.key: self.now(row) for row in rows}
        questions = {row.key: self.question(row) for row in rows}
        answered_rows = [row for row in self.ledger.export() if row["state"] == "answered"]
        accepted_keys = {(row["item"], row["slot"], row["labeler"]) for row in answered_rows}
        ids: dict[str, list[str]] = {}
        for row in rows:
            if (row.item, row.slot, row.annotator) in accepted_keys:
                ids.setdefault(row.item, []).append(row.key)
        newer_sheets = self._replaced(self.sheets(self.waiting()))
        replies: list[Reply] = []
        faults: list[str] = []
        empty = 0
        for path in files:
            if LISTS(path.name) and path.resolve().parent == self.folder.resolve():
                continue  # the run's own list of classes, which is in the folder of its sheets
            sheet = read_sheet(path, questions, ids, self.spec.dataset.columns.get("id", "id"))
            replies += sheet.replies
            faults += [fault.line(str(path)) for fault in sheet.faults]
            empty += sheet.empty
            newer = newer_sheets.get(path.name)
            if newer and not {newer} & {file.name for file in files} and not sheet.replies:
                faults.append(
                    f"{path}: this sheet has no answer, and {newer} has its open rows now: fill in"
                    " that one"
                )
        answers = [self.answer(reply, rows_by_key[reply.key]) for reply in replies]
        self._answers += answers
        return SheetAnswers(tuple(answers), tuple(faults), empty)

    def answer(self, reply: Reply, row: Handed) -> Answer:
        """A reply as the answer to the lease of its row."""
        index = None if reply.position is None else row.order[reply.position]
        key, name = (row.item, row.slot, row.token), row.annotator
        return Answer(*key, index, name, self.spec.budget.price, reply.kind, reply.text, reply.note)

    def answers(self) -> list[Answer]:
        """The answers read since the last call, in the order in which they were bought.

        So what is learned does not depend on who got which row, in which place of a sheet.
        """
        answers, self._answers = self._answers, []
        positions = {(p["item"], p["slot"]): n for n, p in enumerate(self.ledger.export())}
        return sorted(answers, key=lambda answer: positions[answer.item, answer.slot])

    def pending(self) -> list[Pending]:
        """Assign open requests, up to the batch, and write each missing sheet.

        Raises:
            DataError: a sheet cannot be written.
        """
        if not self.ledger.private.handed():
            expect_free(self.settings)
        sheets = self.sheets(self.assign())
        self._write(sheets)
        return [Pending(str(path), len(rows)) for path, rows in sorted(sheets.items())]

    # Rows --------------------------------------------------------------------------------------

    def assign(self) -> list[Handed]:
        """Assign open requests, up to the batch; all rows that are open now."""
        handed_rows = {(h.item, h.slot, h.token): h for h in self.ledger.private.handed()}
        leases = {(p.item, p.slot, p.token) for p in self.ledger.open_purchases()}
        waiting_rows = self.waiting()
        requests = {key: request for key, request in self._requests.items() if key in leases}
        fresh = [request for key, request in requests.items() if key not in handed_rows]
        # up to the batch: training labels, then the audit
        due = sorted(fresh, key=lambda request: request.purpose == "audit" and not request.slot)
        due = due[: max(0, self.settings.open_questions - len(waiting_rows))]
        assigned_rows = self._assign(due, list(handed_rows.values()), waiting_rows)
        if assigned_rows:
            self.ledger.hand_out(assigned_rows)
        return [*waiting_rows, *assigned_rows]

    def waiting(self) -> list[Handed]:
        """The assigned rows that are open."""
        return [row for row, _ in open_rows(self.ledger)]

    def _assign(
        self, due: Sequence[Request], handed_rows: Sequence[Handed], waiting_rows: Sequence[Handed]
    ) -> list[Handed]:
        """A row for each lease, for the annotator with the fewest open rows, then rows.

        The leases are dealt in a random order, and keys, orders and annotators are drawn from the
        run's secret, so that neither tells which rows belong to the audit.
        """
        annotators = self.people
        present = [name for name in annotators if name not in self.away]
        load = Counter(dict.fromkeys(annotators, 0)) + Counter(h.annotator for h in waiting_rows)
        had_rows = Counter(handed.annotator for handed in handed_rows)
        rows_of_items = rows_had(self.ledger)
        taken_keys = {handed.key for handed in handed_rows}
        sheet = 1 + max((handed.sheet for handed in handed_rows), default=0)
        rng = generator(self._secret, "keys", sheet)
        dealt_requests = [due[int(n)] for n in rng.permutation(len(due))]
        # an item for two people goes first: one of them may have it, whoever has few rows
        request_counts = Counter(request.item for request in due)
        dealt_requests.sort(key=lambda request: -request_counts[request.item])
        look_slots = {(lease.item, lease.slot) for lease in self.ledger.second_looks()}
        rows = []
        for number, request in enumerate(dealt_requests, start=len(taken_keys) + 1):
            names = _eligible(present, request, rows_of_items) or annotators
            nobody = names[0] in self.away
            nobody |= any(row[::2] == (request.item, names[0]) for row in rows_of_items)
            if nobody and (request.item, request.slot) in look_slots:
                continue  # the run ends its lease
            if self._confirms_own(request, names[0], rows_of_items):
                self.ledger.release(request, DROPPED)
                continue
            name = min(names, key=lambda person: (load[person], had_rows[person]))
            key = new_key(number, rng, taken_keys)
            rows_of_items.append((request.item, request.slot, name))
            taken_keys.add(key)
            load[name] += 1
            had_rows[name] += 1
            order = self._order(name, request.item)
            rows.append(Handed(key, request.item, request.slot, request.token, name, sheet, order))
        return rows

    def _confirms_own(
        self, request: Request, name: str, rows_of_items: Sequence[tuple[str, int, str]]
    ) -> bool:
        """Whether a label's second answer, as a look at a table needs it, is left to its giver."""
        key = self.ledger.items.surrogates[request.item], request.slot
        again = self.ledger.accounts.purchases[key].again
        labeled = not again or self.ledger.label_of(request.item) is not None
        slots = (slot for item, slot, who in rows_of_items if (item, who) == (request.item, name))
        return (
            request.purpose == "train" and labeled and any(slot != request.slot for slot in slots)
        )

    def _order(self, annotator: str, item: str) -> tuple[int, ...]:
        """The order in which an annotator sees the candidates.

        Fixed classes have one order and one number each for everybody, so that an answer means
        the same whoever's list was used. The options of an item are shuffled for each annotator.
        """
        row = self.row[item]
        count = len(self.items[row].candidates)
        if self.classes is not None:
            return tuple(range(count))
        number = self.people.index(annotator)
        permutation = generator(self._secret, "shown", number, row).permutation(count)
        return tuple(int(i) for i in permutation)

    def sheets(self, open_rows: Sequence[Handed]) -> dict[Path, list[Handed]]:
        """The open rows of each annotator, all of them in the last sheet, by its path."""
        by_name: dict[str, list[Handed]] = {}
        for handed in open_rows:
            by_name.setdefault(handed.annotator, []).append(handed)
        return {
            self._path(max(h.sheet for h in rows), name): rows for name, rows in by_name.items()
        }

    def _replaced(self, sheets: Mapping[Path, Sequence[Handed]]) -> dict[str, str]:
        """The names of earlier sheets, each with that of the sheet which has its open rows now."""
        newest = {rows[0].annotator: path.name for path, rows in sheets.items()}
        handed = self.ledger.private.handed()
        owners = {self._path(row.sheet, row.annotator).name: row.annotator for row in handed}
        return {file: newest[name] for file, name in owners.items() if file < newest.get(name, "")}

    def _write(self, sheets: Mapping[Path, Sequence[Handed]]) -> None:
        missing = {path: rows for path, rows in sheets.items() if not path.exists()}
        if missing:
            self._open_folder()
            write_howto(self.folder, self._replaced(sheets), mode=self._mode)
        added = self.classes is not None and self.spec.sources.began is not None
        class_file = (
            f"classes-of-{len(self.spec.dataset.classes or ())}.csv" if added else "classes.csv"
        )
        for path, rows in missing.items():
            # in an order that does not reveal which of them belong to the audit
            number = max(handed.sheet for handed in rows)
            permutation = generator(self._secret, "sheet", number).permutation(len(rows))
            questions = [self.question(rows[int(n)]) for n in permutation]
            write_sheet(path, questions, self.classes, class_file, mode=self._mode)

    def _open_folder(self) -> None:
        """Make the folder; an existing one outside the run's folder is not changed.

        A new folder can be listed by those who may read the sheets, independently of the umask.
        """
        try:
            if self.settings.sheets.dir is None:
                make_private(self.folder)
            elif not self.folder.is_dir():
                self.folder.mkdir(parents=True)
                listing = (self._mode & 0o444) >> 2  # whoever may read (r) may list (x)
                self.folder.chmod(self._mode | listing)
        except OSError as fault:
            raise DataError(
                f"the folder for sheets {self.folder} cannot be made ({fault.strerror}): make it,"
                " or get permission to write there, and resume the run"
            ) from None

    def question(self, handed: Handed) -> SheetRow:
        """A row as its annotator sees it."""
        item, first_count = self.items[self.row[handed.item]], len(handed.order)
        options = tuple(item.candidates[i] for i in self.now(handed).order)
        return SheetRow(handed.key, item.prompt, options, first_count, self.classes is not None)

    def now(self, handed: Handed) -> Handed:
        """A row with the classes that were added since it was assigned.

        An added class comes last: no number on the older sheet changes its meaning.
        """
        count = len(self.items[self.row[handed.item]].candidates)
        added = range(len(handed.order), count)
        return replace(handed, order=(*handed.order, *added)) if added else handed

    def _path(self, sheet: int, annotator: str) -> Path:
        alone = sheet <= self._alone or len(self.people) == 1
        stem = f"{sheet:04d}" if alone else f"{sheet:04d}-{annotator}"
        return self.folder / f"{stem}.{self.settings.sheets.format}"

    @property
    def _mode(self) -> int:
        return int(self.settings.sheets.mode, 8)


def _eligible(
    present: Sequence[str], lease: Request, rows_of_items: Sequence[tuple[str, int, str]]
) -> Sequence[str]:
    """Those `present` who may best answer a lease: if any, those who never had its item.

    Else those who had the item in this slot alone, else all. `rows_of_items` has item, slot and
    annotator of the rows that were handed out.
    """
    holders = [(name, slot) for item, slot, name in rows_of_items if item == lease.item]
    asked_names = {name for name, _ in holders}
    other_names = {name for name, slot in holders if slot != lease.slot}
    never_asked = [name for name in present if name not in asked_names]
    return never_asked or [name for name in present if name not in other_names] or present


def open_rows(ledger: LedgerReader) -> list[tuple[Handed, Purchase]]:
    """The assigned rows that are open, in their order, each with its lease."""
    leases = {(p.item, p.slot, p.token): p for p in ledger.open_purchases()}
    pairs = ((row, leases.get((row.item, row.slot, row.token))) for row in ledger.private.handed())
    return [(row, lease) for row, lease in pairs if lease is not None]


def rows_had(ledger: LedgerReader) -> list[tuple[str, int, str]]:
    """Item, slot and annotator of each row that its annotator answered, or may still answer."""
    ended = {(r["item"], r["slot"]): r["labeler"] for r in ledger.export() if r["state"] != "open"}
    rows = [(row.item, row.slot, row.annotator) for row in ledger.private.handed()]
    return [entry for entry in rows if ended.get(entry[:2], entry[2]) == entry[2]]


def free_people(
    spec: RunSpec, ledger: Ledger, items: Sequence[str]
) -> tuple[dict[str, int], set[str]]:
    """How many people may still be asked each item, and the items that wait for an answer.

    Whoever is here and never had an item may. A lease that nobody may have ends.
    """
    handed_leases = {(row.item, row.slot, row.token) for row in ledger.private.handed()}
    pairs = {(item, name) for item, _, name in rows_had(ledger)}
    present = set(spec.settings.people) - ledger.absent
    counts = {item: sum((item, name) not in pairs for name in present) for item in items}
    awaited_items = set()
    for lease in (look for look in ledger.second_looks() if look.item in counts):
        if (lease.item, lease.slot, lease.token) not in handed_leases:  # somebody is to have it
            if not counts[lease.item]:
                ledger.release(lease, "expired")
                holders = {name for item, _, name in rows_had(ledger) if item == lease.item}
                counts[lease.item] = len(present - holders)
                continue
            counts[lease.item] -= 1
        awaited_items.add(lease.item)
    return counts, awaited_items


def expect_free(settings: Settings) -> None:
    """Check that the folder for sheets has none of another run, whose names would collide.

    Raises:
        DataError: it has some, or is no folder.
    """
    folder = settings.sheets.dir
    try:
        names = [] if folder is None else sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    except OSError as fault:
        raise DataError(
            f"--ask-dir expects a folder for sheets, got {folder} ({fault.strerror}): give another"
        ) from None
    if sheet := next(filter(SHEET, names), None):
        raise DataError(
            f"the folder {folder} holds the sheet {sheet} of another run: give each run an"
            " --ask-dir of its own, or move those sheets away"
        )


def ask_folder(settings: Settings, run: Path) -> Path:
    """The folder of the sheets of a run."""
    return run / "ask" if settings.sheets.dir is None else Path(settings.sheets.dir)
