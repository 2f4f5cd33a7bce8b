"""A causal language model: from a folder, the hub, or the sample in the laboratory.

Hashing weights reads every byte of them, so a run does it once and records the hash with a stamp,
which shows without reading them that they are the same. Later the stamp alone is compared, and the
files are hashed again only where it differs.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from stacksl.errors import SettingsError, unknown_name
from stacksl.laboratory import of_laboratory
from stacksl.lm.quantized import (
    NF4,
    computed_in,
    keep_gradients,
    not_quantized,
    quantization,
)
from stacksl.lm.reading import (
    load_transformers,
    read_config,
    read_license,
    read_tokenizer,
    read_weights,
)
from stacksl.lm.scoring.paths import load_torch

_UNSAID = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
_TOKENS = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")

DTYPES = ("auto", "float32", "bfloat16", "float16", NF4)
"""What weights may be in; `auto` is bfloat16 on a GPU that has it, else float32."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What identifies the weights of a model.

    Attributes:
        fingerprint: hex BLAKE2b of the configuration and of every byte of the files of weights and
            tokenizer.
        stamp: hex BLAKE2b of the configuration and of each file's name, size and time of its last
            change.
    """

    fingerprint: str
    stamp: str


@dataclass(eq=False)
class Base:
    """A causal language model as its files are, before it is adapted.

    Opening it reads configuration and tokenizer. The weights are read where `model` is first asked
    for, and hashed where `weights` is, unless they are those that were `known`.

    Attributes:
        tokenizer: its tokenizer; it needs no pad token, since padding here is by mask.
        source: the absolute folder or the hub name that transformers was given.
        revision: the commit on the hub, or what was asked for behind `@`; None for a folder.
        positions: tokens it reads at once, None where its configuration has no bound.
        device: `cpu`, or `cuda:` and a number.
        dtype: of `DTYPES`, but for `auto`.
        known: what was recorded of the weights before.
    """

    config: Any
    tokenizer: Any
    name: str
    source: str
    revision: str | None
    positions: int | None
    device: str
    dtype: str
    known: Weights | None = None

    @cached_property
    def model(self) -> Any:
        """The model of transformers, on `device`, frozen, without dropout.

        Raises:
            SettingsError: weights that are damaged, not all there or another tokenizer's, or
                another kind of model.
        """
        torch, name = load_torch(), self.name
        if self.dtype == NF4:
            not_quantized(name, self.config)
            computing = computed_in(self.dtype, self.device)
            options = {"quantization_config": quantization(computing)}
            options["device_map"] = {"": self.device}
            kind = getattr(torch, computing)
            model = read_weights(name, self.source, self.config, kind, self.revision, options)
            keep_gradients(model)
        else:
            kind = getattr(torch, self.dtype)
            model = read_weights(name, self.source, self.config, kind, self.revision)
            try:
                model = model.to(self.device)
            except torch.OutOfMemoryError:
                raise SettingsError(
                    f"model '{name}' does not fit in the memory of {self.device}: give a smaller"
                    " one, another dtype, or device 'cpu'"
                ) from None
        rows = model.get_input_embeddings().num_embeddings
        if self.tokenizer.vocab_size > rows:
            raise SettingsError(
                f"the tokenizer of model '{name}' has {self.tokenizer.vocab_size} tokens and its"
                f" weights {rows}: give the tokenizer that belongs to the weights"
            )
        _check_causal(torch, name, model)
        return model

    @cached_property
    def weights(self) -> Weights:
        """The hash of the weights, and their stamp."""
        if not weight_files(_folder(self.source, self.revision)):
            _ = self.model  # reading it brings the files from the hub
        return identify(_folder(self.source, self.revision), self.config, self.known)

    @cached_property
    def license(self) -> str | None:
        """The license that the model's README or configuration names, None where neither does."""
        return read_license(self.source, self.config, self.revision)

    @property
    def fingerprint(self) -> str:
        """The hash of configuration, weights and tokenizer, in hex: no path is in it."""
        return self.weights.fingerprint


def weight_files(folder: Path) -> list[Path]:
    """The files in `folder` that hold weights."""
    paths = {path for kind in ("*.safetensors", "*.bin") for path in folder.glob(kind)}
    return sorted(path for path in paths if path.is_file())


def identify(folder: Path, config: Any, known: Weights | None = None) -> Weights:
    """The weights and tokenizer in `folder`, read unless they have the stamp of `known`."""
    config_facts = {k: v for k, v in config.to_diff_dict().items() if k not in _UNSAID}
    start = json.dumps(config_facts, sort_keys=True, default=str).encode()
    stamp, digest = (hashlib.blake2b(start, digest_size=32) for _ in range(2))
    files = weight_files(folder)
    files += [path for name in _TOKENS if (path := folder / name).is_file()]
    for path in files:
        stat = path.stat()
        stamp.update(f"\n{path.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    if known is not None and known.stamp == stamp.hexdigest():
        return known
    for path in files:
        digest.update(f"\n{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while chunk := file.read(1 << 22):
                digest.update(chunk)
    return Weights(digest.hexdigest(), stamp.hexdigest())


def open_base(
    name: str, *, device: str = "auto", dtype: str = "auto", known: Weights | None = None
) -> Base:
    """The causal language model called `name`, whose weights are not read yet.

    Args:
        name: a folder with config.json, weights and tokenizer; a name on the Hugging Face hub,
            which goes through its own cache, perhaps with `@` and a revision (a commit, a tag or a
            branch); or `sample`, the laboratory's small model.
        device: `cpu`, `cuda`, `cuda:N`, or `auto` for CUDA where there is some.
        dtype: one of `DTYPES`.
        known: what was recorded of its weights before.

    Raises:
        SettingsError: no such model, device or dtype; no tokenizer; another kind of model; code of
            its own.
        MissingExtra: torch or transformers is not installed.
    """
    torch = load_torch()
    load_transformers()
    device_name = place_of(device)
    dtype_name = _dtype(torch, device_name, dtype)
    source, revision = source_of(name), None
    if not os.path.isabs(source):
        source, _, revision_named = source.partition("@")
        revision = revision_named or None
    config = read_config(name, source, revision)
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    folder = None if os.path.isabs(source) else _folder(source, revision)  # in the cache
    if folder is not None and str(folder) != source:
        revision = folder.name  # the commit
    return Base(
        config=config,
        tokenizer=read_tokenizer(name, source, revision),
        name=name,
        source=source,
        revision=revision,
        positions=positions if isinstance(positions, int) and positions > 0 else None,
        device=device_name,
        dtype=dtype_name,
        known=known,
    )


def source_of(name: str) -> str:
    """The absolute folder of a model, or its name on the hub, with a revision behind `@` if any.

    Raises:
        SettingsError: it can be neither.
    """
    if name == "sample":
        return str(of_laboratory("model"))
    folder = Path(name).expanduser() if name.startswith("~") else Path(name)
    if name and os.path.isdir(folder):
        return os.path.abspath(folder)
    if os.path.isfile(folder):
        raise SettingsError(f"model '{name}' is a file: give the folder that holds it")
    if not name or name[0] in "./~" or "\\" in name or name.partition("@")[0].count("/") > 1:
        raise SettingsError(
            f"model '{name}' is not a folder that exists: put it back if a run was made with it, or"
            " give the folder of a model or its name on the Hugging Face hub"
        )
    return name


def place_of(device: str) -> str:
    """The device that a name or `auto` is here: `cpu`, or `cuda:` and a number.

    Raises:
        SettingsError: there is no such device.
        MissingExtra: torch is not installed.
    """
    torch = load_torch()
    has_cuda = bool(torch.cuda.is_available())
    if device == "cpu" or (device == "auto" and not has_cuda):
        return "cpu"
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cuda") or (
        ":" in device and not (number.isascii() and number.isdigit() and kind == "cuda")
    ):
        raise unknown_name("device", device, ("auto", "cpu", "cuda", "cuda:0"))
    if not has_cuda:
        raise SettingsError(
            f"device '{device}' was asked for, and torch finds no CUDA here: take 'cpu' or 'auto', "
            "or install a torch built for your GPU"
        )
    count = int(torch.cuda.device_count())
    index = int(number) if number else int(torch.cuda.current_device())
    if index >= count:
        raise SettingsError(
            f"device '{device}' was asked for, and there are {count} GPUs: take one from cuda:0 "
            f"to cuda:{count - 1}"
        )
    # Let CUDA compute the same numbers from the same ones, as a CPU does. Without it a run that is
    # started again bought other labels on an NVIDIA H200. cuBLAS reads the variable as it starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # costs time, and nothing reads it
    return f"cuda:{index}"


def _dtype(torch: Any, device: str, dtype: str) -> str:
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    if dtype != "auto":
        return dtype
    return "bfloat16" if device != "cpu" and torch.cuda.is_bf16_supported() else "float32"


def _folder(source: str, revision: str | None = None) -> Path:
    """Where the files of a model are; of a hub name without any in the cache, a path of it."""
    if os.path.isabs(source):
        return Path(source)
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(source, "config.json", revision=revision)
    return Path(cached).parent if isinstance(cached, str) else Path(source)


def _check_causal(torch: Any, name: str, model: Any) -> None:
    """Encoders load as causal models too; in them an earlier token sees a later one."""
    ids = torch.tensor([[0, 1, 0], [0, 1, 1]], device=model.device)
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits.float()[:, :2]
    gap = float((logits[0] - logits[1]).abs().max())
    if gap > 1e-2 * float(logits.abs().max()):
        raise SettingsError(
            f"model '{name}' is not a causal language model, since its earlier tokens see later "
            "ones: give a decoder-only one"
        )
