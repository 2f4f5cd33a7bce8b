"""What moves when a language model is adapted: LoRA weights beside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stacksl.errors import RunError, SettingsError
from stacksl.lm.export.atomic import whole_folder
from stacksl.lm.loading import Base
from stacksl.lm.reading import quiet, still_random
from stacksl.lm.scoring.paths import Tensor, checkpoints, load_torch
from stacksl.lm.training.lora import POLICY, LoraSettings, lora_model
from stacksl.lm.training.reference import SecondAdapter

_WEIGHTS, _CONFIG = "adapter_model.safetensors", "adapter_config.json"


class Adapter:
    """The trainable part of a language model: it can be kept, restored, saved and reset.

    All that is trained is float32, in every dtype of the base, whose model is changed in place; its
    scores are still exactly its own.

    Args:
        base: what is adapted.
        lora: the shape of the low-rank adapter.
        seed: what the initial weights come from; the global generator is not used.

    Attributes:
        model: what to call, a PeftModel.
        base: as it was given.

    Raises:
        SettingsError: a target that the model lacks.
        MissingExtra: peft is not installed.
    """

    def __init__(self, base: Base, lora: LoraSettings | None = None, *, seed: int) -> None:
        self.base = base
        self.model = lora_model(base, lora or LoraSettings(), seed)
        self._moving: dict[str, Any] = {
            n: p for n, p in self.model.named_parameters() if p.requires_grad
        }
        self._initial = self.state()
        self._still = self._versions()

    def reset(self) -> None:
        """Back to the initial weights, bit for bit."""
        self.restore(self._initial)
        self._still = self._versions()

    @property
    def initial(self) -> bool:
        """Whether nothing has moved: the scores are the base's."""
        return self._versions() == self._still

    @property
    def drops(self) -> bool:
        """Whether training draws dropout."""
        plain = load_torch().nn.Dropout
        return any(
            (isinstance(each, plain) and each.p > 0) or getattr(each, "attention_dropout", 0)
            for each in self.model.modules()
        )

    def state(self) -> dict[str, Tensor]:
        """Copies of everything that moves, on the CPU, by name."""
        return {name: each.detach().cpu().clone() for name, each in self._moving.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave.

        Raises:
            RunError: tensors of other names or shapes.
        """
        self._check(state, "the state to restore")
        with load_torch().no_grad():
            for name, parameter in self._moving.items():
                parameter.copy_(state[name])

    def parameters(self) -> list[Any]:
        """The trainable parameters, always in the same order."""
        return list(self._moving.values())

    def fingerprint(self) -> str:
        """Hex BLAKE2b of everything that moves: names, shapes and values."""
        digest = hashlib.blake2b(digest_size=32)
        for name, tensor in sorted(self._moving.items()):
            digest.update(f"\n{name} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy())
        return digest.hexdigest()

    def checkpointing(self, on: bool) -> None:
        """Whether training drops activations and computes them again, for less memory.

        Raises:
            SettingsError: the model cannot.
        """
        inner = self.model.get_base_model()
        if not on and not checkpoints(inner):
            return
        new = hasattr(inner, "activation_checkpointing_enable")  # transformers renamed it
        stem = f"{'activation' if new else 'gradient'}_checkpointing_"
        try:
            with quiet():
                if on:
                    getattr(inner, f"{stem}enable")({"use_reentrant": False})
                else:
                    getattr(inner, f"{stem}disable")()
        except (ValueError, AttributeError) as error:
            raise SettingsError(
                f"model '{self.base.name}' cannot recompute its activations: leave "
                "checkpointing off"
            ) from error

    def reference(self) -> SecondAdapter:
        """A second adapter beside this one, started at its present weights."""
        return SecondAdapter(self.model, self._moving)

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
            _settle(draft / _CONFIG)

    def load(self, folder: Path) -> None:
        """Take the weights of a folder that `save` left.

        Raises:
            RunError: no such folder, damaged, or of another shape.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise RunError(f"there is no folder {folder} to read weights from: check the path")
        state = self._stored(folder)
        if not all(bool(tensor.isfinite().all()) for tensor in state.values()):
            raise RunError(f"the weights in {folder} are not all finite: put back a good copy")
        self.restore(state)

    def _stored(self, folder: Path) -> dict[str, Tensor]:
        from safetensors.torch import load_file

        _check_shape(folder, self.model.peft_config[POLICY])
        try:
            stored = load_file(folder / _WEIGHTS)
        except Exception as error:  # absent, cut short, or no safetensors at all
            raise RunError(
                f"the adapter in {folder} cannot be read: its {_WEIGHTS} is absent or damaged, so "
                "put back a copy"
            ) from error
        names = {name.replace(f".{POLICY}.", "."): name for name in self._moving}
        return {names.get(name, name): tensor for name, tensor in stored.items()}

    def _check(self, state: Mapping[str, Tensor], what: str) -> None:
        wrong = sorted(set(state) ^ set(self._moving)) or [
            name for name, own in self._moving.items() if state[name].shape != own.shape
        ]
        if wrong:
            raise RunError(
                f"{what} is not of this adapter's shape ({len(wrong)} of {len(self._moving)} "
                f"tensors differ, first {wrong[0]}): it belongs to another model or other settings"
            )

    def _versions(self) -> list[int]:
        """How often each parameter was written to, as torch counts."""
        return [int(parameter._version) for parameter in self._moving.values()]


def _settle(path: Path) -> None:
    """Sets have another order in every process; sorted, the file is the same each time."""
    config = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(config.get("target_modules"), list):
        config["target_modules"].sort()
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _check_shape(folder: Path, own: Any) -> None:
    try:
        config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
        found = (str(config["peft_type"]), int(config["r"]), float(config["lora_alpha"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{folder} holds no LoRA adapter: its {_CONFIG} is absent or damaged, so give the "
            "folder of one"
        ) from error
    wanted = ("LORA", int(own.r), float(own.lora_alpha))
    if found != wanted:
        raise RunError(
            f"the adapter in {folder} is {found[0]} of rank {found[1]} and alpha {found[2]:g}, and "
            f"LORA of rank {wanted[1]} and alpha {wanted[2]:g} was expected: give the matching "
            "settings"
        )
