"""A refit of the adapter: one that was cut off is made again from its start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stacksl.lm.distributed import ALONE, Distributed
from stacksl.lm.scoring.likelihood import Likelihood
from stacksl.lm.scoring.paths import load_torch
from stacksl.lm.training.objectives import Example, part
from stacksl.lm.training.recipe import TrainSettings
from stacksl.lm.training.steps import TrainingSteps

if TYPE_CHECKING:
    from stacksl.lm.training.adapters import Adapter


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of a refit.

    Attributes:
        steps: of the optimiser.
        examples: that took part, those for the KL term alone included.
        loss: mean loss of the labels in the last epoch, before clipping, nats; None without labels.
        kl: mean KL(π ‖ π_ref) over what the loss is over, in the last epoch, nats; None where it
            was not seen (`sft`, no reference scores, or an unused `ema` or `previous`).
        clipped: share of all losses that were above the clip level.
        kl_weight: λ at the end.
        seconds: of wall clock.
        tokens: of packed rows that went through the model with gradients.
        largest: the largest loss of a label in the last epoch, before clipping, nats.
        loss_clipped, largest_clipped: mean and largest of the same losses after clipping.
    """

    steps: int
    examples: int
    loss: float | None
    kl: float | None
    clipped: float
    kl_weight: float
    seconds: float
    tokens: int
    largest: float | None = None
    loss_clipped: float | None = None
    largest_clipped: float | None = None


def train(
    adapter: Adapter,
    likelihood: Likelihood,
    examples: Sequence[Example],
    settings: TrainSettings,
    *,
    seed: int,
    key: int,
    progress: Callable[[int, int], None] | None = None,
    processes: Distributed | None = None,
) -> Trained:
    """Train the adapter from its present weights on the examples; leaves the model in `eval`.

    A step minimises the mean over its examples of clip(ℓ) + kl_weight·KL(π ‖ π_ref), where an
    example without a gold has the second term alone; such examples are left out where no KL term
    takes part. Gradients of a step are accumulated over `likelihood.batches`, which with several
    processes are shared by all and summed before the step.

    The order of the examples and dropout depend on seed and key alone, never on the number of
    processes or on what ran before; torch's own random state is as it was.

    Args:
        adapter: what moves.
        likelihood: of `adapter.model`.
        examples: the labels learnt so far and, for the KL term, items that were skipped.
        settings: the rest.
        seed: of the run.
        key: the number of the refit.
        progress: called with (steps done, steps in all) after every step.
        processes: those that share the work, each with the same arguments.

    Raises:
        RunError: numbers that are not finite, or no memory left.
    """
    parts = [
        part(each, settings.objective, pmi=settings.normalisation == "pmi")
        for each in examples
        if each.gold is not None or settings.pulls
    ]
    steps = TrainingSteps(adapter, likelihood, parts, settings, (seed, key), processes or ALONE)
    if not parts:
        return _trained(steps)
    with _training(adapter, settings.checkpointing):
        steps.run(progress)
    return _trained(steps)


@contextmanager
def _training(adapter: Adapter, checkpointing: bool) -> Iterator[None]:
    """The model in training, with a random state of its own; then still, and all as it was."""
    torch, model = load_torch(), adapter.model
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.enable_grad():
        model.train()
        adapter.checkpointing(checkpointing)
        try:
            yield
        finally:
            adapter.checkpointing(False)
            model.eval()
            for parameter in adapter.parameters():
                parameter.grad = None


def _trained(steps: TrainingSteps) -> Trained:
    now = steps.now
    return Trained(
        steps=now.step,
        examples=len(steps.parts),
        loss=_mean(now.losses),
        kl=_mean(now.kls),
        clipped=now.clipped / max(1, now.labels),
        kl_weight=now.kl_weight,
        seconds=now.seconds,
        tokens=now.tokens,
        largest=max(now.losses, default=None),
        loss_clipped=_mean(now.cut),
        largest_clipped=max(now.cut, default=None),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
