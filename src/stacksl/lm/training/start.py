"""An adapter that a run starts from: a folder that PEFT wrote, or a name on the hub."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from stacksl.errors import SettingsError
from stacksl.lm.reading import first_line
from stacksl.lm.settings import LoraSettings

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_OTHERWISE = (  # what PEFT's LoRA can have besides, none of which is trained here
    *("use_dora", "use_rslora", "lora_bias", "rank_pattern", "alpha_pattern", "modules_to_save"),
    *("layers_to_transform", "layer_replication", "target_parameters", "trainable_token_indices"),
    *("alora_invocation_tokens", "arrow_config", "kasa_config", "use_bdlora", "use_qalora"),
)
_BEGUN = (True, False, "gaussian", "eva", "orthogonal")  # others, as PiSSA, change the base too


def file_of(adapter: str, name: str) -> Path:
    """A file of an adapter: in its folder, or in the cache of the hub.

    Raises:
        SettingsError: there is none.
    """
    path = Path(adapter) / name
    if path.is_file():
        return path
    if Path(adapter).is_absolute():
        raise SettingsError(f"the adapter '{adapter}' is no folder with {name}: check the path")
    from huggingface_hub import hf_hub_download

    source, _, revision = adapter.partition("@")
    try:
        return Path(hf_hub_download(source, name, revision=revision or None))
    except Exception as fault:  # no such name, no network, no access
        raise SettingsError(
            f"the adapter '{adapter}' is neither a folder with {name} nor available on the"
            f" Hugging Face hub ({first_line(fault)}): check the name"
        ) from fault


def read_start(adapter: str) -> tuple[str | None, LoraSettings]:
    """What an adapter says: its base, perhaps with `@` and a revision, and its shape.

    Raises:
        SettingsError: there is none, it is damaged, or it is not of plain LoRA.
    """
    path = file_of(adapter, CONFIG)
    try:
        said: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        base, targets = said["base_model_name_or_path"], said["target_modules"]
        if base and said.get("revision") and not Path(base).is_absolute():
            base += f"@{said['revision']}"
        rank, alpha = int(said["r"]), float(said["lora_alpha"])
        if rank < 1 or not 0 < alpha < float("inf") or not isinstance(base, str | None):
            raise ValueError("no rank, no α, or no name")
        shape = LoraSettings(rank, alpha, targets=tuple(sorted(targets)), start=adapter)
        others = [name for name in _OTHERWISE if said.get(name)]
        others += ["peft_type"] * (said["peft_type"] != "LORA")
        others += ["init_lora_weights"] * (said.get("init_lora_weights", True) not in _BEGUN)
        others += ["bias"] * (said.get("bias", "none") != "none")
        others += ["target_modules"] * isinstance(targets, str)  # a pattern of names
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise SettingsError(
            f"the {CONFIG} of the adapter '{adapter}' is not one of LoRA"
            f" ({type(fault).__name__}): give an adapter that PEFT saved"
        ) from fault
    if others:
        raise SettingsError(
            f"the adapter '{adapter}' is more than LoRA on named layers ({', '.join(others)}):"
            " merge it into its base, and give the result with --model"
        )
    return base, shape


def digest_of(adapter: str) -> str:
    """Hex BLAKE2b of the file of an adapter's weights."""
    return hashlib.blake2b(file_of(adapter, WEIGHTS).read_bytes(), digest_size=32).hexdigest()
