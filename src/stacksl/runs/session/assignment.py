"""People who answer by file: which rows go to whom, and what came back.

The ledger leases; here a lease becomes a row of a sheet. A row is on record before its sheet is
written, so a sheet that is gone, or that a crash left unwritten, is written again with the same
keys.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from stacksl.core.rng import generator
from stacksl.data import Classes
from stacksl.errors import DataError
from stacksl.files.private import make_private
from stacksl.labelers.protocol import Pending, Request
from stacksl.labelers.sheets import (
    Asked,
    Reply,
    Shown,
    new_key,
    read_sheet,
    write_classes,
    write_howto,
    write_sheet,
)
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, Handed, Purchase
from stacksl.runs.settings.budget import Prices, parse_prices
from stacksl.runs.settings.fields import Settings
from stacksl.runs.storage.folder import RunFolder
from stacksl.types import Item

FILE = "file"  # the labeler that is people
AWAY = "annotators_away"  # in `resolved.toml`
SHEET = re.compile(r"(\d{4,}|classes)(-[\w.-]+)?\.csv").fullmatch
WHOLE = 26  # classes beyond which a sheet refers to a list of them


@dataclass(frozen=True, slots=True)
class Sheets:
    """What sheets that were filled in came to.

    Attributes:
        answers: one for each row with a whole answer, as far as they were understood.
        faults: a line for each cell that was not understood.
        empty: rows still without an answer.
    """

    answers: tuple[Answer, ...]
    faults: tuple[str, ...]
    empty: int


class SheetLabeler:
    """People who answer by file: what is asked becomes rows of sheets, which they fill in.

    Args:
        ledger: notes who was handed which row.
        folder: where the sheets lie.
        settings: of the run: its annotators, and how many rows are out at a time.
        items: all items of the run by row, and `row` the way from an id.
        classes: where they are fixed.
        began: how many classes there were before the first was added on the way, if any was.
        away: the annotators who get no new rows.
        alone: the last sheet that was written when one person answered.
    """

    name = FILE
    repeatable = False

    def __init__(
        self,
        ledger: Ledger,
        folder: Path,
        settings: Settings,
        items: Sequence[Item],
        row: Mapping[str, int],
        classes: Classes | None,
        began: int | None = None,
        away: frozenset[str] = frozenset(),
        alone: int = 0,
    ) -> None:
        self.ledger, self.folder, self.settings = ledger, folder, settings
        self.items, self.row = items, row
        self.classes, self.began, self.away, self.alone = classes, began, away, alone
        self._asked: dict[tuple[str, int, int], Request] = {}
        self._answers: list[Answer] = []

    def ask(self, requests: Sequence[Request]) -> None:
        """Note what is asked; `pending` hands it out, when the run has asked all that it can."""
        self._asked |= {(r.item, r.slot, r.token): r for r in requests}

    def read(self, files: Sequence[Path]) -> Sheets:
        """Read sheets that were filled in; their answers are given at the next `answers`.

        Raises:
            DataError: a file cannot be read; nothing of any was taken then.
        """
        handed = {row.key: row for row in self.ledger.handed()}
        shown = self._shown(handed.values())
        replies: list[Reply] = []
        faults: list[str] = []
        empty = 0
        for path in files:
            sheet = read_sheet(path, shown)
            replies += sheet.replies
            faults += [fault.line(str(path)) for fault in sheet.faults]
            empty += sheet.empty
        found = answers_from(replies, handed, parse_prices(self.settings.price))
        self._answers += found
        return Sheets(tuple(found), tuple(faults), empty)

    def answers(self) -> list[Answer]:
        """What was read since the last call, in its order."""
        given, self._answers = self._answers, []
        return given

    def pending(self) -> list[Pending]:
        """Hand out what is open, up to the batch, and see that each sheet is there.

        Raises:
            DataError: a sheet cannot be written.
        """
        out = {(h.item, h.slot, h.token): h for h in self.ledger.handed()}
        leases = {(p.item, p.slot, p.token) for p in self.ledger.open_purchases()}
        waiting = [handed for key, handed in out.items() if key in leases]
        asked = {key: request for key, request in self._asked.items() if key in leases}
        fresh = [request for key, request in asked.items() if key not in out]
        if not out:
            expect_free(self.settings)
        new = self._assign(self._due(fresh, len(waiting)), list(out.values()), waiting)
        if new:
            self.ledger.hand_out(new)
        self._write([*waiting, *new])
        open_rows = Counter(self._path(h.sheet, h.annotator) for h in [*waiting, *new])
        return [Pending(str(path), n) for path, n in sorted(open_rows.items())]

    def _due(self, fresh: Sequence[Request], waiting: int) -> list[Request]:
        """What goes out, as far as the batch has room: what is trained on, then the audit's."""
        train = [p for p in fresh if p.purpose != "audit"]
        audit = [p for p in fresh if p.purpose == "audit"]
        return [*train, *audit][: max(0, self.settings.batch - waiting)]

    def _assign(
        self, due: Sequence[Request], known: Sequence[Handed], waiting: Sequence[Handed]
    ) -> list[Handed]:
        """A row for each lease: for who has the fewest open rows, then the fewest in all."""
        who = annotators_of(self.settings.annotators)
        load = Counter(dict.fromkeys(who, 0)) + Counter(h.annotator for h in waiting)
        given = Counter(handed.annotator for handed in known)
        had = [(handed.item, handed.slot, handed.annotator) for handed in known]
        taken = {handed.key for handed in known}
        sheet = 1 + max((handed.sheet for handed in known), default=0)
        rng = generator(self.settings.seed, "keys", sheet)
        rows = []
        for number, lease in enumerate(due, start=len(taken) + 1):
            names = _eligible(who, self.away, lease, had)
            name = min(names, key=lambda each: (load[each], given[each]))
            key = new_key(number, rng, taken)
            had.append((lease.item, lease.slot, name))
            taken.add(key)
            load[name] += 1
            given[name] += 1
            order = self._order(name, lease.item)
            rows.append(Handed(key, lease.item, lease.slot, lease.token, name, sheet, order))
        return rows

    def _order(self, annotator: str, item: str) -> tuple[int, ...]:
        """How an annotator sees an item's candidates: one order for fixed classes."""
        who = annotators_of(self.settings.annotators).index(annotator)
        row = self.row[item]
        keys = (who,) if self.classes is not None else (who, row)
        count = len(self.items[row].candidates)
        shuffled = generator(self.settings.seed, "shown", *keys).permutation(count)
        return tuple(int(i) for i in shuffled)

    def _write(self, open_rows: Sequence[Handed]) -> None:
        """Write the sheets of open rows that are not there."""
        sheets: dict[tuple[int, str], list[Handed]] = {}
        for handed in open_rows:
            sheets.setdefault((handed.sheet, handed.annotator), []).append(handed)
        places = {self._path(*name): rows for name, rows in sheets.items()}
        missing = {path: rows for path, rows in places.items() if not path.exists()}
        if missing:
            self._open_folder()
            write_howto(self.folder, mode=self._mode)
        for path, rows in missing.items():
            classes = self._companion(rows[0])
            asked = [self._asked_as(handed) for handed in self._mixed(rows)]
            write_sheet(path, asked, mode=self._mode, classes=classes)

    def _open_folder(self) -> None:
        """Make the folder; one that is there and not the run's own stays as its owner made it.

        Whoever may read the sheets may look into the folder that is made for them, whatever the
        umask.
        """
        try:
            if self.settings.ask_dir is None:
                make_private(self.folder)
            elif not self.folder.is_dir():
                self.folder.mkdir(parents=True)
                self.folder.chmod(self._mode | (self._mode & 0o444) >> 2)
        except OSError as fault:
            raise DataError(
                f"the folder for sheets {self.folder} cannot be made ({fault.strerror}): make it,"
                " or give yourself the right to write there, and resume the run"
            ) from None

    def _mixed(self, rows: Sequence[Handed]) -> list[Handed]:
        """The rows in an order that does not tell which of them measure and which train."""
        mix = generator(self.settings.seed, "sheet", rows[0].sheet).permutation(len(rows))
        return [rows[int(i)] for i in mix]

    def _asked_as(self, handed: Handed) -> Asked:
        item = self.items[self.row[handed.item]]
        return Asked(handed.key, item.prompt, tuple(item.candidates[i] for i in handed.order))

    def _companion(self, handed: Handed) -> str | None:
        """The name of the file that lists the classes, where they are too many for a cell."""
        if self.classes is None or len(handed.order) <= WHOLE:
            return None
        shown = len(handed.order)  # a list of its own for each sheet's number of classes
        stem = "classes" if shown == (self.began or shown) else f"classes-of-{shown}"
        path = self._path_of(stem, handed.sheet, handed.annotator)
        if not path.exists():
            said = self.classes.names, self.classes.descriptions
            write_classes(path, *said, handed.order, mode=self._mode)
        return path.name

    def _path(self, sheet: int, annotator: str) -> Path:
        return self._path_of(f"{sheet:04d}", sheet, annotator)

    def _path_of(self, stem: str, sheet: int, annotator: str) -> Path:
        alone = sheet <= self.alone or len(annotators_of(self.settings.annotators)) == 1
        return self.folder / (f"{stem}.csv" if alone else f"{stem}-{annotator}.csv")

    @property
    def _mode(self) -> int:
        return int(self.settings.ask_mode, 8)

    def _shown(self, rows: Iterable[Handed]) -> dict[str, Shown]:
        """What each of the `rows` that were handed out had been given, by its key."""
        found = {}
        for handed in rows:
            asked = self._asked_as(handed)
            found[handed.key] = Shown(asked.options, handed.sheet, asked.prompt)
        return found


def _eligible(
    who: Sequence[str], away: Set[str], lease: Purchase, had: Sequence[tuple[str, int, str]]
) -> Sequence[str]:
    """Who may have a row: best who is here and never had the item, else has no other slot of it.

    Two answers of one annotator to one item would tell nothing of agreement, so that a second slot
    rather waits for somebody who is away.
    """
    mine = [(slot, name) for item, slot, name in had if item == lease.item]
    anybody = {name for _, name in mine}
    others = {name for slot, name in mine if slot != lease.slot}
    here = [name for name in who if name not in away]
    wanted = (
        [name for name in here if name not in anybody],
        [name for name in here if name not in others],
        [name for name in who if name not in others],
    )
    return next(filter(None, wanted), who)


def answers_from(
    replies: Sequence[Reply], handed: Mapping[str, Handed], prices: Prices
) -> list[Answer]:
    """Replies as answers to the leases that their rows stand for, each at its annotator's price."""
    found = []
    for reply in replies:
        row = handed[reply.key]
        index = None if reply.position is None else row.order[reply.position]
        found.append(
            Answer(
                row.item,
                row.slot,
                row.token,
                index,
                row.annotator,
                prices.of(row.annotator),
                said=reply.said,
                text=reply.text,
                note=reply.note,
            )
        )
    return found


def annotators_of(text: str) -> list[str]:
    """The names in a list with commas between; the settings were checked when they were made.

    >>> annotators_of("anna, ben")
    ['anna', 'ben']
    """
    return [name.strip() for name in text.split(",")]


def away_from(folder: RunFolder) -> frozenset[str]:
    """The annotators of a run who get no new rows for now."""
    said = str(folder.read_toml("resolved.toml").get(AWAY, ""))
    return frozenset(annotators_of(said)) - {""}


def expect_free(settings: Settings) -> None:
    """Hold that no other run's sheets lie where those of a new one are to be.

    Their names would be the same, and a list of classes is shared by all sheets of a folder.

    Raises:
        DataError: there are some.
    """
    place = None if settings.ask_dir is None else Path(settings.ask_dir)
    if place is None or not place.is_dir():
        return
    if found := next((file.name for file in sorted(place.glob("*.csv")) if SHEET(file.name)), None):
        raise DataError(
            f"the folder {place} holds the sheet {found} of another run: give each run an --ask-dir"
            " of its own, or move those sheets away"
        )


def ask_folder(settings: Settings, run: Path) -> Path:
    """Where the sheets of a run lie."""
    return run / "ask" if settings.ask_dir is None else Path(settings.ask_dir)
