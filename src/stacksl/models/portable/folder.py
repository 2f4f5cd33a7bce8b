"""The folder of a model that is handed over: written from a run's final model, and read again."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stacksl.core.heads.linear import ClassHead, MixedHead
from stacksl.errors import RunError, SettingsError, expect_path
from stacksl.features.minilm import MiniLM
from stacksl.features.tokens import WithTokens
from stacksl.features.weights import MINILM, file_hash
from stacksl.files import formats
from stacksl.files.atomic import whole_folder
from stacksl.models.linear import Model
from stacksl.report import Facts, card
from stacksl.telemetry import load_library

PORTABLE = "stacksl.json"
_HERE = Path(__file__).parent
_COPIED = ("use.py", "MLmodel", "requirements.txt", "python_env.yaml")


def write_folder(out: Path, model: Model, facts: Facts, right: Mapping[float, float]) -> None:
    """Write a run's final model into the new or empty folder `out`.

    `right` is the probability from which a share of labels is right, by that share, and `facts` are
    the run's, for the card. The errors are those of `api.labeling.write_model`.
    """
    from stacksl.models.portable.graph import model_graph

    encoder, head = getattr(model.features, "encoder", None), model.head
    if not (
        model.classes
        and isinstance(encoder, MiniLM | WithTokens)
        and isinstance(head, ClassHead | MixedHead)
    ):
        kind = "classes" if model.classes else "options for each item"
        raise SettingsError(
            "--model expects classes, a refit at the end, and the features"
            " 'sentences:minilm+tokens' or 'sentences:minilm' ('hashing' splits texts in a way that"
            " ONNX has no operator for, and another encoder runs on torch, with layers that stacksl"
            f" does not convert), but this run has {kind}, {'a' if head else 'no'} refit and"
            f" '{model.features.spec}': run again with these, or use `stacksl predict`"
        )
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        state = "is a file" if out.is_file() else "is not empty"
        raise RunError(f"a new or empty folder was expected at {out}, but it {state}: give another")
    with whole_folder(out) as draft:
        for name in _COPIED:
            shutil.copyfile(_HERE / name, draft / name)
        sentence_encoder = encoder.encoder if isinstance(encoder, WithTokens) else encoder
        tokenizer = sentence_encoder.tokenizer.from_str(sentence_encoder.tokenizer.to_str())
        tokenizer.enable_padding()
        tokenizer.save(str(draft / "tokenizer.json"))
        (draft / "model.onnx").write_bytes(model_graph(encoder, head).SerializeToString())
        written_files = sorted(draft.iterdir())  # not the card, which its reader may edit
        text = card(facts, right)
        (draft / "README.md").write_text(text, encoding="utf-8", newline="\n")
        description = {
            formats.FORMAT: formats.PORTABLE,
            "features": model.features.spec,
            "classes": model.classes,
            "right": {str(share): threshold for share, threshold in right.items()},
            "audit": facts.audit and asdict(facts.audit),
            "files": {file.name: file_hash(file) for file in written_files},
        }
        (draft / PORTABLE).write_text(formats.to_json(description), encoding="utf-8", newline="\n")


def load(folder: str | Path) -> Any:
    """The model that `stacksl export RUN --model FOLDER` wrote; no run is needed.

    Its `predict(texts)` gives a row per text, `choice, index, probability`; `probabilities(texts)`
    is (n, K), its columns in the order of `classes`. The folder's own `use.py` is never run: the
    same file of this package is.

    Raises:
        RunError: there is no model, it is damaged, or another version of stacksl wrote it.
        MissingExtra: onnxruntime or tokenizers is not installed.
    """
    folder = expect_path(folder, "the folder of a model")
    path = folder / PORTABLE
    try:
        description = formats.read(path, formats.PORTABLE)
        for name, digest in description["files"].items():
            if file_hash(folder / name) != digest:
                raise ValueError(f"{name} does not match its SHA-256")
    except (OSError, ValueError) as fault:
        raise RunError(
            f"{folder} holds no whole model that was handed over ({fault}): `stacksl export RUN"
            " --model OUT` writes one, and `stacksl.Run.open` opens a run"
        ) from fault
    for package in ("onnxruntime", "tokenizers"):
        load_library(package, "stacksl.load", MINILM, package)
    from stacksl.models.portable import use

    return use.Model(folder)
