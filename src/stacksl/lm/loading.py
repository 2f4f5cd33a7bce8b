"""A causal language model ready to score: from a folder, the hub, or the sample in this package."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stacksl.errors import SettingsError, unknown_name
from stacksl.laboratory import of_laboratory
from stacksl.lm.hashes import recall, remember, stamp
from stacksl.lm.quantised import (
    QUANTISED,
    computed_in,
    files_fingerprint,
    keep_gradients,
    not_quantised,
    quantisation,
)
from stacksl.lm.reading import (
    load_transformers,
    read_config,
    read_licence,
    read_tokenizer,
    read_weights,
)
from stacksl.lm.scoring.paths import Tensor, load_torch

"""The folder of the model named `sample`."""

DTYPES = ("auto", "float32", "bfloat16", "float16", *QUANTISED)
"""What weights may be in; `auto` is bfloat16 on a GPU that has it, else float32."""

_UNSAID = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A causal language model, its tokenizer, and what is known about both.

    Attributes:
        model: of transformers, on `device`, frozen, without dropout.
        tokenizer: its tokenizer; it needs no pad token, since padding here is by mask.
        name: as it was asked for.
        source: the absolute folder or the hub name that transformers was given.
        revision: the commit on the hub, None for a folder.
        fingerprint: hex BLAKE2b of the configuration and every tensor; the folder it is in and
            a dtype that holds the same numbers change nothing. Of a quantised model, of the files.
        licence: as the model's README or configuration names it, None where neither does.
        positions: tokens it reads at once, None where its configuration has no bound.
        device: `cpu`, or `cuda:` and a number.
        dtype: of `DTYPES`, but for `auto`.
    """

    model: Any
    tokenizer: Any
    name: str
    source: str
    revision: str | None
    fingerprint: str
    licence: str | None
    positions: int | None
    device: str
    dtype: str


def load(
    name: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    anew: bool = False,
    moved: bool = True,
) -> Loaded:
    """The causal language model called `name`.

    Args:
        name: a folder with config.json, weights and tokenizer; a name on the Hugging Face hub,
            which goes through its own cache; or `sample`, the small model in this package.
        device: `cpu`, `cuda`, `cuda:N`, or `auto` for CUDA where there is some.
        dtype: one of `DTYPES`.
        anew: whether weights are hashed though the hash of these files is known (`hashes`).
        moved: whether the weights go to the device; if not, they stay on the CPU.

    Raises:
        SettingsError: no such model, device or dtype; no tokenizer; another kind of model;
            weights that are damaged or not all there; code of its own.
        MissingExtra: torch or transformers is not installed.
    """
    torch = load_torch()
    load_transformers()
    place = place_of(device)
    number = _dtype(torch, place, dtype)
    source = source_of(name)
    config = read_config(name, source)
    revision = None if os.path.isabs(source) else _commit(source)
    tokenizer = read_tokenizer(name, source, revision)
    if number in QUANTISED:
        model = _quantised(name, source, number, revision, place, config)
        fingerprint = files_fingerprint(_folder(source), config, anew=anew)
    else:
        model, fingerprint = hashed_weights(name, source, number, revision, anew=anew)
        model = _moved(torch, name, model, place) if moved else model
    _check_vocabulary(name, model, tokenizer)
    _check_causal(torch, name, model)
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        name=name,
        source=source,
        revision=revision,
        fingerprint=fingerprint,
        licence=read_licence(source, config, revision),
        positions=_positions(config),
        device=place,
        dtype=number,
    )


def fingerprint_of(name: str, dtype: str, *, anew: bool = False) -> str:
    """`Loaded.fingerprint` of a model in `dtype`; of a quantised one without loading it.

    Raises:
        SettingsError, MissingExtra: as `load`.
    """
    if dtype not in QUANTISED:
        return load(name, device="cpu", dtype=dtype, anew=anew).fingerprint
    source = source_of(name)
    return files_fingerprint(_folder(source), read_config(name, source), anew=anew)


def _quantised(
    name: str, source: str, dtype: str, revision: str | None, place: str, config: Any
) -> Any:
    """The model with its linear layers in a quantised dtype, on `place`."""
    not_quantised(name, config, dtype)
    computing = computed_in(dtype, place)
    how = {"quantization_config": quantisation(dtype, computing), "device_map": {"": place}}
    dtype_of_rest = getattr(load_torch(), computing)
    model = read_weights(name, source, dtype_of_rest, revision, quantised=how)
    keep_gradients(model)
    return model


def hashed_weights(
    name: str, source: str, dtype: str, revision: str | None = None, *, anew: bool = False
) -> tuple[Any, str]:
    """The model with every weight read, and `Loaded.fingerprint` of it; see `read_weights`.

    Files that were hashed before, by their size, inode and times, are not hashed again.

    Args:
        name, source, revision: as `read_weights` takes them.
        dtype: a name of `DTYPES`.
        anew: whether they are hashed all the same.

    Raises:
        SettingsError: as `read_weights`.
    """
    folder = _folder(source)
    key = stamp(folder, dtype)  # before the files are read, and again after
    model = read_weights(name, source, getattr(load_torch(), dtype), revision)
    fingerprint = None if anew else recall(key)
    if fingerprint is None:
        fingerprint = model_fingerprint(model)
        if stamp(folder, dtype) == key:
            remember(key, fingerprint)
    return model, fingerprint


def hash_tensors(named: Iterable[tuple[str, Tensor]], start: str = "") -> str:
    """Hex BLAKE2b of `start` and of the names, shapes and float32 values of the tensors."""
    digest = hashlib.blake2b(start.encode(), digest_size=32)
    for name, tensor in named:
        digest.update(f"\n{name} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().float().contiguous().numpy())
    return digest.hexdigest()


def source_of(name: str) -> str:
    """The absolute folder of a model, or its name on the hub.

    Raises:
        SettingsError: it can be neither.
    """
    if name == "sample":
        return str(of_laboratory("model"))
    folder = Path(name).expanduser() if name.startswith("~") else Path(name)
    if name and folder.is_dir():
        return os.path.abspath(folder)
    if folder.is_file():
        raise SettingsError(f"model '{name}' is a file: give the folder that holds it")
    if not name or name[0] in "./~" or "\\" in name or name.count("/") > 1:
        raise SettingsError(
            f"model '{name}' is not a folder that there is: give the folder of a model, or its "
            "name on the Hugging Face hub"
        )
    return name


def place_of(device: str) -> str:
    """The device that a name or `auto` is here: `cpu`, or `cuda:` and a number.

    Raises:
        SettingsError: there is no such device.
        MissingExtra: torch is not installed.
    """
    torch = load_torch()
    there = bool(torch.cuda.is_available())
    if device == "cpu" or (device == "auto" and not there):
        return "cpu"
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cuda") or (
        ":" in device and not (number.isascii() and number.isdigit() and kind == "cuda")
    ):
        raise unknown_name("device", device, ("auto", "cpu", "cuda", "cuda:0"))
    if not there:
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
    return f"cuda:{index}"


def _dtype(torch: Any, place: str, dtype: str) -> str:
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    if dtype != "auto":
        return dtype
    return "bfloat16" if place != "cpu" and torch.cuda.is_bf16_supported() else "float32"


def _commit(source: str) -> str | None:
    """The commit whose files the cache now holds, from the folder that they are in."""
    folder = _folder(source)
    return None if str(folder) == source else folder.name


def _folder(source: str) -> Path:
    """Where the files of a model are; of a hub name without any in the cache, a path of it."""
    if os.path.isabs(source):
        return Path(source)
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(source, "config.json")
    return Path(found).parent if isinstance(found, str) else Path(source)


def _moved(torch: Any, name: str, model: Any, place: str) -> Any:
    try:
        return model.to(place)
    except torch.OutOfMemoryError:
        raise SettingsError(
            f"model '{name}' does not fit in the memory of {place}: give a smaller one, another "
            "dtype, or device 'cpu'"
        ) from None


def model_fingerprint(model: Any) -> str:
    """Hex BLAKE2b of a model's configuration and every tensor; see `Loaded`."""
    facts = {k: v for k, v in model.config.to_diff_dict().items() if k not in _UNSAID}
    start = json.dumps(facts, sort_keys=True, default=str)
    return hash_tensors(_tensors(model), start)


def _tensors(model: Any) -> Iterable[tuple[str, Tensor]]:
    """Every tensor the model keeps, by name; of two that are tied the first."""
    seen = set()
    for name, tensor in sorted(model.state_dict().items()):
        key = (tensor.data_ptr(), tuple(tensor.shape))
        if key not in seen:
            seen.add(key)
            yield name, tensor


def _positions(config: Any) -> int | None:
    inner = config.get_text_config() if hasattr(config, "get_text_config") else config
    found = getattr(inner, "max_position_embeddings", None)
    return found if isinstance(found, int) and found > 0 else None


def _check_vocabulary(name: str, model: Any, tokenizer: Any) -> None:
    rows = model.get_input_embeddings().num_embeddings
    if tokenizer.vocab_size > rows:
        raise SettingsError(
            f"the tokenizer of model '{name}' has {tokenizer.vocab_size} tokens and its weights "
            f"{rows}: give the tokenizer that belongs to the weights"
        )


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
