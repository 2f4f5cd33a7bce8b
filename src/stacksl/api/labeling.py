"""What a run leaves to others: tables of labels, bought answers, and its model as a folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from stacksl.data import Dataset, expect_other, kind_of_table, rows_of, write_table
from stacksl.data.values import is_missing
from stacksl.data.writing import Progress
from stacksl.errors import DataError, RunError, SettingsError
from stacksl.features.given import GIVEN
from stacksl.ledger.purchases import counted
from stacksl.report.wording import MICRO
from stacksl.runs.finish.answers import table_answers
from stacksl.runs.items.intake import again_in_memory
from stacksl.runs.items.reading import layout_of
from stacksl.runs.items.sources import OWNED
from stacksl.runs.items.stored import differing
from stacksl.runs.loop.linear_trainer import DOUBT
from stacksl.runs.session.setup import features_again
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import FACTS, anchors, read_facts, sealed, shown_facts
from stacksl.runs.storage.status import evaluated
from stacksl.types import Item

if TYPE_CHECKING:
    from stacksl.api.stored import Run
    from stacksl.models.adapted import AdaptedModel
    from stacksl.models.linear import Model

    AnyModel: TypeAlias = Model | AdaptedModel

BUYING = ("labeler", "time", "price", "purpose", "set_aside")
COLUMNS = ("item", "key", "text", "label", "kind", *BUYING)
ADDED = ("label", "confidence", "source")
PREFIX = "predicted_"  # names of columns that a table has already
TO_PERSON = "to a person"  # the source of a row that the model may not label
Sourced: TypeAlias = "tuple[Mapping[str, Any], Item | None]"  # a row's values, and its item


@dataclass(frozen=True, slots=True)
class Labeled:
    """A table with labels.

    Attributes:
        left_out: purchases left out because they measure a model that is not finished.
        blank: how many rows of a file have no label, by their source, such as `human: none`;
            `unusable` are those that could not be read.
    """

    columns: tuple[str, ...]
    rows: list[dict[str, Any]] = field(repr=False)
    left_out: int = 0
    blank: Mapping[str, int] = field(default_factory=dict)


def label_file(
    model: AnyModel, path: str | Path, dataset: Dataset, progress: Progress, least: float | None
) -> Labeled:
    """The rows of the file `path`, read as `dataset`, each with what the `model` says of it.

    To its columns are added `label`, `confidence` (the label's probability) and `source` (`model`);
    names that the file has get the prefix `predicted_`. An unusable row has none of them,
    and no label one that is left to a person, as all below the probability `least` are.
    """
    columns, rows = rows_of(path, dataset)
    items = [item for _, item in rows if item is not None]
    labels = by_model(model, items, progress, least)
    return _labeled(columns, rows, labels, dataset.columns.get("label"))


def label_own(run: Run, progress: Progress = None, frame: Any = None) -> Any:
    """The rows of the run's own files, with people's answers where there are some.

    With the `frame` that the run was made from it is that frame with the added columns.

    The `source` is `human`, `model`, or `column`: a label of the column that the run judges stays
    where nobody answered, with its held-out probability, or if it is another run's that one's. An
    answer that names no class leaves the label empty, with the word for its source: `human: none`.
    Erased items are left out. A changed file gives no other columns than ids and prompts. A run
    that goes on after a change has the labels of its last end.

    Raises:
        RunError: the run has never finished, so that its audit is still sealed.
        DataError: the rows of `frame` are other items than the run's.
    """
    state, status = run.folder.read_state()["state"], run.status()
    ended = status["last_report"] and state != "running"  # nothing is being written
    if not (ended or state == "finished"):
        raise RunError(
            "expected a finished run, whose answers may all be shown, got one that is"
            f" {state}: its table can be written once it has ended"
            f" (`{status['resume'] or f'stacksl status {run.path}'}`)"
        )
    spec = RunSpec.open(run.folder)
    columns, rows = _own_rows(spec)
    labels = {
        **column_labels(run, spec),
        **human_labels(run, spec, now=state == "finished"),
    }
    if (judged_run := evaluated(run.folder.path, run.folder.resolved())) is not None:
        doubted = [item for item in spec.sources.usable.values() if "doubtful" in labels[item.id]]
        for id, cells in by_model(replace(run, path=judged_run).model, doubted, progress).items():
            labels[id] |= cells if cells["label"] == labels[id]["label"] else {}
    unlabeled = [item for _, item in rows if item is not None and item.id not in labels]
    model: Any = run.model
    if spec.settings.features == GIVEN:  # those of its own items are stored
        ids = [item.id for item in spec.dataset.items]
        model = replace(model, features=model.features.with_made(ids, features_again(spec)))
    labels = {**by_model(model, unlabeled, progress), **labels}
    if frame is not None:
        return own_rows(spec, frame, labels, PREFIX)
    label_column = spec.settings.column or spec.dataset.columns.get("label")
    return _labeled(columns, rows, labels, label_column)


def own_rows(spec: RunSpec, frame: Any, cells: Mapping[str, Mapping[str, Any]], before: str) -> Any:
    """The frame that a run was made from, joined with `cells` of its items by their ids.

    Rows without an id of their own are the run's by their place, so that other texts would get the
    labels of the run's.

    Raises:
        DataError: it is no frame of pandas, or its rows are other items than the run's.
    """
    table = frame.to_frame(frame.name or "text") if hasattr(frame, "to_frame") else frame
    if not hasattr(table, "assign"):
        raise DataError(
            f"expected the data frame of pandas that the run was made from, got a"
            f" {type(frame).__name__}: leave it out, and the rows of the run are given"
        )
    dataset, items = again_in_memory(frame, None, spec.sources.pool), spec.sources.usable
    own_items = [item for item in dataset.items if item.id in items]
    changed = next((item for item in own_items if item.prompt != items[item.id].prompt), None)
    if changed is not None:
        raise DataError(
            f"the row '{changed.id}' has another text than the item '{changed.id}' of the run: give"
            " the frame that the run was made from, with the same index and in the same order"
        )
    if not own_items:
        raise DataError(
            f"none of the {len(dataset.items):,} rows is an item of the run, whose ids are like"
            f" '{next(iter(items), '')}': give the frame that the run was made from, with the same"
            " index or the same column of ids"
        )
    return joined(table, dataset, cells, before, spec.settings.column)


def joined(
    frame: Any,
    dataset: Dataset,
    values_by_id: Mapping[str, Mapping[str, Any]],
    before: str,
    judged: str | None = None,
) -> Any:
    """A data frame of pandas with values for each item, on the same index.

    Args:
        frame: has the items of `dataset`, in order, and the unusable rows.
        dataset: as the frame was read.
        values_by_id: for the id of each item, values by the name of a column.
        before: prefix of these names where the frame has one of them.
        judged: the column of labels that the run judges, if any.
    """
    column = judged or dataset.columns.get("label")
    cells = frame[column].tolist() if [*frame.columns].count(column) == 1 else []
    values_by_id = _as_numbers(values_by_id, cells)
    names = list(dict.fromkeys(name for row in values_by_id.values() for name in row))
    prefix = _prefix(names, map(str, frame.columns), before)
    rejected_rows, items = {rejection.row for rejection in dataset.rejected}, iter(dataset.items)
    ids = ["" if n in rejected_rows else next(items).id for n in range(1, len(frame) + 1)]
    rows = [values_by_id.get(id, {}) for id in ids]
    return frame.assign(**{prefix + name: [row.get(name) for row in rows] for name in names})


def bought_answers(run: Run, *, names: bool) -> tuple[RunSpec, Labeled]:
    """The spec of a run, and its answers that may be shown, people by number or by `names`.

    What is left out are the purchases, answered or not, of the audit of a run that goes on.
    """
    spec = RunSpec.open(run.folder)
    items, in_column = spec.sources.usable, spec.settings.owned_column is not None
    with run.ledger as ledger:
        hidden = sealed(run.folder, ledger)
        bought = ledger.export()
        times = {(r.item, r.slot): r.time for r in ledger.rows() if r.event == "answered"}
        handed = ledger.private.handed()
        keys: dict[Any, str] = {(r.item, r.slot, r.annotator): r.key for r in handed}
        set_aside = ledger.set_aside
    visible: list[dict[str, Any]] = [row for row in bought if row["item"] not in hidden]
    people, rows = {} if names else _numbers(spec, bought), []
    for row in (row for row in visible if row["state"] == "answered"):
        id, item, index, person = row["item"], items.get(row["item"]), row["answer"], row["labeler"]
        if in_column and (own_id := id.removeprefix(OWNED)) in items:
            id = own_id
        time = datetime.fromtimestamp(times[row["item"], row["slot"]], UTC)
        cells = {
            "item": spec.dataset.own_id(id),
            "key": keys.get((row["item"], row["slot"], person)),
            "text": None if item is None else item.prompt,
            "label": None if item is None or index is None else item.candidates[index],
            "kind": row["kind"],
            "labeler": people.get(person, person),
            "time": time.isoformat(timespec="seconds"),
            "price": row["price"] / MICRO,
            "purpose": row["purpose"],
            "set_aside": person in set_aside,
        }
        rows.append(cells)
    return spec, Labeled(COLUMNS, rows, len(bought) - len(visible))


def _numbers(spec: RunSpec, bought: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What stands for the name of each person: a number, the same in every export of a run."""
    if not spec.settings.people:
        return {}
    answered = (row for row in bought if row["state"] == "answered")
    answerers = (row["labeler"] for row in answered if row["purpose"] != "owned")
    people = dict.fromkeys([*spec.settings.people, *answerers])
    return {name: f"annotator {number}" for number, name in enumerate(people, 1)}


def _own_rows(spec: RunSpec) -> tuple[tuple[str, ...], list[Sourced]]:
    """The columns of all files of a run, and their rows with the run's items.

    Only ids and prompts of items that are from no file, and of files that were changed, moved or
    deleted since. Files of owned labels are no part of the table.
    """
    usable, stamps = spec.sources.usable, spec.folder.resolved().get("files", {})
    columns: dict[str, None] = {}
    sourced: list[Sourced] = []
    for at, (path, part) in enumerate(zip(spec.files, spec.sources.parts, strict=True)):
        if part.kind == "owned":
            continue
        if path in stamps and not differing({path: stamps[path]}):
            layout = layout_of(spec.settings, first=not at)
            names, rows = rows_of(path, replace(part.data, layout=layout))
        else:
            names = ("id", "prompt")
            own_id, items = part.data.own_id, part.data.items
            rows = [({"id": own_id(item.id), "prompt": item.prompt}, item) for item in items]
        columns |= dict.fromkeys(names)
        sourced += [row for row in rows if row[1] is None or row[1].id in usable]
    return tuple(columns), sourced


def human_labels(run: Run, spec: RunSpec, *, now: bool = True) -> dict[str, dict[str, Any]]:
    """What people said of each row of the table, or is owned of it, but those who are set aside.

    Of several answers it is what two people said, else the first. If not `now`, only questions
    count that were asked before the last report.
    """
    items, labels = spec.sources.usable, {}
    with run.ledger as ledger:
        until = None if now else ledger.place(anchors(run.folder)[FACTS])
        answers = table_answers(spec, ledger, until)
    for id, words in answers.items():
        word = counted(words)
        label = items[id].candidates[word] if isinstance(word, int) else None
        source = f"human: {word}" if label is None else "human"
        labels[id] = {"label": label, "confidence": None, "source": source}
    return labels


def column_labels(run: Run, spec: RunSpec) -> dict[str, dict[str, Any]]:
    """The labels of the column that a run judges, by item; empty of other runs."""
    if spec.settings.column is None:
        return {}
    with run.ledger as ledger:
        saved = ledger.arrays()
    arrays = saved.arrays if saved and saved.whole else {}
    probabilities, flagged = (arrays.get(DOUBT + name, np.zeros(0)) for name in ("sure", "flagged"))
    doubts = zip(probabilities.tolist(), flagged.tolist(), strict=True)
    labels = zip(spec.dataset.items, spec.sources.model_labels, doubts, strict=False)
    return {
        item.id: {
            **{"label": item.candidates[at], "confidence": round(right, 6), "source": "column"},
            "doubtful": bool(doubtful),
        }
        for item, at, (right, doubtful) in labels
        if at >= 0
    }


def by_model(
    model: AnyModel, items: Sequence[Item], progress: Progress, least: float | None = None
) -> dict[str, dict[str, Any]]:
    """What the model says of each item, by its id."""
    predictions = model.predict(items, progress)
    rows = predictions if least is None else left_to_people(predictions, least)
    return {row["id"]: answer_cells(row) for row in rows}


def threshold_of(run: Run, right: float | str) -> float:
    """The probability from which the model's labels are `right`, as the report says of its audit.

    Raises:
        SettingsError: `right` is no share of at most 99%.
        RunError: nothing shows it.
    """
    from stacksl.models.own_items import fewest
    from stacksl.runs.settings.budget import right_share, stop_rule

    share_wanted, facts = right_share(str(right)), shown_facts(run.folder)
    if facts is None or facts.own is None:
        raise RunError(
            f"expected a finished run of a linear model to label rows so well, got {run.path}:"
            " leave --right out"
        )
    if stop_rule(run.folder.resolved().get("stop_when"))[0] == "right":
        raise RunError(
            f"the audit of {run.path} was drawn from the rows that its model labels, which are not"
            " like new ones: give --right to a run whose audit was drawn first"
        )
    if facts.audit is not None and facts.audit.trained_on:
        raise RunError(
            f"the model of {run.path} was trained on the audit as well, so no threshold was"
            " measured on it: leave --right out"
        )
    tested = [share for share in facts.own.shares if share.wanted >= share_wanted]
    thresholds = [share.threshold for share in tested if share.threshold]
    if not thresholds:
        shares, lowest = [share.wanted for share in facts.own.shares], tested[0].wanted
        passed = [share.wanted for share in facts.own.shares if share.threshold]
        lower = f"{100 * max(passed):g}% with --right, which passed, or " if passed else ""
        raise RunError(
            f"no labels of this model are shown to be right in {100 * lowest:g}% of rows: on"
            f" {facts.own.measured} measured items {'no' if not passed else 'no such'} share"
            f" passed of those tested ({', '.join(f'{100 * share:g}%' for share in shares)}), and"
            f" {100 * lowest:g}% takes at least {fewest(lowest)} items without an error: give"
            f" {lower}a run with a better model or a larger audit, or leave --right out"
        )
    return thresholds[0]


def left_to_people(rows: Iterable[dict[str, Any]], least: float) -> Iterator[dict[str, Any]]:
    """Rows of predictions, without a choice where the probability is below the `least`."""
    for row in rows:
        if row["probability"] >= least:
            yield {**row, "source": "model"}
        else:
            yield {**row, "choice": None, "index": None, "source": TO_PERSON}


def answer_cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the model says of an item, by the names of columns, of a row of its predictions."""
    label, probability = row["choice"], round(row["probability"], 6)
    fields = {"label": label, "confidence": None if label is None else probability}
    return fields | {"source": row.get("source", "model")}


def _labeled(
    columns: Sequence[str],
    rows: Sequence[Sourced],
    labels: Mapping[str, Mapping[str, Any]],
    label_column: str | None,
) -> Labeled:
    labels = _as_numbers(labels, [values.get(label_column or "") for values, _ in rows])
    judges_column = any("doubtful" in row for row in labels.values())
    added = [*ADDED, "doubtful"] if judges_column else [*ADDED]
    prefix = _prefix(added, columns, PREFIX)
    names = {name: prefix + name for name in added}
    labeled_rows = []
    for values, item in rows:
        label = {} if item is None else labels[item.id]
        labeled_rows.append({**values, **{new: label.get(name) for name, new in names.items()}})
    unlabeled = (row for row in labeled_rows if row[names["label"]] is None)
    blank = Counter(str(row[names["source"]] or "unusable") for row in unlabeled)
    return Labeled((*columns, *names.values()), labeled_rows, blank=blank)


def _as_numbers(
    labels: Mapping[str, Mapping[str, Any]], cells: Sequence[Any]
) -> Mapping[str, Mapping[str, Any]]:
    """Labels of the type of a column's `cells`, if these are numbers or truth values.

    Such a column names its classes by their digits, which would compare as unequal to its cells.
    """
    # a workbook's cells are texts that hold their numbers
    kinds = {type(getattr(cell, "value", cell)) for cell in cells if not is_missing(cell)}
    if not kinds or not kinds <= {int, float, bool}:
        return labels
    value_of = float if float in kinds else json.loads
    try:
        return {
            id: {**row, "label": row["label"] and value_of(row["label"])}
            for id, row in labels.items()
        }
    except ValueError:  # the classes have other names
        return labels


def _prefix(names: Iterable[str], columns: Iterable[str], word: str) -> str:
    """The `word`, repeated until no name with it is one of the `columns`; empty if none is."""
    prefix, taken = "", {*columns}
    while taken & {prefix + name for name in names}:
        prefix += word
    return prefix


# Files ------------------------------------------------------------------------------------------


def export_rows(
    run: Run, path: Path, rows: Callable[[], Labeled], progress: Progress = None
) -> Labeled:
    """Write the rows of a run that are made when it is clear that they can be; the rows.

    The end of `path` says the format.

    Raises:
        SettingsError: the name ends in no known kind, or is that of a file of the run.
        DataError: it cannot be written.
    """
    kind_of_table(path)
    files = run.folder.resolved().get("files", {})
    expect_other(path, files)
    table = rows()
    write_table(path, table.columns, table.rows, progress, like=next(iter(files), None))
    return table


def write_model(run: Run, out: Path) -> Path:
    """Write the final model into the new or empty folder `out`, which needs no stacksl; `out`.

    Raises:
        SettingsError: the model is of a kind that cannot be written so.
        RunError: there is no model yet, or `out` is not empty or cannot be written.
        FeatureError, MissingExtra: the encoder's weights or packages are missing.
    """
    from stacksl.models.adapted import is_adapted
    from stacksl.models.portable.folder import write_folder

    if is_adapted(run.folder.model):
        raise SettingsError(
            "--model expects class heads on features, but this run adapted a language model:"
            f" PEFT loads its folder {run.folder.model} without stacksl"
        )
    model: Any = run.model
    facts, right = read_facts(run.folder), dict[float, float]()
    for share in facts.own.shares if facts.own else ():
        with suppress(RunError):  # nothing shows it
            right[share.wanted] = threshold_of(run, share.wanted)
    write_folder(out, model, facts, right)
    return out
