"""Bought labels as files: tables, tasks of Label Studio, a data set with a card, pairs for DPO."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stacksl.api.labelling import COLUMNS, Answers, Bought, Progress, bought_answers, label_own
from stacksl.data import kind_of_table, write_table
from stacksl.data.label_studio import CONFIG, task
from stacksl.errors import MissingExtra, SettingsError
from stacksl.files.atomic import replace_file
from stacksl.lm.export.atomic import whole_folder
from stacksl.models.metrics import agreement_of
from stacksl.report.html import data_card
from stacksl.telemetry import refuse_telemetry

if TYPE_CHECKING:
    from stacksl.api.stored import Run

PAIR = ("prompt", "chosen", "rejected", "item", "labeler", "time", "price", "purpose")
_SAVED = ("dataset_dict.json",)  # what shows that a folder is a data set


def write_labels(run: Run, path: Path, *, names: bool = False) -> int:
    """Write the bought answers; how many purchases of the audit of a run that goes on are left out.

    Args:
        run: the run.
        path: its end says the format: `.json` is Label Studio's, with the labeling configuration in
            an `.xml` beside it; no end a folder for the library `datasets`; any other a table.
        names: whether people are named.

    Raises:
        SettingsError: the name ends in no known kind.
        DataError, RunError: it cannot be written.
        MissingExtra: a folder is wanted, and `datasets` is not installed.
    """
    if path.suffix:
        kind_of_table(path)
    found = bought_answers(run, names=names)
    if not path.suffix:
        _write_folder(path, found)
    elif path.suffix.lower() == ".json":
        write_table(path, (), tasks_of(found))
        replace_file(path.with_suffix(".xml"), CONFIG.encode())
    else:
        write_table(path, COLUMNS, [each.row for each in found.answers])
    return found.left_out


def write_own(run: Run, path: Path, progress: Progress = None) -> int:
    """Write the rows of a finished run's own files with a label each; how many there are.

    Raises:
        SettingsError: the name ends in no known kind.
        DataError: it cannot be written.
        RunError: the run has not finished.
    """
    kind_of_table(path)
    table = label_own(run, progress)
    write_table(path, table.columns, table.rows)
    return len(table.rows)


def write_pairs(run: Run, path: Path, *, names: bool = False) -> int:
    """Write the answers that train as pairs for DPO, in TRL's format with an explicit prompt.

    A chosen option makes a pair with each other option of its item. Answers that measure the
    model, of people who are set aside, and that name no option make none.

    Returns:
        The number of pairs.

    Raises:
        SettingsError: the items have no options of their own, or the name ends in no known kind.
        DataError: the file cannot be written.
    """
    kind_of_table(path)
    found = bought_answers(run, names=names)
    if found.classes is not None:
        raise SettingsError(
            "expected items with options of their own, got classes that all items share: give"
            " --labels FILE instead"
        )
    rows = [row for each in found.answers for row in _pairs(each)]
    write_table(path, PAIR, rows)
    return len(rows)


def _pairs(bought: Bought) -> list[dict[str, Any]]:
    row, item = bought.row, bought.item
    if item is None or row["label"] is None or row["set_aside"] or row["purpose"] == "audit":
        return []
    kept = {name: row[name] for name in PAIR[3:]}
    pair = {"prompt": item.prompt, "chosen": row["label"]}
    return [{**pair, "rejected": o, **kept} for o in item.candidates if o != row["label"]]


def tasks_of(found: Answers) -> list[dict[str, Any]]:
    """A task of Label Studio for each item, with its answers as annotations."""
    by_item: dict[str, list[Bought]] = {}
    for each in found.answers:
        if each.item is not None:
            by_item.setdefault(each.item.id, []).append(each)
    made = []
    for id, answers in by_item.items():
        rows = [
            {name: value for name, value in each.row.items() if name not in ("item", "text")}
            for each in answers
        ]
        data = {"id": id, "prompt": answers[0].row["text"]}
        made.append(task(data, _candidates(answers[0]), rows))
    return made


def _candidates(bought: Bought) -> tuple[str, ...]:
    return bought.item.candidates if bought.item else ()


# --- a folder for `datasets` ---------------------------------------------------------------------


def _write_folder(path: Path, found: Answers) -> None:
    """The answers as `DatasetDict.save_to_disk` writes them, and the card."""
    refuse_telemetry()
    try:
        import datasets
    except ImportError:
        raise MissingExtra.of(f"writing the data set '{path}'", "hub") from None
    text = datasets.Value("string")
    columns: dict[str, Any] = dict.fromkeys(COLUMNS, text)
    columns |= {"price": datasets.Value("float64"), "set_aside": datasets.Value("bool")}
    if found.classes is not None:
        columns["label"] = datasets.ClassLabel(names=list(found.classes))
    else:
        columns["options"] = datasets.Sequence(text)
    features = datasets.Features(columns)
    splits = {}
    for name, part in _splits(found).items():
        rows = [{**each.row, "options": list(_candidates(each))} for each in part]
        values = {column: [row[column] for row in rows] for column in columns}
        splits[name] = datasets.Dataset.from_dict(values, features=features)
    shown = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        with whole_folder(path, "data set", _SAVED) as draft:
            datasets.DatasetDict(splits).save_to_disk(str(draft))
            (draft / "README.md").write_text(data_card(card_facts(found)), encoding="utf-8")
    finally:
        if shown:
            datasets.enable_progress_bars()


def _splits(found: Answers) -> dict[str, list[Bought]]:
    """The answers that train, and those that measure, where there are any."""
    parts: dict[str, list[Bought]] = {"train": []}
    for each in found.answers:
        name = "audit" if each.row["purpose"] == "audit" else "train"
        parts.setdefault(name, []).append(each)
    return parts


def card_facts(found: Answers) -> dict[str, Any]:
    """The numbers of the data card; all are of answers that may be shown."""
    parts = _splits(found)
    rows = {name: [each.row for each in part] for name, part in parts.items()}
    every = [row for part in rows.values() for row in part]
    paid: dict[str, list[float]] = {}
    for row in every:
        paid.setdefault(row["labeler"], []).append(row["price"])
    return {
        "splits": {name: len(part) for name, part in rows.items()},
        "items": {name: len({row["item"] for row in part}) for name, part in rows.items()},
        "price": {name: sum(row["price"] for row in part) for name, part in rows.items()},
        "first": min((row["time"] for row in every), default=None),
        "last": max((row["time"] for row in every), default=None),
        "aside": sum(row["set_aside"] for row in every),
        "labels": _labels(rows, found.classes),
        "labelers": [(name, len(prices), sum(prices)) for name, prices in sorted(paid.items())],
        "agreement": agreement_of(found.agreement),
        "left_out": found.left_out,
        "classes": None if found.classes is None else len(found.classes),
        "pool": len(found.spec.dataset.items),
    }


def _labels(
    rows: Mapping[str, Sequence[Mapping[str, Any]]], classes: Sequence[str] | None
) -> list[tuple[str, list[int]]]:
    """How often each class, or kind of answer, was given in each split."""
    counts = []
    for part in rows.values():
        said = Counter(row["said"] for row in part)
        named = Counter(row["label"] for row in part if row["label"] is not None)
        counts.append((named, said))
    lines = [(name, [named[name] for named, _ in counts]) for name in classes or ()]
    kinds = ["none", "ambiguous", "broken"] if classes else ["label", "none", "ambiguous", "broken"]
    return [*lines, *((f"({kind})", [said[kind] for _, said in counts]) for kind in kinds)]
