"""A computation whose tensors have shapes but no contents, and the bytes they would have held.

The model is built without weights and runs the very code that scores and trains. torch's fake
tensors take the decisions of the device they stand for (which attention kernel, what it keeps for
the backward pass), so that what is alive at any moment is what would have been.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from stacksl.lm.loading import Loaded
from stacksl.lm.reading import load_transformers, quiet
from stacksl.lm.scoring.paths import load_torch
from stacksl.lm.training.lora import LoraSettings, lora_model

__all__ = ["Alive", "counted", "empty_model", "phantom"]

Tensor: TypeAlias = Any


@dataclass(slots=True)
class Alive:
    """Bytes of the tensors that are alive, and how many there were at the fullest moment.

    Attributes:
        vocabulary: tensors of so many columns are counted as logits too.
        total, logits: now.
        most, most_logits: at the moment when `total` was highest.
    """

    vocabulary: int
    total: int = 0
    logits: int = 0
    most: int = 0
    most_logits: int = 0
    _seen: dict[int, weakref.ref[Any]] = field(default_factory=dict, repr=False)

    def see(self, tensor: Tensor) -> None:
        """Count the memory behind a tensor, once, until nothing refers to it."""
        storage = tensor.untyped_storage()
        if id(storage) in self._seen:
            return
        size = int(storage.nbytes())
        logits = size if tensor.ndim > 1 and tensor.shape[-1] == self.vocabulary else 0
        key = id(storage)

        def gone(_: Any) -> None:
            del self._seen[key]
            self._add(-size, -logits)

        self._seen[key] = weakref.ref(storage, gone)
        self._add(size, logits)

    def restart(self) -> None:
        """Look for the fullest moment from now on."""
        self.most, self.most_logits = self.total, self.logits

    def _add(self, size: int, logits: int) -> None:
        self.total += size
        self.logits += logits
        if self.total > self.most:
            self.restart()


def empty_model(config: Any, dtype: str, lora: LoraSettings | None) -> Any:
    """The model of a configuration without weights, on torch's device `meta`.

    Args:
        config: of transformers.
        dtype: what the base computes in.
        lora: the adapter to attach; None for full fine-tuning, where all is float32.

    Raises:
        SettingsError: a LoRA target that no linear layer has.
        MissingExtra: a library is not installed.
    """
    torch, tf = load_torch(), load_transformers()
    with quiet(), torch.device("meta"):
        model = tf.AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, dtype), attn_implementation=_attention(config)
        )
    model = model.eval().requires_grad_(False)
    if lora is None:
        return model.float().requires_grad_(True)
    loaded = Loaded(model, None, "of this configuration", "", None, "", None, None, "meta", dtype)
    return lora_model(loaded, lora, 0)


@contextmanager
def phantom(model: Any) -> Iterator[None]:
    """Within it, the parameters of a model on `meta` stand for ones on the CPU, and it can run."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    torch = load_torch()
    made: dict[int, Any] = {}
    with FakeTensorMode(allow_non_fake_inputs=True):
        for module in model.modules():
            for table in (module._parameters, module._buffers):
                for name, own in table.items():
                    if own is None:
                        continue
                    if id(own) not in made:  # tied weights stay one
                        made[id(own)] = _standing_for(torch, own)
                    table[name] = made[id(own)]
        yield


@contextmanager
def counted(model: Any, vocabulary: int) -> Iterator[Alive]:
    """The bytes of every tensor made within it, those of the model counted from the start."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    torch, alive = load_torch(), Alive(vocabulary)

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = function(*args, **(kwargs or {}))
            for leaf in tree_leaves(out):
                if isinstance(leaf, torch.Tensor):
                    alive.see(leaf)
            return out

    for tensor in (*model.parameters(), *model.buffers()):
        alive.see(tensor)
    with Watch():
        yield alive


def _standing_for(torch: Any, own: Tensor) -> Tensor:
    empty = torch.empty(own.shape, dtype=own.dtype, device="cpu")
    if isinstance(own, torch.nn.Parameter):
        return torch.nn.Parameter(empty, requires_grad=own.requires_grad)
    return empty


def _attention(config: Any) -> str | None:
    """`sdpa`, as scoring sets it, where the model has it."""
    tf = load_transformers()
    kind = tf.AutoModelForCausalLM._model_mapping[type(config)]
    return "sdpa" if getattr(kind, "_supports_sdpa", False) else None
