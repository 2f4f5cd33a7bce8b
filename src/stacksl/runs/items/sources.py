"""The items of a run and their sources: files, the built-in samples, owned labels."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain, pairwise, starmap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from stacksl.data import Classes, Dataset, sample
from stacksl.errors import DataError
from stacksl.laboratory import of_laboratory
from stacksl.report.wording import plural
from stacksl.runs.items.reading import load_owned, load_test, read_first
from stacksl.runs.settings.fields import Settings
from stacksl.types import Item

STDIN = "-"  # names standard input as data
SAMPLE = "sample"  # names the built-in sample as data
QUESTIONS = "questions"  # names the questions of the sample language model as data
ROW = re.compile(r"row-\d+")  # the id of an item without one in its file
OWNED = "owned/"  # prefix of the ids of owned items


Kind = Literal["pool", "owned"]


class Part(NamedTuple):
    """The items of one of a run's files, to choose from (`pool`) or with `owned` labels.

    `path` is of a file that was added after the run began.
    """

    kind: Kind
    data: Dataset
    path: str = ""


@dataclass(frozen=True)
class Sources:
    """All items of a run in a fixed order, file by file.

    Attributes:
        parts: the data, then the other files in the order in which they were added.
        test: the test set of the final model.
        given: the classes as they were given, with descriptions and examples, if they were.
        start: how many of the parts there were at the start of the run.
        erased: the rows of items without text and features, which keep their places.
        orphaned, orphaned_at_first: rows that stay `excluded` after the owned item with their text
            was erased.
        began: the classes at the start of the run, where some were added since; else None.
        model_labels: the class that a model gave each item, -1 for none; empty where none are
            given, and shorter than the items where some were added since.
    """

    parts: tuple[Part, ...]
    test: Dataset | None = None
    given: Classes | None = None
    start: int = 1
    erased: frozenset[int] = frozenset()
    orphaned: frozenset[int] = frozenset()
    orphaned_at_first: frozenset[int] = frozenset()
    began: tuple[str, ...] | None = None
    model_labels: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        pool: Dataset,
        test: Dataset | None = None,
        owned: Dataset | None = None,
        classes: Classes | None = None,
    ) -> Sources:
        """A pool, followed by the items of `owned` with their labels; `classes` as given."""
        sources = cls((Part("pool", pool),), test, classes)
        sources = sources if owned is None else sources.with_owned(owned)
        return replace(sources, start=len(sources.parts))

    def with_owned(self, owned: Dataset, path: str = "") -> Sources:
        """These sources and a file of owned items."""
        number, classes = self._count("owned"), self.pool.classes
        prefix = OWNED if number == 0 else f"{OWNED}{number + 1}/"
        items = tuple(
            Item(prefix + item.id, item.prompt, classes or item.candidates) for item in owned.items
        )
        labels = {prefix + name: index for name, index in owned.answers.items()}
        data = replace(owned, items=items, answers=labels, unknown={}, classes=classes)
        return replace(self, parts=(*self.parts, Part("owned", data, path)))

    def with_items(self, dataset: Dataset, path: str) -> Sources:
        """These sources and a file of more items to choose from.

        Raises:
            DataError: an id is taken already.
        """
        prefix = f"more-{self._count('pool')}/"  # of ids that are row numbers
        names = {i.id: prefix + i.id if ROW.fullmatch(i.id) else i.id for i in dataset.items}
        dataset = replace(
            dataset,
            items=tuple(replace(item, id=names[item.id]) for item in dataset.items),
            answers={names[name]: answer for name, answer in dataset.answers.items()},
            unknown={names[name]: label for name, label in dataset.unknown.items()},
        )
        run_ids = {item.id for item in self.dataset.items}
        if repeats := [row for row, item in enumerate(dataset.items, 1) if item.id in run_ids]:
            raise DataError(
                f"{dataset.name} has {plural(len(repeats), 'id')} that the run has already, the"
                f" first of item {repeats[0]}: give new items ids of their own"
            )
        return replace(self, parts=(*self.parts, Part("pool", dataset, path)))

    def _count(self, kind: str) -> int:
        return sum(part.kind == kind for part in self.parts)

    def with_added_classes(self, added: Mapping[str, str]) -> Sources:
        """These sources with the classes `added` behind the present ones, and descriptions."""
        classes = self.classes
        assert classes is not None
        names, descriptions = (*classes.names, *added), (*classes.descriptions, *added.values())
        examples = (*classes.examples, *((),) * len(added)) if classes.examples else ()
        return replace(
            self,
            parts=tuple(part._replace(data=_wider(part.data, names)) for part in self.parts),
            test=None if self.test is None else _wider(self.test, names),
            given=Classes(names, descriptions, examples),
            began=self.began or classes.names,
        )

    def as_begun(self) -> Sources:
        """The usable items of the start of the run, for another one."""
        parts = (
            Part(kind, replace(data, items=tuple(i for i in data.items if i.id in self.usable)))
            for kind, data, _ in self.parts[: self.start]
        )
        labels = enumerate(self.model_labels[: self.first])
        kept_labels = tuple(label for row, label in labels if row not in self.erased)
        return Sources(tuple(parts), self.test, self.given, self.start, model_labels=kept_labels)

    @property
    def added(self) -> tuple[Part, ...]:
        """The files that were added after the run began."""
        return self.parts[self.start :]

    @property
    def pool(self) -> Dataset:
        """The items of the first file, to choose from."""
        return self.parts[0].data

    @cached_property
    def dataset(self) -> Dataset:
        """All items, with the answers that the files to choose from give."""
        items = tuple(chain.from_iterable(part.data.items for part in self.parts))
        unknown = dict(chain.from_iterable(part.data.unknown.items() for part in self.parts))
        return replace(self.pool, items=items, answers=self._labels("pool"), unknown=unknown)

    @cached_property
    def owned(self) -> dict[str, int]:
        """Id to label of the owned items, in their order."""
        return self._labels("owned")

    def _labels(self, kind: str) -> dict[str, int]:
        labels = (part.data.answers.items() for part in self.parts if part.kind == kind)
        return dict(chain.from_iterable(labels))

    @cached_property
    def rows(self) -> tuple[range, ...]:
        """The rows of each part in `dataset`."""
        stops = [0, *accumulate(len(part.data.items) for part in self.parts)]
        return tuple(starmap(range, pairwise(stops)))

    @cached_property
    def usable(self) -> dict[str, Item]:
        """Id to item of all items but the erased ones, in their order."""
        items = enumerate(self.dataset.items)
        return {item.id: item for row, item in items if row not in self.erased}

    @property
    def first(self) -> int:
        """The number of items at the start of the run."""
        return self.rows[self.start - 1].stop

    @property
    def segments(self) -> list[range]:
        """The rows to choose from, by file."""
        pairs = zip(self.parts, self.rows, strict=True)
        return [rows for part, rows in pairs if part.kind == "pool"]

    @property
    def features(self) -> dict[str, slice]:
        """The folders below `features/`, each with the slice of items that it has."""
        added_rows = enumerate(self.rows[self.start :], start=1)
        added = {f"more-{number}": slice(rows.start, rows.stop) for number, rows in added_rows}
        return {".": slice(0, self.first), **added}

    @property
    def classes(self) -> Classes | None:
        """The fixed label set with its descriptions and examples."""
        names = self.pool.classes
        if names is None:
            return None
        details = self.given or Classes((), ())
        blank = [""] * (len(names) - len(details.descriptions))
        return Classes(names, (*details.descriptions, *blank), details.examples)

    @property
    def excluded(self) -> frozenset[int]:
        """Rows of which no label is bought: owned items, and items with their text.

        Those with the text of an example of a class are such items as well.
        """
        return self._alike(self.dataset.items) | self.orphaned

    @property
    def available(self) -> int:
        """How many items there are to buy labels of."""
        return len(self.dataset.items) - len(self.excluded)

    @property
    def excluded_at_first(self) -> frozenset[int]:
        """The same at the start of the run, which fixed the number of rounds."""
        return self._alike(self.dataset.items[: self.first]) | self.orphaned_at_first

    def _alike(self, items: Sequence[Item]) -> frozenset[int]:
        texts = {item.content for item in items if item.id in self.owned}
        numbered = enumerate(items) if texts else ()
        owned_rows = (row for row, item in numbered if item.content in texts)
        return frozenset(chain(owned_rows, () if self.given is None else self.given.alike(items)))


def _wider(dataset: Dataset, classes: tuple[str, ...]) -> Dataset:
    """The data set with more classes; labels that were unknown may become known."""
    indices = {name: index for index, name in enumerate(classes)}
    names = dataset.classes or ()
    answers = {name: indices[label] for name, label in dataset.unknown.items() if label in indices}
    return replace(
        dataset,
        items=tuple(replace(item, candidates=classes) for item in dataset.items),
        answers={**{name: indices[names[n]] for name, n in dataset.answers.items()}, **answers},
        unknown={name: label for name, label in dataset.unknown.items() if name not in answers},
        classes=classes,
    )


def load(
    source: str, test: str | None, settings: Settings, *, classes: Classes | None = None
) -> Sources:
    """The items that `source` names and the test set: paths, or the built-in samples."""
    test_set: Dataset | None = None
    if source in (SAMPLE, QUESTIONS):
        dataset, built_in_test = sample() if source == SAMPLE else of_laboratory("questions")()
        test_set = built_in_test if test == source else None
    else:
        dataset = read_first(source, settings, classes)
    if test is not None and test_set is None:
        test_set = load_test(test, dataset, settings)
    owned = load_owned(settings.owned, dataset, settings)
    return Sources.of(dataset, test_set, owned, classes)


def of_stdin(settings: Settings, classes: Classes | None) -> Dataset:
    """The items of standard input, as of a file."""
    with stdin_copied() as path:
        return replace(read_first(path, settings, classes), name="stdin")


@contextmanager
def stdin_copied() -> Iterator[str]:
    """The path of a private copy of standard input, which is read to its end."""
    with TemporaryDirectory(prefix="stacksl-") as folder:  # private, as mkdtemp makes it
        path = Path(folder) / "stdin"
        if not path.write_bytes(sys.stdin.buffer.read()):
            raise DataError("standard input is empty: expected rows, such as lines of a CSV file")
        try:
            yield str(path)
        except DataError as fault:
            sentence = re.sub(f"(the file )?'{re.escape(str(path))}'", "standard input", str(fault))
            fault.args = (sentence, *fault.args[1:])
            raise
