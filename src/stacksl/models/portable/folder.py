"""The folder of a model that is handed over: written from a run's final model, and read again."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stacksl.core.heads.linear import ClassHead, MixedHead
from stacksl.errors import MissingExtra, RunError, SettingsError
from stacksl.features import TextMap
from stacksl.features.hashing import HashingEncoder
from stacksl.features.minilm import MiniLM
from stacksl.features.weights import MINILM
from stacksl.files import formats
from stacksl.lm.export.atomic import whole_folder
from stacksl.lm.export.folder import PORTABLE, digests, expect_digests, expect_empty
from stacksl.models.linear import Model
from stacksl.report import Facts, card
from stacksl.report.quality import Named
from stacksl.report.wording import percent
from stacksl.version import __version__

if TYPE_CHECKING:
    from stacksl.models.portable.use import Model as PortableModel

_REMEDY = "restore the folder from a copy, or export the model again"
_HERE = Path(__file__).parent
_COPIED = ("use.py", "MLmodel", "requirements.txt", "python_env.yaml")
_LICENCES: dict[type, str] = {
    MiniLM: "all-MiniLM-L6-v2 of sentence-transformers, Apache-2.0",
    HashingEncoder: "none: the projection was fitted on the run's own texts",
}


def write_folder(out: Path, model: Model, facts: Facts, right: Mapping[float, float]) -> None:
    """Write a run's final model into the new or empty folder `out`.

    Args:
        out: absent or empty.
        model: of class heads on `sentences:minilm` or `hashing`.
        facts: of the run, for the card.
        right: the probability from which a share of labels is right, by that share.

    Raises:
        SettingsError: the model is of another kind.
        RunError: `out` is not empty or cannot be written.
        FeatureError, MissingExtra: the encoder's weights or packages are missing.
    """
    from stacksl.models.portable.graph import model_graph

    features, head = _parts(model)
    encoder = features.encoder
    expect_empty(out)
    shown = [Named("Encoder", _LICENCES[type(encoder)])]
    for share, least in right.items():
        shown.append(Named(f"{percent(share, 0)} right from the probability", f"{least:.3f}"))
    with whole_folder(out) as draft:
        for name in _COPIED:
            shutil.copyfile(_HERE / name, draft / name)
        if isinstance(encoder, MiniLM):
            tokenizer = encoder.tokenizer.from_str(encoder.tokenizer.to_str())
            tokenizer.enable_padding()
            tokenizer.save(str(draft / "tokenizer.json"))
        else:
            shutil.copyfile(_HERE / "grams.py", draft / "grams.py")
            np.savez(draft / "grams.npz", allow_pickle=False, **encoder.state())
        (draft / "model.onnx").write_bytes(model_graph(encoder, head).SerializeToString())
        text = card(facts, text=False, class_names=True, handed=shown)
        (draft / "README.md").write_text(text, encoding="utf-8", newline="\n")
        about = {
            formats.FORMAT: formats.PORTABLE,
            "stacksl": __version__,
            "features": features.spec,
            "fingerprint": features.fingerprint,
            "classes": features.classes,
            "abstain_below": model.abstaining and model.abstaining.value,
            "right": {str(share): least for share, least in right.items()},
            "audit": facts.audit and asdict(facts.audit),
            "files": digests(draft),
        }
        (draft / PORTABLE).write_text(formats.to_json(about), encoding="utf-8", newline="\n")


def load(folder: str | Path) -> PortableModel:
    """The model that `stacksl export RUN --model FOLDER` wrote; no run is needed.

    Its `predict(texts)` gives a row a text, `choice, index, probability`, and `abstain` where the
    model may; `probabilities(texts)` is (n, K), its columns in the order of `classes`. The folder's
    own `use.py` is never run: the same file of this package is.

    Raises:
        RunError: there is none, it is damaged, or another version of stacksl wrote it.
        MissingExtra: ONNX Runtime or the tokenizer is not installed (the extra `minilm`).
    """
    folder = Path(folder)
    path = folder / PORTABLE
    try:
        about = formats.of_format(formats.parsed(path.read_bytes()), str(path), formats.PORTABLE)
    except FileNotFoundError:
        raise RunError(
            f"{folder} holds no model that was handed over (it has no {PORTABLE}): `stacksl export"
            " RUN --model OUT` writes one, and `stacksl.Run.open` opens a run"
        ) from None
    except (OSError, ValueError) as fault:
        raise RunError(f"{path} cannot be read ({fault}): {_REMEDY}") from fault
    expect_digests(folder, about["files"], PORTABLE, _REMEDY)
    try:
        from stacksl.models.portable import grams, use

        return use.Model(folder, grams.Grams if about["features"] == "hashing" else use.Tokens)
    except ImportError as fault:
        raise MissingExtra.of("a model that was handed over", MINILM) from fault


def _parts(model: Model) -> tuple[TextMap, ClassHead | MixedHead]:
    """Features and head of a model that can be handed over."""
    if model.classes is None:
        found = "scores items with candidates of their own: `stacksl predict` does that"
    elif not isinstance(model.features, TextMap) or type(model.features.encoder) not in _LICENCES:
        found = (
            f"reads features '{model.features.spec}', whose computation is not ours: run again with"
            " sentences:minilm, or use `stacksl predict`"
        )
    elif not isinstance(model.head, ClassHead | MixedHead):
        found = "is the last online state, without a refit: `stacksl predict` reads it"
    else:
        return model.features, model.head
    raise SettingsError(
        "--model expects class heads, refitted at the end, on the features 'sentences:minilm' or"
        f" 'hashing', but the model of this run {found}"
    )
