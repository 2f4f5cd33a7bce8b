"""`check`: what was understood of a file, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from stacksl.data.dataset import Dataset
from stacksl.data.oddities import overlap
from stacksl.data.values import one_line

_SHOWN = 20  # rejected rows that are listed one by one


def check(dataset: Dataset, against: Dataset | None = None) -> list[str]:
    """What was understood of a file and what is wrong with it, as sentences.

    Args:
        dataset: the file as read.
        against: a test set, whose prompts must not be among the dataset's.
    """
    sentences = list(_understood(dataset))
    sentences.extend(f"warning: {warning}" for warning in dataset.warnings)
    sentences.extend(_rejected(dataset))
    if against is not None:
        sentences.extend(_against(dataset, against))
    return [one_line(sentence) for sentence in sentences]


def _understood(dataset: Dataset) -> Iterator[str]:
    container, _, shape = dataset.format.partition(":")
    yield (
        f"{dataset.name}: {dataset.total:,} rows read as {container} ({shape}), "
        f"{len(dataset.items):,} usable"
    )
    if dataset.columns:
        roles = (f"{role} from '{column}'" for role, column in dataset.columns.items())
        yield f"columns: {', '.join(roles)}"
    yield _options(dataset)
    answers = len(dataset.answers)
    left = f", {dataset.unlabelled:,} without" if dataset.unlabelled else ""
    yield f"answers: {answers:,} of {len(dataset.items):,} items have one{left}"


def _options(dataset: Dataset) -> str:
    if dataset.classes is None:
        sizes = Counter(len(item.candidates) for item in dataset.items)
        each = ", ".join(f"{k} ({_items(n)})" for k, n in sorted(sizes.items())[:8])
        return f"options an item: {each}{' and more' if len(sizes) > 8 else ''}"
    counts = Counter(dict.fromkeys(range(len(dataset.classes)), 0))
    counts.update(dataset.answers.values())
    (most, high), (least, low) = counts.most_common(1)[0], counts.most_common()[-1]
    return (
        f"classes: {len(dataset.classes)}, the largest '{dataset.classes[most]}' ({_items(high)}), "
        f"the smallest '{dataset.classes[least]}' ({low:,})"
    )


def _items(count: int) -> str:
    return f"{count:,} item{'' if count == 1 else 's'}"


def _rejected(dataset: Dataset) -> Iterator[str]:
    for rejected in dataset.rejected[:_SHOWN]:
        who = f" (id '{rejected.id}')" if rejected.id else ""
        yield f"row {rejected.row}{who} set aside: {rejected.reason}"
    more = len(dataset.rejected) - _SHOWN
    if more > 0:
        yield f"and {more:,} more rows set aside"


def _against(dataset: Dataset, against: Dataset) -> Iterator[str]:
    shared = overlap(dataset.items, against.items)
    if shared:
        yield (
            f"warning: {shared:,} of {len(against.items):,} prompts of {against.name} are also in "
            f"{dataset.name}: accuracy on them says little"
        )
    else:
        yield f"no prompt of {against.name} is in {dataset.name}"
    if dataset.classes is not None and against.classes is not None:
        strange = sorted({*against.classes, *against.unknown.values()} - {*dataset.classes})
        if strange:
            yield (
                f"warning: {len(strange)} classes of {against.name} are not in {dataset.name}: "
                f"{', '.join(strange[:6])}"
            )
