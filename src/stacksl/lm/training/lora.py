"""Low-rank adapters: which layers carry one, and the weights they start from."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

from stacksl.errors import MissingExtra, SettingsError
from stacksl.lm.loading import Base
from stacksl.lm.reading import first_line, quiet, still_random
from stacksl.lm.scoring.paths import Tensor, load_torch

ALL_LINEAR = "all-linear"
POLICY = "default"  # PEFT's own name for an adapter; a folder loads by itself under this one alone


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """The shape of a low-rank adapter: W + (alpha / rank) B A in every target layer.

    Args:
        rank: the rows of A, (rank, in), and the columns of B, (out, rank).
        alpha: the adapter's weight, times rank.
        dropout: the share of an adapter's inputs that training leaves out, from 0 to below 1.
        targets: names of linear layers, or ends of their dotted names; None, or PEFT's
            `all-linear`, for every linear layer but the output.

    Source: Hu et al. (2022), "LoRA".
    """

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    targets: tuple[str, ...] | None = None


def load_peft() -> Any:
    """The library peft.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import peft
    except ImportError:
        raise MissingExtra.of("adapting a language model by LoRA", "lm") from None
    return peft


def linear_layers(model: Any) -> dict[str, Any]:
    """The linear layers of a model by dotted name, its output layer left out."""
    from transformers.pytorch_utils import Conv1D

    kinds = (load_torch().nn.Linear, Conv1D)  # the latter is what GPT-2 has
    head = model.get_output_embeddings()
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, kinds) and module is not head
    }


def width_of(layer: Any) -> int:
    """How many numbers a linear layer gives."""
    return int(layer.nf if hasattr(layer, "nf") else layer.out_features)


def stacks(model: Any) -> list[Tensor]:
    """Stacks of matrices, such as the experts of a mixture, which get no adapter."""
    named = (each for name, each in model.named_parameters() if "lora_" not in name)
    return [each for each in named if each.ndim > 2]


def adapted_layers(model: Any, asked: tuple[str, ...] | None) -> dict[str, Any]:
    """The linear layers that get an adapter, by dotted name.

    Raises:
        SettingsError: a target that no linear layer has.
    """
    ends = _targets(model, asked)
    return {
        name: layer
        for name, layer in linear_layers(model).items()
        if any(name == end or name.endswith(f".{end}") for end in ends)
    }


def lora_model(base: Base, settings: LoraSettings, seed: int) -> Any:
    """The model within PEFT, with an adapter that changes nothing yet.

    A is uniform on ±1/sqrt(in), drawn for each layer from (seed, its name) alone, so that it is the
    same on every device and beside any other layers; B is 0. Both are float32 in every
    dtype of the base: a step of AdamW is some 1e-4 of a weight, and bfloat16 rounds away what is
    below 4e-3 of it. Beside a base in half precision they are for passes under autocast alone
    (`Likelihood` sees to it), since PEFT's own cast would keep every input in float32 for the
    backward pass, a third of all activations. The model is changed in place.

    Raises:
        SettingsError: a target that no linear layer has.
        MissingExtra: peft is not installed.
    """
    peft = load_peft()
    targets = _targets(base.model, settings.targets)
    config = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=targets,
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
            "choose others by lora_targets"
        ) from error
    _begin(model, seed)
    if base.model.dtype != load_torch().float32:
        for module in model.modules():
            if hasattr(module, "cast_input_dtype_enabled"):
                module.cast_input_dtype_enabled = False
    return model.eval()


def _targets(model: Any, asked: tuple[str, ...] | None) -> list[str]:
    layers = linear_layers(model)
    if asked == (ALL_LINEAR,):
        asked = None
    ends = sorted({name.rpartition(".")[2] for name in layers})
    if asked is None:  # ends alone, unless something that is not to be adapted has one of them too
        others = {
            name.rpartition(".")[2] for name, _ in model.named_modules() if name not in layers
        }
        return sorted(layers) if others & set(ends) else ends
    for target in asked:
        if not any(name == target or name.endswith(f".{target}") for name in layers):
            raise SettingsError(
                f"lora_targets names '{target}', which is no linear layer below the output of this "
                f"model: take of {', '.join(ends)}"
            )
    return sorted(set(asked))


def _begin(model: Any, seed: int) -> None:
    torch = load_torch()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if f".{POLICY}." not in name:
                continue
            parameter.data = parameter.data.float()
            parameter.copy_(_first_weights(name, parameter, seed))


def _first_weights(name: str, parameter: Tensor, seed: int) -> Tensor:
    torch = load_torch()
    if "lora_A" not in name:
        return torch.zeros(parameter.shape)
    key = hashlib.blake2b(f"lora {seed} {name}".encode(), digest_size=8).digest()
    draw = torch.Generator().manual_seed(int.from_bytes(key, "little") >> 1)
    bound = 1 / math.sqrt(parameter.shape[1])
    return torch.empty(parameter.shape).uniform_(-bound, bound, generator=draw)
