"""`check`: what was understood of a file, in sentences; and what is odd about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice

from stacksl.data.columns import find
from stacksl.data.dataset import Dataset
from stacksl.data.shapes import Shape
from stacksl.data.tables import Table
from stacksl.data.values import is_missing, listed, named, normal, one_line
from stacksl.errors import DataError
from stacksl.types import Item

_SHOWN = 20  # rejected rows that are listed one by one


def check(dataset: Dataset) -> list[str]:
    """What was understood of a file, and each unusable row, as sentences."""
    container, _, shape = dataset.format.partition(":")
    answers = len(dataset.answers)
    without_answer = f", {dataset.unlabeled:,} without" if dataset.unlabeled else ""
    counts = f"{answers:,} of {len(dataset.items):,} items have one{without_answer}"
    sentences = (
        f"{dataset.name}: {_count(dataset.total, 'row')} read as {container} ({shape}), "
        f"{len(dataset.items):,} usable",
        *columns_line(dataset),
        _options(dataset),
        f"answers: {counts if answers or dataset.unknown else 'no item has one'}",
        *unusable(dataset),
    )
    return [one_line(sentence) for sentence in sentences]


def columns_line(dataset: Dataset) -> list[str]:
    """Which columns of a file were taken for what, in one line; none of one without columns."""
    names, columns = {"prompt": "text"}, [*dataset.columns.values(), *dataset.unused]
    entries = [f"{names.get(r, r)}: {named(name, columns)}" for r, name in dataset.columns.items()]
    if entries and dataset.unused:
        entries.append(f"unused: {listed(dataset.unused)}")
    return [one_line(" · ".join(entries))] if entries else []


def _options(dataset: Dataset) -> str:
    if dataset.classes is None:
        sizes = Counter(len(item.candidates) for item in dataset.items)
        size_counts = ", ".join(f"{k} ({_count(n, 'item')})" for k, n in sorted(sizes.items())[:8])
        return f"options an item: {size_counts}{' and more' if len(sizes) > 8 else ''}"
    if not dataset.answers:
        return f"classes: {len(dataset.classes)}"
    counts = Counter(dict.fromkeys(range(len(dataset.classes)), 0))
    counts.update(dataset.answers.values())
    (largest, high), (smallest, low) = counts.most_common(1)[0], counts.most_common()[-1]
    return (
        f"classes: {len(dataset.classes)}, the largest '{dataset.classes[largest]}'"
        f" ({_count(high, 'item')}), the smallest '{dataset.classes[smallest]}' ({low:,})"
    )


def unusable(dataset: Dataset) -> Iterator[str]:
    """A sentence for each of the first unusable rows, and how many more there are."""
    for rejected in dataset.rejected[:_SHOWN]:
        id_text = f" (id '{rejected.id}')" if rejected.id else ""
        yield f"row {rejected.row}{id_text} is unusable: {rejected.reason}"
    unlisted = len(dataset.rejected) - _SHOWN
    if unlisted > 0:
        yield f"and {unlisted:,} more unusable rows"


def strange(unknown: Mapping[str, str], classes: Sequence[str], *, quoted: bool = True) -> str:
    """Some rows whose label is no class, with the nearest; labels like none only if `quoted`."""
    first_rows: dict[str, str] = {}
    for name, label in unknown.items():
        first_rows.setdefault(label, name)
    examples, folded_names = [], {name.casefold(): name for name in classes}
    for label, name in islice(first_rows.items(), 3):
        matches = get_close_matches(label.casefold(), folded_names, n=1)
        hint = f", did you mean '{folded_names[matches[0]]}'?" if matches else ""
        examples.append(f"'{label}' in {name}{hint}" if matches or quoted else name)
    return one_line("; ".join(examples))


def expect_classes(dataset: Dataset, subject: str, otherwise: str = "") -> None:
    """Check that a label of the data set, named `subject`, is a class, if it has labels.

    Raises:
        DataError: none is; `otherwise` ends the sentence with what else can be done.
    """
    labels = dataset.unknown or dataset.other_labels
    if labels and not dataset.answers and dataset.classes is not None:
        raise DataError(
            f"{subject} has labels, but none of them is one of the {len(dataset.classes)} classes"
            f" ({strange(labels, dataset.classes, quoted=False)}): correct the labels or the"
            f" classes, or name another column with --label-column{otherwise}"
        )


# --- what is odd but can be used -------------------------------------------------------------


def overlap(items: Iterable[Item], other_items: Iterable[Item]) -> int:
    """The number of `other_items` whose prompt is also among `items`."""
    prompts = {normal(item.prompt) for item in items}
    return sum(normal(item.prompt) in prompts for item in other_items)


def warnings_of(
    dataset: Dataset, table: Table, shape: Shape, roles: Mapping[str, str]
) -> Iterator[str]:
    """The sentences on a file that was read."""
    if dataset.rejected:
        kinds = Counter(r.kind for r in dataset.rejected)
        counts = ", ".join(f"{kind} ({n})" for kind, n in kinds.most_common())
        yield f"{_count(len(dataset.rejected), 'unusable row')}: {counts}"
    prompts = Counter(normal(item.prompt) for item in dataset.items)
    count = len(dataset.items) - len(prompts)
    if count:
        yield f"{_count(count, 'prompt')} already seen in an earlier row (each stays its own item)"
    missing = [role for role, name in roles.items() if name not in table.columns]
    if missing:
        yield f"no column '{roles[missing[0]]}' for the {missing[0]}: read without it"
    if shape.name == "classes":
        yield from _of_classes(dataset, table, shape)


def other_labels(table: Table, shape: Shape) -> dict[str, str]:
    """The labels of the first rows in the column that is named as the label, if none is read."""
    other_columns = [c for c in table.columns if c not in shape.columns.values()]
    rival = None if "label" in shape.columns else find("label", other_columns)
    cells = {row.number: row.values.get(rival) for row in table.head} if rival else {}
    return {f"row {n} of '{rival}'": str(c) for n, c in cells.items() if not is_missing(c)}


def _of_classes(dataset: Dataset, table: Table, shape: Shape) -> Iterator[str]:
    label = shape.columns.get("label")
    rival = find("label", [c for c in table.columns if c not in shape.columns.values()])
    if label is None and rival is not None:
        yield f"'{rival}' is not read as the label: it holds none of the known classes"
    classes = dataset.classes or ()
    counts = Counter(normal(name) for name in classes)
    indices = [index for index, name in enumerate(classes) if counts[normal(name)] > 1]
    if indices:
        ids: dict[int, str] = {}
        for id, index in dataset.answers.items():
            ids.setdefault(index, id)
        examples = ", ".join(f"'{ids[index]}'" for index in indices[:6] if index in ids)
        hint = f", see the items {examples}" if examples else ""
        yield f"{len(indices)} classes differ only in case or spaces{hint}"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
