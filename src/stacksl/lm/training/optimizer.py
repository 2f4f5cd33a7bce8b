"""The optimiser of a refit: AdamW, linear warm-up, cosine decay, gradients of bounded norm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from stacksl.errors import RunError
from stacksl.lm.scoring.paths import load_torch

Tensor: TypeAlias = Any

NOT_FINITE = (
    "training gave {what} that is not finite at step {step} of {total}: take a lower learning_rate "
    "or dtype float32; the labels and the last checkpoint are kept"
)
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def rate(step: int, total: int, warmup_share: float) -> float:
    """The learning rate of a step as a share of its peak: a line up, then a cosine down to 0.

    With W = ⌈warmup_share x total⌉ steps of warm-up: (step + 1)/W before step W, and
    ½(1 + cos(π (step - W)/(total - W))) from there; 0 would follow after the last step.

    Args:
        step: from 0.
        total: the steps in all.
        warmup_share: in [0, 1].

    >>> [round(rate(step, 6, 0.3), 2) for step in range(6)]
    [0.5, 1.0, 1.0, 0.85, 0.5, 0.15]
    """
    warmup = math.ceil(warmup_share * total)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / (total - warmup)))


class Optimizer:
    """AdamW (Loshchilov and Hutter 2019) over the parameters.

    Weight decay is on matrices alone: with LoRA on A and B, whose product it draws to 0 and so the
    model to its base; with full fine-tuning on every matrix, embeddings included, and neither on
    biases nor on the scales of norms.

    Args:
        parameters: what moves, in a fixed order; float32, since half precision would lose most
            updates to rounding.
        total: the steps in all.
        learning_rate: the peak.
        warmup_share: see `rate`.
        weight_decay: the decay of a matrix in a step is learning rate x this.
        max_grad_norm: longer gradients (over all parameters) are scaled to this length.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        total: int,
        *,
        learning_rate: float,
        warmup_share: float,
        weight_decay: float,
        max_grad_norm: float,
    ) -> None:
        self.total = total
        self._peak = learning_rate
        self._warmup = warmup_share
        self._most = max_grad_norm
        self._moving = list(parameters)
        matrices = [each for each in self._moving if each.ndim > 1]
        others = [each for each in self._moving if each.ndim <= 1]
        groups = [
            {"params": matrices, "weight_decay": weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        # one kernel a step on a GPU; on the CPU the numbers stay those of every release
        self._fused = all(each.device.type == "cuda" for each in self._moving)
        self._adam = load_torch().optim.AdamW(
            [group for group in groups if group["params"]],
            lr=learning_rate,
            fused=self._fused or None,
        )

    def gradients(self) -> list[Tensor]:
        """The gradient of every parameter, zeros where nothing has reached it."""
        torch = load_torch()
        for parameter in self._moving:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return [parameter.grad for parameter in self._moving]

    def step(self, step: int) -> None:
        """Move by the gradients there are, then drop them; `step` counts from 0.

        Raises:
            RunError: the gradient is not finite; nothing was moved.
        """
        self.gradients()
        length = load_torch().nn.utils.clip_grad_norm_(self._moving, self._most)
        if not math.isfinite(float(length)):
            raise RunError(NOT_FINITE.format(what="a gradient", step=step + 1, total=self.total))
        for group in self._adam.param_groups:
            group["lr"] = self._peak * rate(step, self.total, self._warmup)
        self._adam.step()
        self.drop()

    def drop(self) -> None:
        """Forget the gradients and free their memory."""
        self._adam.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """What a step changes besides the parameters, as copies on the CPU."""
        return {
            f"{number}.{name}": self._adam.state[parameter][name].detach().cpu().clone()
            for number, parameter in enumerate(self._moving)
            for name in _MOMENTS
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` gave; the parameters are restored separately."""
        for number, parameter in enumerate(self._moving):
            moments = {name: tensors[f"{number}.{name}"].clone() for name in _MOMENTS}
            self._adam.state[parameter] = {
                # the fused kernel counts its steps on the device
                name: value.to("cpu" if name == "step" and not self._fused else parameter.device)
                for name, value in moments.items()
            }
