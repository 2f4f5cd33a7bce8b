"""A refit of the adapter: what it minimizes, order, gradient, clip window, and the optimizer.

One that was cut off is made again from its start. The losses are those of `core.losses`, on tensors
that carry gradients back into the model, of scores s = (normalized log-likelihood) / temperature
with π = softmax(s).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeAlias

import numpy as np

from stacksl.core.calibration import WINDOW, clip_level
from stacksl.core.losses import Reading
from stacksl.core.losses import clip as clip_value
from stacksl.core.rng import generator
from stacksl.errors import RunError
from stacksl.lm.distributed import ALONE, Distributed
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.likelihood import Likelihood, within_memory
from stacksl.lm.scoring.normalize import normalized
from stacksl.lm.scoring.packing import shared_batches
from stacksl.lm.scoring.paths import Tensor, load_torch, sent
from stacksl.lm.settings import TrainSettings
from stacksl.lm.training.adapters import Adapter

OBJECTIVES: dict[str, str] = {
    "sft": "cross-entropy of the gold option's own tokens: -log p(gold | prompt) / tokens",
    "ce": "softmax cross-entropy over the scores of all options: the paper's MC-Ranker",
    "ce-hard": "softmax cross-entropy over the candidates alone",
    "stacksl": "cross-entropy over the candidates, clipped, + kl_weight x KL(policy, reference)",
}
"""Every objective, with what it is. Clipping and the KL term belong to `stacksl` alone.

Source: the paper's ablation (SFT, CE, CE without regularization, StackSL).
"""


@dataclass(frozen=True, slots=True)
class Example:
    """One item to train on: a bought label, or a skipped item for the KL term alone.

    Attributes:
        item: token rows of the prompt and its K options.
        alone: token rows of the same options without the prompt, for `pmi`; else None.
        gold: x*, an index into the options; None for the KL term alone.
        candidates: C_t, the options the loss and the KL term are over; holds `gold`.
        reference: the K scores of the frozen base after normalization and temperature; may be
            empty where no KL to it is wanted.
    """

    item: TokenItem
    alone: TokenItem | None
    gold: int | None
    candidates: tuple[int, ...]
    reference: tuple[float, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens of its packed rows, P + Σ (L_i - 1), with those of `alone`."""
        rows = (self.item,) if self.alone is None else (self.item, self.alone)
        return sum(len(row.prompt) + sum(len(option) - 1 for option in row.options) for row in rows)

    def read_by(self, objective: str) -> Example:
        """The example with those of its options alone that an objective reads and scores.

        Args:
            objective: one of `OBJECTIVES`; without a gold option `stacksl`.
        """
        chosen = self.candidates
        if objective == "ce":
            chosen = tuple(range(len(self.item.options)))
        if objective == "sft":
            assert self.gold is not None
            chosen = (self.gold,)
        alone = None if objective == "sft" else self.alone
        return Example(
            self.item.among(chosen),
            None if alone is None else alone.among(chosen),
            None if self.gold is None else chosen.index(self.gold),
            tuple(range(len(chosen))),
            tuple(self.reference[index] for index in chosen) if self.reference else (),
        )


def cross_entropy(scores: Tensor, gold: int) -> Tensor:
    """ℓ = -log π(x*) of scores (m,), nats; `gold` is the position of x*.

    Source: Algorithm 1, the loss over candidates.
    """
    return -scores.log_softmax(-1)[gold]


def kl(scores: Tensor, reference: Tensor) -> Tensor:
    """KL(π ‖ π_ref) = Σ π log(π / π_ref) of scores (m,) and (m,), nats; the reference is fixed.

    Source: Algorithm 1, the update; Algorithm 2, the KL-only step.
    """
    logs = scores.log_softmax(-1)
    return (logs.exp() * (logs - reference.detach().log_softmax(-1))).sum()


def clip(loss: Tensor, level: float, reading: Reading) -> Tensor:
    """The loss ℓ clipped at ρ = `level` nats, with the gradient of `core.losses.clip`.

    `literal` is min(ℓ, ρ), whose gradient above ρ is zero; `scale` is ρ(1 + log(ℓ/ρ)) above ρ,
    whose gradient is that of ℓ times ρ/ℓ; `none` is ℓ.

    Source: Algorithm 1, loss clipping. Deviation: `scale` (`docs/paper.md`, D10).
    """
    if reading == "none" or level == math.inf:
        return loss
    torch = load_torch()
    clipped = torch.full_like(loss, level)
    if reading == "scale" and level > 0.0:
        clipped = level * (1.0 + torch.log((loss / level).clamp_min(1.0)))
    return torch.where(loss <= level, loss, clipped)  # the host does not wait for the loss


# The refit -----------------------------------------------------------------------------------

LONGEST = 1.0  # gradients that are longer are scaled to this length
LossAndKL: TypeAlias = tuple[Any, Any]  # of an example: None where it has none; maybe tensors


@dataclass(frozen=True, slots=True)
class Trained:
    """The result of a refit.

    Attributes:
        examples: that took part, those for the KL term alone included.
        loss: mean loss of the labels in the last epoch, before clipping, nats; None without labels.
        kl: mean KL(π ‖ π_ref) over what the loss is over, in the last epoch, nats; None where it
            was not seen (`sft`, no reference scores, or the reference `previous`).
        clipped: share of all losses that were above the clip level.
        tokens: of packed rows that went through the model with gradients.
        largest: the largest loss of a label in the last epoch, before clipping, nats.
        loss_clipped, largest_clipped: mean and largest of the same losses after clipping.
    """

    steps: int
    examples: int
    loss: float | None
    kl: float | None
    clipped: float
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
    processes: Distributed = ALONE,
) -> Trained:
    """Train the adapter from its present weights on the examples; leaves the model in `eval`.

    A step minimizes the mean over its examples of clip(ℓ) + kl_weight·KL(π ‖ π_ref), where an
    example without a gold has the second term alone; such examples are left out where no KL term
    takes part. Gradients of a step are accumulated over batches, which with several processes are
    shared by all and summed before the step.

    The order of the examples and dropout depend on seed and key alone, never on the number of
    processes or on what ran before; torch's own random state is as it was.

    Args:
        likelihood: of `adapter.model`.
        examples: the labels learned so far and, for the KL term, items that were skipped.
        progress: called with (steps done, steps in all) after every step.
        processes: those that share the work, each with the same arguments.

    Raises:
        RunError: numbers that are not finite, or no memory left.
    """
    reduced = [
        example.read_by(settings.objective)
        for example in examples
        if example.gold is not None or settings.pulls
    ]
    steps = TrainingSteps(adapter, likelihood, reduced, settings, (seed, key), processes)
    if reduced:
        with _training(adapter, settings.gradient_checkpointing):
            steps.run(progress)
    return steps.trained()


@contextmanager
def _training(adapter: Adapter, checkpointing: bool) -> Iterator[None]:
    """The model in training, with a random state of its own; then still, and all as it was."""
    torch, model = load_torch(), adapter.model
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.enable_grad():
        model.train()
        try:
            with adapter.checkpointing() if checkpointing else nullcontext():
                yield
        finally:
            model.eval()
            for parameter in adapter.parameters():
                parameter.grad = None


@dataclass(eq=False)
class TrainingSteps:
    """The steps of one refit."""

    adapter: Adapter
    likelihood: Likelihood
    examples: Sequence[Example]
    settings: TrainSettings
    keys: tuple[int, int]
    processes: Distributed

    def __post_init__(self) -> None:
        # dropout is drawn for a group, so with it the groups are those of one process
        self._shares = 1 if self.adapter.drops else self.processes.size
        self.an_epoch = math.ceil(len(self.examples) / self.settings.batch_size)
        self.total = self.settings.epochs * self.an_epoch
        self.recent: list[float] = []  # losses of the last labels, before clipping
        self.step, self.seconds = 0, 0.0
        self.tokens = self.labels = self.clipped = 0
        self.losses: list[float] = []  # of this epoch, before clipping
        self.cut: list[float] = []  # the same after it
        self.kls: list[float] = []  # of this epoch

    def run(self, progress: Callable[[int, int], None] | None) -> None:
        """Take all steps."""
        settings, started = self.settings, monotonic()
        self.optimizer = Optimizer(self.adapter.parameters(), self.total, settings)
        while self.step < self.total:
            action = f"take step {self.step + 1} of the training"
            with within_memory(action, checkpointing=settings.gradient_checkpointing):
                self._step()
            self.seconds = monotonic() - started
            if progress is not None:
                progress(self.step, self.total)

    def _step(self) -> None:
        chosen, level = self._chosen(), clip_level(np.array(self.recent), self.settings.clip_level)
        pairs = self._add_gradients(chosen, level)
        self.processes.total(self.optimizer.gradients())
        # the one wait for a GPU in a step
        pairs, length = _to_numbers(pairs, self.optimizer.length())
        losses = [value for pair in pairs for value in pair if value is not None]
        for quantity, values in (("a loss", losses), ("a gradient", [length])):
            if not all(map(math.isfinite, values)):
                raise RunError(
                    f"training gave {quantity} that is not finite at step {self.step + 1} of"
                    f" {self.total}: take a lower learning_rate or dtype float32; the labels are"
                    " kept"
                )
        self.optimizer.step(self.step)
        self._note(pairs, level)
        self.tokens += sum(example.tokens for example in chosen)
        self.step += 1

    def _add_gradients(self, chosen: Sequence[Example], level: float) -> list[LossAndKL]:
        """Add the gradients of some examples, in micro-batches; loss and KL of each."""
        scorer = self.likelihood
        scorer.batch_tokens = min(
            self.processes.gather([scorer.batch_tokens])
        )  # of one without room
        items = [example.item for example in chosen]
        groups = shared_batches(items, scorer.batch_tokens, self._shares)
        own_pairs = []
        for number in self.processes.share(len(groups)):

            def work(group: Sequence[Example], number: int = number) -> list[LossAndKL]:
                self._reseed(number)
                return self._backward(group, level, len(chosen))

            group = [chosen[index] for index in groups[number]]
            own_pairs.append(scorer.in_memory(work, group))
        if self.processes.size > 1:  # numbers travel, tensors of a GPU do not
            own_pairs = [_to_numbers(group)[0] for group in own_pairs]
        order = [index for group in groups for index in group]
        flat = [pair for group in self.processes.gather(own_pairs) for pair in group]
        numbered = sorted(zip(order, flat, strict=True), key=lambda entry: entry[0])
        return [pair for _, pair in numbered]

    def _chosen(self) -> list[Example]:
        epoch, batch = divmod(self.step, self.an_epoch)
        if batch == 0:
            self.losses, self.cut, self.kls = [], [], []
        order = generator(self.keys[0], "lm order", self.keys[1], epoch)
        size = self.settings.batch_size
        chosen = order.permutation(len(self.examples))[batch * size : (batch + 1) * size]
        return [self.examples[int(index)] for index in chosen]

    def _reseed(self, number: int) -> None:
        """Dropout of a micro-batch from its own number, in every process the same."""
        torch = load_torch()
        draw = generator(self.keys[0], "lm dropout", self.keys[1], self.step, number)
        key, device = int(draw.integers(2**62)), self.adapter.model.device
        torch.default_generator.manual_seed(key)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(key)

    def _backward(self, group: Sequence[Example], level: float, share: int) -> list[LossAndKL]:
        """Add the gradient of a micro-batch's part of the step's mean; loss and KL of each.

        All of it or, where there is no memory for it, nothing.
        """
        anchored = self.settings.reference == "frozen" and self.settings.objective != "sft"
        device = self.adapter.model.device
        anchors = [
            sent(example.reference, device) if anchored and example.reference else None
            for example in group
        ]
        terms, pairs = [], []
        for example, scores, anchor in zip(group, self._scores(group), anchors, strict=True):
            term, pair = self._term(example, scores, anchor, level)
            terms.append(term)
            pairs.append(pair)
        torch, moving = load_torch(), self.adapter.parameters()
        loss = torch.stack(terms).sum() / share
        gradients = torch.autograd.grad(loss, moving, allow_unused=True)
        for parameter, grad in zip(moving, gradients, strict=True):
            if grad is not None:
                parameter.grad = grad if parameter.grad is None else parameter.grad.add_(grad)
        return pairs

    def _term(
        self, example: Example, scores: Tensor, anchor: Tensor | None, level: float
    ) -> tuple[Tensor, LossAndKL]:
        """What an example adds to the step's sum, with its loss and KL as numbers."""
        term, loss, pull = scores.sum() * 0.0, None, None
        if example.gold is not None:
            sft = self.settings.objective == "sft"
            unclipped = -scores[example.gold] if sft else cross_entropy(scores, example.gold)
            loss = unclipped.detach()
            term = clip(unclipped, level, self.settings.clips)
        if anchor is not None:
            pulling = kl(scores, anchor)
            pull = pulling.detach()
            if self.settings.pulls:
                term = term + self.settings.kl_weight * pulling
        return term, (loss, pull)

    def _scores(self, group: Sequence[Example]) -> list[Tensor]:
        items = [example.item for example in group]
        sums = self.likelihood.sums(items)
        if self.settings.objective == "sft":
            return normalized(sums, items, "token_mean")
        rows = [example.alone for example in group if example.alone is not None]
        kind, temperature = self.settings.normalization, self.settings.temperature
        alone = self.likelihood.sums(rows) if kind == "pmi" else None
        return normalized(sums, items, kind, alone=alone, temperature=temperature)

    def _note(self, pairs: Sequence[LossAndKL], level: float) -> None:
        """Update after a step: clip window, the means of the epoch."""
        losses = [loss for loss, _ in pairs if loss is not None]
        if self.settings.clips != "none":
            self.clipped += sum(loss > level for loss in losses)
        self.labels += len(losses)
        self.recent = [*self.recent, *losses][-WINDOW:]
        self.losses += losses
        flat = np.zeros(0)  # of the game's clip, the value alone
        self.cut += [clip_value(loss, flat, level, self.settings.clips)[0] for loss in losses]
        self.kls += [pull for _, pull in pairs if pull is not None]

    def trained(self) -> Trained:
        """The result so far."""
        return Trained(
            steps=self.step,
            examples=len(self.examples),
            loss=_mean(self.losses),
            kl=_mean(self.kls),
            clipped=self.clipped / max(1, self.labels),
            seconds=self.seconds,
            tokens=self.tokens,
            largest=max(self.losses, default=None),
            loss_clipped=_mean(self.cut),
            largest_clipped=max(self.cut, default=None),
        )


def _to_numbers(pairs: Sequence[LossAndKL], *tensors: Tensor) -> tuple[Any, ...]:
    """The pairs as numbers, then the `tensors`, all moved from their device in one transfer."""
    values = [value for pair in (*pairs, tensors) for value in pair if value is not None]
    if any(hasattr(value, "detach") for value in values):
        torch = load_torch()
        device = next(value.device for value in values if hasattr(value, "detach"))
        values = torch.stack([torch.as_tensor(value).to(device) for value in values]).tolist()
    numbers = iter(values)
    numbered = [tuple(None if value is None else next(numbers) for value in pair) for pair in pairs]
    return numbered, *numbers


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def rate(step: int, total: int, warmup_share: float) -> float:
    """The learning rate of a step as a share of its peak: a line up, then a cosine down to 0.

    With W = ⌈warmup_share x total⌉ steps of warm-up: (step + 1)/W before step W, and
    ½(1 + cos(π (step - W)/(total - W))) from there; 0 would follow after the last step.

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
    """

    def __init__(self, parameters: Sequence[Tensor], total: int, settings: TrainSettings) -> None:
        self.total, self.settings = total, settings
        self._trainable = list(parameters)
        # one kernel a step on a GPU; on the CPU the numbers stay those of every release
        fused = all(parameter.device.type == "cuda" for parameter in self._trainable)
        self._adam = load_torch().optim.AdamW(
            self._trainable,
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=fused or None,
        )

    def gradients(self) -> list[Tensor]:
        """The gradient of every parameter, zeros where nothing has reached it."""
        torch = load_torch()
        for parameter in self._trainable:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return [parameter.grad for parameter in self._trainable]

    def length(self) -> Tensor:
        """Scale the gradients to the length allowed; how long they were."""
        self.gradients()
        return load_torch().nn.utils.clip_grad_norm_(self._trainable, LONGEST)

    def step(self, step: int) -> None:
        """Move by the gradients there are, then drop them; `step` counts from 0."""
        share = rate(step, self.total, self.settings.warmup_share)
        for group in self._adam.param_groups:
            group["lr"] = self.settings.learning_rate * share
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
