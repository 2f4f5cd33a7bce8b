"""A second adapter beside the one that is trained: the policy's average, or its last iterate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stacksl.lm.reading import quiet, still_random
from stacksl.lm.scoring.paths import Tensor, evaluating, load_torch
from stacksl.lm.training.lora import POLICY

REFERENCE = "reference"


class SecondAdapter:
    """Weights that follow the policy's: reference <- decay reference + (1 - decay) policy.

    It starts at the policy's present weights and is never trained or saved with the adapter.

    Args:
        model: a PeftModel with one LoRA adapter.
        policy: the adapter's tensors by name.

    Source: the paper's moving reference policy; DESIGN D3 on what the last iterate does.
    """

    def __init__(self, model: Any, policy: dict[str, Tensor]) -> None:
        self._model = model
        if REFERENCE not in model.peft_config:
            with quiet(), still_random():
                model.add_adapter(REFERENCE, model.peft_config[POLICY])
        own = dict(model.named_parameters())
        self._pairs = [
            (own[name.replace(f".{POLICY}.", f".{REFERENCE}.")], tensor)
            for name, tensor in policy.items()
        ]
        for mine, theirs in self._pairs:
            mine.data = mine.data.to(theirs.dtype)
        self._train_policy_alone()
        self.move(0.0)

    def move(self, decay: float) -> None:
        """Take the step; `decay` 0 copies the policy, 1 leaves the reference where it is."""
        with load_torch().no_grad():
            for mine, policy in self._pairs:
                if decay == 0:
                    mine.copy_(policy)
                else:
                    mine.mul_(decay).add_(policy, alpha=1 - decay)

    @contextmanager
    def active(self) -> Iterator[None]:
        """The model under these weights instead of the policy's, without gradients or dropout."""
        self._model.set_adapter(REFERENCE)
        try:
            with load_torch().no_grad(), evaluating(self._model):
                yield
        finally:
            self._model.set_adapter(POLICY)
            self._train_policy_alone()

    def _train_policy_alone(self) -> None:
        """Gradients for the policy alone: PEFT gives them to whichever adapter is active."""
        for mine, policy in self._pairs:
            mine.requires_grad_(False)
            policy.requires_grad_(True)
