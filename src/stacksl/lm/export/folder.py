"""The export of an adapted language model: a folder that PEFT or transformers loads.

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
from stacksl.features.sentences import quiet
from stacksl.files import formats
from stacksl.files.atomic import replace_file, whole_folder
from stacksl.lm.export.card import Provenance, card_text
from stacksl.lm.export.tasks import write_task
from stacksl.lm.quantized import unquantized
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


def merge(folder: Path, out: Path, facts: Facts | None = None) -> Path:
    """The adapted model of `folder` as one model in `out`: base and adapter added up; `out`.

    The portable form: it names no path of this machine. The sum W + (alpha / rank) B A is taken
    and kept in the dtype the run computed in, so that in half precision it is rounded once more.
    Of a run over quantized weights W are the weights before, in bfloat16.

    Raises:
        RunError: `out` is not empty or cannot be written, or the base is another one by now.
        MissingExtra: peft is not installed.
    """
    about = read_provenance(folder)
    expect_whole(folder)
    expect_empty(out)
    model, tokenizer = _whole(folder, about)
    with whole_folder(out) as draft, quiet():
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        card = card_text(about, facts, merged=True)
        (draft / "README.md").write_text(card, encoding="utf-8", newline="\n")
        bits = (draft / "README.md").stat().st_mode & 0o777
        for path in draft.iterdir():  # libraries write weights for the owner alone
            if path.is_file():
                path.chmod(bits)
    return out


def _whole(folder: Path, about: Provenance) -> tuple[Any, Any]:
    """The model with the adapter added into its weights, and its tokenizer."""
    from stacksl.lm.loading import open_base
    from stacksl.lm.training.adapters import load_peft

    peft, dtype = load_peft(), unquantized(about.dtype)
    base = open_base(about.base, device="cpu", dtype=dtype, known=about.weights)
    if base.fingerprint != about.fingerprint:
        raise RunError(
            f"the adapter was trained on the weights {about.fingerprint[:12]}, but {about.name} is"
            f" {base.fingerprint[:12]} now: restore its weights and tokenizer, or run again"
        )
    with quiet():
        merged = peft.PeftModel.from_pretrained(base.model, folder).merge_and_unload()
    return merged, base.tokenizer


def expect_empty(out: Path) -> None:
    """Refuse to write into `out` where something is there.

    Raises:
        RunError: it is a file, or a folder that is not empty.
    """
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        what = "is a file" if out.is_file() else "is not empty"
        raise RunError(f"a new or empty folder was expected at {out}, but it {what}: give another")
