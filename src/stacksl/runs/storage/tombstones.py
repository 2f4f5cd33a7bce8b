"""The places of forgotten items, so that all other items keep theirs.

Rows of features, the shuffled order and the rounds of the ledger refer to items by place. A
forgotten item keeps its place under a random name, whether or not the user has deleted its row from
the data; a salted hash of the items after it shows which of the two is the case.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any, TypeVar

from stacksl.errors import RunError
from stacksl.files import formats
from stacksl.files.atomic import sync_folder, write_atomic
from stacksl.runs.items.sources import Part, Sources
from stacksl.runs.storage.folder import FORGETTING, OWN, RunFolder
from stacksl.types import Item

TOMBSTONES = "forgotten.json"
T = TypeVar("T")

NUMBERED = re.compile(r"(.*?)row-(\d{6,})", re.DOTALL)  # an id that is the number of a row
AHEAD = 8  # items after a tombstone that are compared with those of the file


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The place of one forgotten item.

    Attributes:
        file: number of the file it was in: 0 for the data, then files in the order of adding.
        place: its place among the items of that file, from 0.
        name: its id since.
        size: how many candidates it had.
        numbered: whether its id was the number of its row: ids after a deleted row move up.
        ahead, mark: how many items follow before the next tombstone (at most 8), and a salted
            hash of them.
    """

    file: int
    place: int
    name: str
    size: int
    numbered: bool
    ahead: int = 0
    mark: str = ""

    def item(self, classes: tuple[str, ...] | None) -> Item:
        """The item in its place: without its text, with as many candidates."""
        options = tuple(f"option {number + 1}" for number in range(self.size))
        return Item(self.name, "(forgotten)", classes or options)


@dataclass(frozen=True, slots=True)
class Tombstones:
    """The forgotten items of a run, and those initial values that depended on their features.

    Attributes:
        salt: of the marks.
        stones: sorted by file and place.
        classes: the fixed label set, None where items have their own options.
        aside, aside_at_first: rows excluded from buying when an item was forgotten.
        gate_scale: c as computed from the first items, None where it was not.
        gate_state: state of the gate before round 1.
    """

    salt: str
    stones: tuple[Tombstone, ...] = ()
    classes: tuple[str, ...] | None = None
    aside: tuple[int, ...] = ()
    aside_at_first: tuple[int, ...] = ()
    gate_scale: float | None = None
    gate_state: tuple[float, float, float, float] | None = None

    @classmethod
    def over(cls, sources: Sources) -> Tombstones:
        """No tombstones, for the items of `sources`."""
        return cls(secrets.token_hex(16), (), sources.pool.classes)

    @classmethod
    def read(cls, folder: RunFolder, name: str = TOMBSTONES) -> Tombstones | None:
        """The tombstones of a run; None where nothing was forgotten.

        Raises:
            RunError: the file cannot be read.
        """
        path = folder.path / name
        if not path.exists():
            return None
        try:
            table = formats.from_json(path.read_bytes())
            stones = tuple(Tombstone(**stone) for stone in table.pop("stones"))
            plain: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in table.items()
            }
            return cls(stones=stones, **plain)
        except (OSError, ValueError, TypeError, KeyError) as fault:
            raise RunError(f"{path} cannot be read ({fault}): restore it from a copy") from fault

    @classmethod
    def begun(cls, folder: RunFolder) -> Tombstones | None:
        """The tombstones of an unfinished call of `forget`; None without one."""
        return cls.read(folder, FORGETTING)

    def write(self, folder: RunFolder, name: str = TOMBSTONES) -> None:
        """Write them into the run's folder."""
        write_atomic(folder.path / name, formats.to_json(asdict(self)))

    def begin(self, folder: RunFolder) -> None:
        """Write them as pending: from now on every command but `forget` refuses the run."""
        self.write(folder, FORGETTING)

    @property
    def names(self) -> frozenset[str]:
        """The ids of the tombstones."""
        return frozenset(stone.name for stone in self.stones)

    def with_stone(self, sources: Sources, row: int, name: str) -> Tombstones:
        """These and one for item number `row` of `sources`."""
        file = next(n for n, rows in enumerate(sources.rows) if row in rows)
        item = sources.dataset.items[row]
        numbered = NUMBERED.fullmatch(item.id) is not None
        new = Tombstone(file, row - sources.rows[file].start, name, len(item.candidates), numbered)
        stones = sorted((*self.stones, new), key=lambda stone: (stone.file, stone.place))
        places = [{s.place for s in stones if s.file == n} for n in range(len(sources.parts))]
        texts = [part.data.items for part in sources.parts]
        marked = (self._marked(s, texts[s.file], places[s.file]) for s in stones)
        return replace(
            self,
            stones=tuple(marked),
            aside=tuple(sorted(sources.aside)),
            aside_at_first=tuple(sorted(sources.aside_at_first)),
        )

    def _marked(self, stone: Tombstone, items: Sequence[Item], places: set[int]) -> Tombstone:
        """The stone with a mark of the items after it in the same file."""
        start = stone.place + 1
        stop = next((p for p in range(start, len(items)) if p in places), len(items))
        following = items[start : min(stop, start + AHEAD)]
        return replace(stone, ahead=len(following), mark=self._mark(following))

    def _mark(self, items: Sequence[Item]) -> str:
        fixed = self.classes is not None
        texts = "\x1d".join(
            "\x1e".join((item.prompt, *(() if fixed else item.candidates))) for item in items
        )
        return sha256(f"{self.salt}{texts}".encode("utf-8", "surrogatepass")).hexdigest()

    def place(self, sources: Sources, *, stated: bool = False) -> Sources:
        """`sources` as read from the files, with each item in its place and under its first id.

        `stated` says that the first file, the run's own copy, has all ids: they never move.
        """
        found, parts = sources.pool.classes, []
        if self.classes is not None and found is not None and set(found) < set(self.classes):
            sources = sources.with_labels(self.classes)  # the only item of a class was deleted
        for number, (kind, data) in enumerate(sources.parts):
            stones = {s.place: s for s in self.stones if s.file == number}
            moves = not (stated and number == 0)
            items, names = self._placed(data.items, stones, sources.pool.classes, moves)
            answers, unknown = _renamed(data.answers, names), _renamed(data.unknown, names)
            placed = replace(data, items=tuple(items), answers=answers, unknown=unknown)
            parts.append(Part(kind, placed))
        return replace(
            sources,
            parts=tuple(parts),
            gone=self.names,
            stays=frozenset(self.aside),
            stays_at_first=frozenset(self.aside_at_first),
        )

    def _placed(
        self,
        items: Sequence[Item],
        waiting: Mapping[int, Tombstone],
        classes: tuple[str, ...] | None,
        moves: bool,
    ) -> tuple[list[Item], dict[str, str]]:
        """The items with tombstones among them, and their first ids by those in the file.

        Adjacent tombstones form a group: how many of its rows are still in the file is found from
        the items after the last one.
        """
        placed: list[Item] = []
        names: dict[str, str] = {}
        at = moved = 0
        while at < len(items) or len(placed) in waiting:
            group: list[Tombstone] = []
            while (stone := waiting.get(len(placed))) is not None:
                group.append(stone)
                placed.append(stone.item(classes))
            if group:
                kept = self._kept(items, at, group)
                at += kept
                moved += len(group) - kept if moves and group[0].numbered else 0
            if at < len(items) and len(placed) not in waiting:
                names[items[at].id] = _moved(items[at].id, moved)
                placed.append(replace(items[at], id=names[items[at].id]))
                at += 1
        return placed, names

    def _kept(self, items: Sequence[Item], at: int, group: Sequence[Tombstone]) -> int:
        """How many rows of a group of tombstones are still in the file, from place `at` on."""
        last = group[-1]
        for kept in range(len(group) + 1):
            following = items[at + kept : at + kept + last.ahead]
            if last.ahead and len(following) == last.ahead and self._mark(following) == last.mark:
                return kept
        return min(len(group), len(items) - at)


def finish(folder: RunFolder) -> None:
    """Put the pending tombstones in force; every command accepts the run again."""
    os.replace(folder.path / FORGETTING, folder.path / TOMBSTONES)
    sync_folder(folder.path)


def as_it_was(folder: RunFolder, sources: Sources) -> Sources:
    """The `sources` of a run with tombstones in the places of forgotten items.

    Raises:
        RunError: the tombstones cannot be read.
    """
    known = Tombstones.read(folder)
    own = (folder.path / OWN).is_file()
    return sources if known is None else known.place(sources, stated=own)


def _renamed(values: Mapping[str, T], names: Mapping[str, str]) -> dict[str, T]:
    """The `values` under other ids; those of forgotten items are left out."""
    return {names[name]: value for name, value in values.items() if name in names}


def _moved(name: str, rows: int) -> str:
    """The id of an item whose file has lost so many `rows` above it."""
    match = NUMBERED.fullmatch(name)
    if match is None or not rows:
        return name
    return f"{match[1]}row-{int(match[2]) + rows:06d}"
