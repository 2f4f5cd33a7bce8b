"""Questions and model of a study: official files, or the sample."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from stacksl.core.rng import generator
from stacksl.data import Dataset, read
from stacksl.errors import DataError, SettingsError, StackslError
from stacksl.runs.items.intake import OF_SAMPLE
from stacksl.runs.settings.fields import FIELDS
from stacksl.types import Item
from stacksl_lab.language.paper import SIZES, SUBJECTS
from stacksl_lab.language.tasks import Setup, Task, subset
from stacksl_lab.sample import FOLDER

EXAMPLES = 5
SMALL = (29, 16, 11)
"""Items of the three small streams that replace MMLU's subjects on the sample's questions."""

SAMPLE_SETTINGS: Mapping[str, Any] = {
    "protocol": "option",
    "normalization": "pmi",
    "temperature": 1.0,
    "pmi_context": "empty",
    "max_len_prompt": None,
    "max_len_choice": None,
    "epochs": FIELDS["lm.epochs"].default,
    "learning_rate": OF_SAMPLE["update.learning_rate"],
    "batch_tokens": OF_SAMPLE["lm.batch_tokens"],
}
"""How the sample model is asked and trained: by options, since it has learned no letters; None: the
default of `stacksl.Settings`."""

_TRAIN = ("train.jsonl", "phrases_no_exclude_train.jsonl", "train_sample1000.jsonl")
_TEST = ("test.jsonl", "phrases_no_exclude_test.jsonl")
_DEV = ("dev.jsonl", "phrases_no_exclude_dev.jsonl")
_MEDQA = (".", "US/4_options", "4_options", "medqa/US/4_options", "questions/US/4_options")
_QUICK = (40, 60)


def setup_of(
    study: str,
    model: str | None = None,
    data: str | None = None,
    test: str | None = None,
    medqa: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Setup:
    """What `study` is played on.

    Args:
        study: its name; `mmlu` needs MMLU's three subjects and MedQA.
        model: a folder, a name on the hub, or `sample`; absent with `data`: the sample.
        data: a folder with the official files of MedQA (for `mmlu`: of MMLU), or a file of items;
            absent with `model`: the sample model's own questions.
        test: the file to test on, where `data` is a file.
        medqa: for `mmlu`, the folder of MedQA, on which kl_weight and k are chosen; next to `data`
            where it is not said.
        settings: of every run, before those of the study.

    Raises:
        SettingsError: one of model and data was given without the other.
        DataError: files are missing or cannot be used.
    """
    if data is None and (model is None or model == "sample"):
        from stacksl_lab.sample.questions import TEMPLATE

        tasks = _sample_tasks()
        sample_settings: Mapping[str, Any] = {**SAMPLE_SETTINGS, "template": TEMPLATE}
        return _setup("sample", tasks, {**sample_settings, **(settings or {})})
    if model is None or data is None:
        missing = "--model NAME_OR_DIR" if model is None else "--data DIR"
        raise SettingsError(
            f"a study takes a model and its data together: give {missing} too, or neither of them"
            " for the sample model on its own questions"
        )
    if study != "mmlu":
        return _setup(model, (_medqa(data, test),), settings)
    tasks = (_medqa(medqa or _medqa_near(data), None), *_mmlu(data))
    return _setup(model, tasks, settings)


def quick(setup: Setup) -> Setup:
    """`setup` cut down to a few items and one epoch, to see that a command works."""
    few, fewer = _QUICK

    def cut(task: Task) -> Task:
        train = subset(task.train, range(min(few, len(task.train.items))))
        test = subset(task.test, range(min(fewer, len(task.test.items))))
        return replace(task, train=train, test=test, paper_size=None)

    settings = {**setup.settings, "epochs": 1, "refit_at": "1"}
    tasks = tuple(cut(task) for task in setup.tasks)
    return replace(setup, tasks=tasks, settings=settings, comparable=False)


def _setup(model: str, tasks: Sequence[Task], settings: Mapping[str, Any] | None) -> Setup:
    name = str(Path(model).resolve()) if Path(model).is_dir() else model
    official = all(
        task.name in SIZES and len(task.test.items) == SIZES[task.name][1] for task in tasks
    )
    fault = _fault(name)
    return Setup(
        model=name,
        tasks=tuple(tasks),
        settings=dict(settings or {}),
        comparable=official and _is_paper_model(name),
        fingerprint=_fingerprint(name),
        absent=None if fault is None else f"the weights of {_display_name(name)} are not here",
        fault=fault,
    )


# --- questions -------------------------------------------------------------------------------


def _sample_tasks() -> tuple[Task, ...]:
    """The sample model's questions, and three small streams of them, none of an item in two."""
    from stacksl_lab.sample.questions import questions

    train, test = questions()
    main = _examples_apart("docstrings", train, test)
    order = generator(0, "study small streams").permutation(len(main.train.items)).tolist()
    tasks, start = [main], 0
    for size in SMALL:
        part = subset(main.train, sorted(order[start : start + size]))
        tasks.append(replace(main, name=f"{size} items", train=part))
        start += size
    return tuple(tasks)


def _medqa(data: str, test: str | None) -> Task:
    root = Path(data)
    if root.is_file():
        return _files_task(root, test)
    for inner in _MEDQA:
        train, held, dev = (_first(root / inner, names) for names in (_TRAIN, _TEST, _DEV))
        if train is not None and held is not None:
            examples = _examples(read(dev)) if dev is not None else ()
            to_label, tested = read(train), read(held, lenient=True)
            if not examples:
                return _examples_apart("MedQA", to_label, tested, SIZES["MedQA"][0])
            return Task("MedQA", to_label, tested, examples, SIZES["MedQA"][0])
    raise DataError(
        f"MedQA's official files were expected in {root} ({' or '.join(_TRAIN)}, and"
        f" {_TEST[0]}), and they are not there: give the folder that holds them"
    )


def _files_task(train: Path, test: str | None) -> Task:
    if test is None:
        raise DataError(f"{train} is a file to label: give --test FILE, what to test on")
    dataset = read(train)
    if not dataset.answers:
        raise DataError(f"{train} holds no answers: a study buys them from the file")
    official = "answer_idx" in dataset.columns.values()
    name, size = ("MedQA", SIZES["MedQA"][0]) if official else (train.stem, None)
    return _examples_apart(name, dataset, read(test, lenient=True), size)


def _mmlu(data: str) -> list[Task]:
    root = next((r for r in (Path(data), Path(data) / "mmlu") if (r / "val").is_dir()), None)
    if root is None:
        raise DataError(
            f"MMLU's official folders dev, val and test were expected in {data}, and they are not"
            " there: give the folder that holds them"
        )
    return [_subject(root, name, subject) for name, subject in SUBJECTS.items()]


def _subject(root: Path, name: str, subject: str) -> Task:
    files = [root / split / f"{subject}_{split}.csv" for split in ("val", "test", "dev")]
    for file in files[:2]:
        if not file.is_file():
            raise DataError(f"MMLU's file {file} is not there: give the folder with all of them")
    examples = _examples(read(files[2])) if files[2].is_file() else ()
    train, test = read(files[0]), read(files[1], lenient=True)
    return Task(name, train, test, examples, SIZES[name][0])


def _medqa_near(data: str) -> str:
    """The folder in which MedQA is looked for where only MMLU's was given."""
    for folder in (Path(data), Path(data).resolve().parent):
        if any(_first(folder / inner, _TRAIN) for inner in _MEDQA):
            return str(folder)
    raise DataError(
        f"kl_weight and k for MMLU are chosen on MedQA, which is neither in {data} nor next to it:"
        " give --medqa DIR"
    )


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _examples(dataset: Dataset) -> tuple[tuple[Item, int], ...]:
    """The first five items that have an answer, with it."""
    solved = [(i, dataset.answers[i.id]) for i in dataset.items if i.id in dataset.answers]
    return tuple(solved[:EXAMPLES])


def _examples_apart(name: str, train: Dataset, test: Dataset, size: int | None = None) -> Task:
    """A task whose five examples are taken out of the stream, drawn by a fixed seed."""
    order = generator(0, "study examples").permutation(len(train.items)).tolist()
    apart = subset(train, order[:EXAMPLES])
    return Task(name, subset(train, sorted(order[EXAMPLES:])), test, _examples(apart), size)


# --- the model -------------------------------------------------------------------------------


def _folder(model: str) -> Path | None:
    if model == "sample":
        return FOLDER
    return Path(model) if Path(model).is_dir() else None


def _is_paper_model(model: str) -> bool:
    """Whether this is Qwen3-4B: by its name on the hub, or by the shape in its configuration."""
    folder = _folder(model)
    if folder is None:
        return model.rpartition("/")[2] in ("Qwen3-4B-Base", "Qwen3-4B")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    shape = (config.get("model_type"), config.get("hidden_size"), config.get("num_hidden_layers"))
    return shape == ("qwen3", 2560, 36)


def _fingerprint(model: str) -> str:
    """A hash of the name of a model on the hub, or of the sizes and beginnings of its files."""
    folder, digest = _folder(model), blake2b(digest_size=12)
    if folder is None or not folder.is_dir():
        digest.update(model.encode())
        return digest.hexdigest()
    for file in sorted(folder.iterdir()):
        if file.suffix in (".json", ".safetensors", ".bin", ".model"):
            digest.update(f"{file.name}\x1f{file.stat().st_size}\x1f".encode())
            with file.open("rb") as content:
                digest.update(content.read(1 << 24))
    return digest.hexdigest()


def _display_name(model: str) -> str:
    """A model's name without the place of its folder."""
    return Path(model).name if Path(model).is_absolute() else model


def _fault(model: str) -> str | None:
    """Why the model cannot be had, without loading its weights; None where it seems to be."""
    from stacksl.lm.reading import read_config

    folder = _folder(model)
    try:
        read_config(model, model if folder is None else str(folder))
    except StackslError as fault:
        return " ".join(str(fault).split())
    return None
