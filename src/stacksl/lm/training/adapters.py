"""What is trained when a language model is adapted: low-rank weights (LoRA), through PEFT."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from stacksl.errors import RunError, SettingsError
from stacksl.features.sentences import quiet
from stacksl.files.atomic import whole_folder
from stacksl.lm.loading import Base
from stacksl.lm.reading import first_line, still_random
from stacksl.lm.scoring.paths import Tensor, load_torch
from stacksl.lm.settings import LoraSettings
from stacksl.telemetry import load_library

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_OTHERWISE = (  # what PEFT's LoRA can have besides, none of which is trained here
    *("use_dora", "use_rslora", "lora_bias", "rank_pattern", "alpha_pattern", "modules_to_save"),
    *("layers_to_transform", "layer_replication", "target_parameters", "trainable_token_indices"),
    *("alora_invocation_tokens", "arrow_config", "kasa_config", "use_bdlora", "use_qalora"),
)
_BEGUN = (True, False, "gaussian", "eva", "orthogonal")  # others, as PiSSA, change the base too
POLICY = "default"  # PEFT's own name for an adapter; a folder loads by itself under this one alone


# --- which layers -----------------------------------------------------------------------------


def linear_layers(model: Any) -> dict[str, Any]:
    """The linear layers of a model by dotted name, without its output layer.

    Of a model that also sees or hears they are those of its language part.
    """
    from transformers.pytorch_utils import Conv1D

    kinds = (load_torch().nn.Linear, Conv1D)  # the latter is what GPT-2 has
    head, language = model.get_output_embeddings(), set(model.get_decoder().modules())
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, kinds) and module is not head and module in language
    }


def stacks(model: Any) -> list[Tensor]:
    """Stacks of matrices, such as the experts of a mixture, which get no adapter."""
    weights = (weight for name, weight in model.named_parameters() if "lora_" not in name)
    return [weight for weight in weights if weight.ndim > 2]


def adapted_layers(model: Any, targets: tuple[str, ...] | None) -> dict[str, Any]:
    """The linear layers that get an adapter, by dotted name.

    Raises:
        SettingsError: a target that no linear layer has.
    """
    ends = _targets(model, targets)
    return {name: layer for name, layer in linear_layers(model).items() if _ends_in_any(name, ends)}


def _targets(model: Any, targets: tuple[str, ...] | None) -> list[str]:
    """The layers that `targets` name, by their names or the ends of these, as PEFT takes them."""
    layers = linear_layers(model)
    ends = sorted({name.rpartition(".")[2] for name in layers})
    chosen = ends if targets is None or targets == ("all-linear",) else sorted(set(targets))
    for target in chosen:
        if not any(_ends_in_any(name, [target]) for name in layers):
            raise SettingsError(
                f"lm.lora_targets names '{target}', which is no linear layer below the output of"
                f" this model: choose from {', '.join(ends)}"
            )
    # ends alone, unless something that is not to be adapted has one of them too
    other_names = (name for name, _ in model.named_modules() if name not in layers)
    if any(_ends_in_any(name, chosen) for name in other_names):
        return sorted(name for name in layers if _ends_in_any(name, chosen))
    return chosen


def _ends_in_any(name: str, ends: list[str]) -> bool:
    return any(name == end or name.endswith(f".{end}") for end in ends)


# --- the adapter ------------------------------------------------------------------------------


class Adapter:
    """The trainable part of a language model: it can be kept, restored, saved and reset.

    All that is trained is float32, in every dtype of the base, whose model is changed in place; its
    scores are still exactly its own.

    Args:
        seed: what the initial weights come from, unless `lora` names an adapter; the global
            generator is not used.

    Attributes:
        model: what to call, a PeftModel.

    Raises:
        SettingsError: a target that the model lacks.
        RunError: the adapter to start from is damaged, or of another shape.
        MissingExtra: peft is not installed.
    """

    def __init__(self, base: Base, lora: LoraSettings, *, seed: int) -> None:
        self.base = base
        self.model = _attached(base, lora, seed)
        self._trainable: dict[str, Any] = {
            n: p for n, p in self.model.named_parameters() if p.requires_grad
        }
        if lora.start is not None:
            self.load(file_of(lora.start, WEIGHTS).parent)
        self._initial = self.state()

    def reset(self) -> None:
        """Back to the initial weights, bit for bit."""
        self.restore(self._initial)

    @property
    def drops(self) -> bool:
        """Whether training draws dropout."""
        dropout = load_torch().nn.Dropout
        return any(
            (isinstance(module, dropout) and module.p > 0)
            or getattr(module, "attention_dropout", 0)
            for module in self.model.modules()
        )

    def state(self) -> dict[str, Tensor]:
        """Copies of everything that moves, on the CPU, by name."""
        return {name: tensor.detach().cpu().clone() for name, tensor in self._trainable.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave.

        Raises:
            RunError: tensors of other names or shapes.
        """
        wrong = sorted(set(state) ^ set(self._trainable)) or [
            name for name, tensor in self._trainable.items() if state[name].shape != tensor.shape
        ]
        if wrong:
            raise RunError(
                f"the state to restore is not of this adapter's shape ({len(wrong)} of"
                f" {len(self._trainable)} tensors differ, first {wrong[0]}): it belongs to another"
                " model or other settings"
            )
        with load_torch().no_grad():
            for name, parameter in self._trainable.items():
                parameter.copy_(state[name], non_blocking=True)

    def parameters(self) -> list[Any]:
        """The trainable parameters, always in the same order."""
        return list(self._trainable.values())

    def fingerprint(self) -> str:
        """Hex BLAKE2b of everything that moves: names, shapes and values."""
        return _digest({name: t.detach().cpu().numpy() for name, t in self._trainable.items()})

    @contextmanager
    def checkpointing(self) -> Iterator[None]:
        """Drop activations in training and compute them again, for less memory.

        Raises:
            SettingsError: the model cannot.
        """
        inner = self.model.get_base_model()
        is_renamed = hasattr(inner, "activation_checkpointing_enable")  # transformers renamed it
        stem = f"{'activation' if is_renamed else 'gradient'}_checkpointing_"
        try:
            with quiet():
                getattr(inner, f"{stem}enable")({"use_reentrant": False})
        except (ValueError, AttributeError) as error:
            raise SettingsError(
                f"model '{self.base.name}' cannot recompute its activations: leave "
                "lm.gradient_checkpointing off"
            ) from error
        try:
            yield
        finally:
            with quiet():
                getattr(inner, f"{stem}disable")()

    def save(self, folder: Path) -> None:
        """Leave a folder that loads without this package, whole or not at all; safetensors only.

        PEFT's AutoPeftModelForCausalLM reads it; it names the base by its hub name or by the
        absolute path of its folder.

        Raises:
            RunError: the folder cannot be written, or holds something that is no model.
        """
        with whole_folder(folder) as draft, quiet(), still_random():
            self.model.save_pretrained(
                str(draft), selected_adapters=[POLICY], save_embedding_layers=False
            )
            (draft / "README.md").unlink(missing_ok=True)  # PEFT's, which says nothing
            path = draft / CONFIG
            config = json.loads(path.read_text(encoding="utf-8"))
            config["target_modules"].sort()  # of a set, which has another order in every process
            text = json.dumps(config, indent=2, sort_keys=True) + "\n"
            path.write_text(text, encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Take the weights of a folder that `save` left; the caller holds them to a digest.

        Raises:
            RunError: no such folder, damaged, or of another shape.
        """
        weights = _stored(folder, "torch")
        names = {name.replace(f".{POLICY}.", "."): name for name in self._trainable}
        self.restore({names.get(name, name): tensor for name, tensor in weights.items()})


def _attached(base: Base, settings: LoraSettings, seed: int) -> Any:
    """The model within PEFT, with an adapter that changes nothing yet.

    A is uniform on ±1/sqrt(in), drawn for each layer from (seed, its name) alone, so that it is the
    same on every device and with any other layers; B is 0. Both are float32 in every
    dtype of the base: a step of AdamW is some 1e-4 of a weight, and bfloat16 rounds away what is
    below 4e-3 of it. If the base is in half precision, they are for passes under autocast alone
    (`Likelihood` sees to it), since PEFT's own cast would keep every input in float32 for the
    backward pass, a third of all activations. The model is changed in place.
    """
    torch = load_torch()
    peft = load_library("peft", "adapting a language model by LoRA", "lm")
    config = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=_targets(base.model, settings.targets),
        task_type="CAUSAL_LM",
        base_model_name_or_path=base.source,
        revision=base.revision,
    )
    try:
        with quiet(), still_random():
            model = peft.get_peft_model(base.model, config)
    except ValueError as error:
        raise SettingsError(
            f"peft cannot adapt these layers of model '{base.name}' ({first_line(error)}): "
            "choose others by lm.lora_targets"
        ) from error
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if f".{POLICY}." in name:
                parameter.data = parameter.data.float()
                parameter.copy_(_first_weights(name, parameter, seed))
    if base.model.dtype != torch.float32:
        for module in model.modules():
            if hasattr(module, "cast_input_dtype_enabled"):
                module.cast_input_dtype_enabled = False
    return model.eval()


def _first_weights(name: str, parameter: Tensor, seed: int) -> Tensor:
    torch = load_torch()
    if "lora_A" not in name:
        return torch.zeros(parameter.shape)
    key = hashlib.blake2b(f"lora {seed} {name}".encode(), digest_size=8).digest()
    draw = torch.Generator().manual_seed(int.from_bytes(key, "little") >> 1)
    bound = 1 / math.sqrt(parameter.shape[1])
    return torch.empty(parameter.shape).uniform_(-bound, bound, generator=draw)


# --- an adapter to start from: a folder that PEFT wrote, or a name on the hub ------------------


def file_of(adapter: str, name: str) -> Path:
    """A file of an adapter: in its folder, or in the cache of the hub.

    Raises:
        SettingsError: there is none.
    """
    path = Path(adapter) / name
    if os.path.isfile(path):
        return path
    if Path(adapter).is_absolute() or os.path.isdir(adapter):
        hint = (
            f"give '{Path(adapter) / 'model'}'"
            if os.path.isfile(path.parent / "model" / name)
            else ""
        )
        raise SettingsError(
            f"the adapter '{adapter}' is no folder with {name}: {hint or 'check the path'}"
        )
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
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        base, targets = config["base_model_name_or_path"], config["target_modules"]
        if base and config.get("revision") and not Path(base).is_absolute():
            base += f"@{config['revision']}"
        rank, alpha = int(config["r"]), float(config["lora_alpha"])
        if rank < 1 or not 0 < alpha < float("inf") or not isinstance(base, str | None):
            raise ValueError("no rank, no α, or no name")
        shape = LoraSettings(rank, alpha, targets=tuple(sorted(targets)), start=adapter)
        unsupported = [name for name in _OTHERWISE if config.get(name)]
        more_than_lora = {
            "peft_type": config["peft_type"] != "LORA",
            "init_lora_weights": config.get("init_lora_weights", True) not in _BEGUN,
            "bias": config.get("bias", "none") != "none",
            "target_modules": isinstance(targets, str),  # a pattern of names
        }
        unsupported += [name for name, is_set in more_than_lora.items() if is_set]
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise SettingsError(
            f"the {CONFIG} of the adapter '{adapter}' is not one of LoRA"
            f" ({type(fault).__name__}): give an adapter that PEFT saved"
        ) from fault
    if unsupported:
        raise SettingsError(
            f"the adapter '{adapter}' is more than LoRA on named layers ({', '.join(unsupported)}):"
            " merge it into its base, and give the result with --model"
        )
    return base, shape


def expect_size(adapter: str, moving: int) -> None:
    """Raise a `SettingsError` if an adapter has not as many numbers as one of the base."""
    weights = _stored(file_of(adapter, WEIGHTS).parent, "torch")
    if (count := sum(int(tensor.numel()) for tensor in weights.values())) != moving:
        raise SettingsError(
            f"the adapter '{adapter}' was trained for another base: it has {count:,} numbers, and"
            f" one of this model has {moving:,}; give --model the base of the adapter"
        )


def fingerprint_of(folder: Path) -> str:
    """The fingerprint of the adapter that was saved in `folder`, without its base.

    Raises:
        RunError: it cannot be read.
    """
    layer = re.compile(r"\.(lora_[AB])\.")
    weights = _stored(folder, "numpy")
    return _digest({layer.sub(rf".\1.{POLICY}.", name): value for name, value in weights.items()})


def _stored(folder: Path, kind: str) -> dict[str, Any]:
    """The weights in `folder` as safetensors reads them for a library, `torch` or `numpy`."""
    try:
        weights: dict[str, Any] = import_module(f"safetensors.{kind}").load_file(folder / WEIGHTS)
    except Exception as error:  # absent, cut short, or no safetensors at all
        raise RunError(
            f"the adapter in {folder} cannot be read: its {WEIGHTS} is absent or damaged, so "
            "put back a copy, or delete the folder of a refit, which `stacksl resume` makes again"
        ) from error
    return weights


def _digest(arrays: Mapping[str, Any]) -> str:
    digest = hashlib.blake2b(digest_size=32)
    for name, values in sorted(arrays.items()):
        digest.update(f"\n{name} {values.shape}\n".encode())
        digest.update(values.copy("C"))
    return digest.hexdigest()


def digest_of(adapter: str) -> str:
    """Hex BLAKE2b of the file of an adapter's weights."""
    return hashlib.blake2b(file_of(adapter, WEIGHTS).read_bytes(), digest_size=32).hexdigest()
