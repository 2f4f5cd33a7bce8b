"""The optimiser of a refit: AdamW, linear warm-up, cosine decay, gradients of bounded norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from stacksl.errors import RunError
from stacksl.lm.scoring.paths import load_torch

Tensor: TypeAlias = Any

NOT_FINITE = (
    "training gave {what} that is not finite at step {step} of {total}: take a lower learning_rate "
    "or dtype float32; the labels are kept"
)


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

    Weight decay draws LoRA's A and B, whose product changes the model, to 0 and so the model to its
    base.

    Args:
        parameters: what moves, in a fixed order; float32, since half precision would lose most
            updates to rounding.
        total: the steps in all.
        learning_rate: the peak.
        warmup_share: see `rate`.
        weight_decay: the decay of a parameter in a step is learning rate x this.
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
        # one kernel a step on a GPU; on the CPU the numbers stay those of every release
        fused = all(each.device.type == "cuda" for each in self._moving)
        self._adam = load_torch().optim.AdamW(
            self._moving,
            lr=learning_rate,
            weight_decay=weight_decay,
            fused=fused or None,
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
