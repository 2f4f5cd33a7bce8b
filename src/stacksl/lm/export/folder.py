"""The export of an adapted language model: a folder that PEFT loads.

`lm.json` next to the weights says what they were made for: the base, the prompt, the scores. The
weights load without this package; `lm.json` is for scoring with them as the run did.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stacksl.errors import RunError
from stacksl.files import formats
from stacksl.files.atomic import replace_file
from stacksl.lm.export.card import Provenance, card_text
from stacksl.lm.export.tasks import write_task
from stacksl.report.facts import Facts

if TYPE_CHECKING:
    from stacksl.data import Dataset
    from stacksl.lm.training.adapters import Adapter

ABOUT = "lm.json"
FILES = "files"  # of lm.json: the SHA-256 of each file that decides a score, by name
_REMEDY = "restore the folder from a copy, or delete it and `stacksl resume` makes it again"


def write_model(
    folder: Path,
    adapter: Adapter,
    about: Provenance,
    facts: Facts | None = None,
    test: Dataset | None = None,
) -> None:
    """Write weights, card and `lm.json` into `folder`; `lm.json` last.

    Args:
        folder: absent, empty, or a model's, which is then replaced.
        test: items with answers to leave as a task of lm-eval in the folder's `lm_eval`.

    Raises:
        RunError: if the folder cannot be written.
    """
    adapter.save(folder)
    tasks: tuple[str, ...] = ()
    if test is not None:
        tokenizer = adapter.base.tokenizer
        tasks = write_task(
            folder / "lm_eval",
            test.name,
            test.items,
            test.answers,
            about.form(tokenizer),
            tokenizer,
            normalization=about.normalization,
        ).names
    try:
        path = folder / "adapter_config.json"  # PEFT finds the base by it
        config = json.loads(path.read_text(encoding="utf-8"))
        config |= {"base_model_name_or_path": about.source, "revision": about.revision}
        replace_file(path, (json.dumps(config, indent=1, ensure_ascii=False) + "\n").encode())
        replace_file(folder / "README.md", card_text(about, facts, tasks).encode())
        table = {formats.FORMAT: formats.LANGUAGE_MODEL, **asdict(about)}
        described = formats.to_json({**table, FILES: _digests(folder)})
        replace_file(folder / ABOUT, described.encode())
    except OSError as fault:
        raise RunError(
            f"cannot write the model into {folder}: {fault.strerror or fault}; free some space or"
            " give another folder"
        ) from fault


def read_provenance(folder: Path) -> Provenance:
    """What `write_model` wrote down in `folder`.

    Raises:
        RunError: there is none, it is damaged, or another version of stacksl wrote it.
    """
    table = _described(folder)
    del table[FILES]
    classes = table.pop("classes")
    return Provenance(classes=None if classes is None else tuple(classes), **table)


def expect_whole(folder: Path) -> None:
    """Hold that weights and settings in `folder` are those that `write_model` left.

    Raises:
        RunError: a file is missing or has other content.
    """
    known, actual = _described(folder)[FILES], _digests(folder)
    for name, digest in known.items():
        if actual.get(name) != digest:
            raise RunError(
                f"{folder / name} is missing or does not match its SHA-256 in {ABOUT}: {_REMEDY}"
            )


def _described(folder: Path) -> dict[str, Any]:
    path = folder / ABOUT
    try:
        return formats.of_format(
            formats.parsed(path.read_bytes()), str(path), formats.LANGUAGE_MODEL
        )
    except FileNotFoundError:
        raise RunError(
            f"{folder} holds no adapted language model (it has no {ABOUT}): give a run made with"
            " --adapt that has finished"
        ) from None
    except (OSError, ValueError) as fault:
        raise RunError(f"{path} cannot be read ({fault}): {_REMEDY}") from fault


def _digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file of `folder`, but for card and description."""
    digests = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name not in ("README.md", ABOUT):
            with path.open("rb") as file:
                digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests
