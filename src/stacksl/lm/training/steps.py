"""The training steps of a refit: order, gradient, clip window, KL weight."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from stacksl.core.calibration import adjusted_kl_weight
from stacksl.core.losses import clip as clip_value
from stacksl.core.rng import generator
from stacksl.errors import RunError
from stacksl.lm.distributed import Distributed
from stacksl.lm.scoring.likelihood import Likelihood
from stacksl.lm.scoring.normalise import normalised
from stacksl.lm.scoring.paths import load_torch
from stacksl.lm.scoring.room import within_memory
from stacksl.lm.training.objectives import ClipWindow, Part, clip, cross_entropy, kl
from stacksl.lm.training.optimizer import NOT_FINITE, Optimizer
from stacksl.lm.training.recipe import TrainSettings

if TYPE_CHECKING:
    from stacksl.lm.training.adapters import Adapter


Tensor: TypeAlias = Any
Seen: TypeAlias = tuple[float | None, float | None]  # loss and KL of an example, where it has them

_LEAST_WEIGHT = 1e-6  # of an adjusted KL weight: 0 could not grow


@dataclass(slots=True)
class Progress:
    """The state of a refit besides its tensors."""

    step: int = 0
    kl_weight: float = 0.0
    seconds: float = 0.0
    tokens: int = 0
    labels: int = 0
    clipped: int = 0
    losses: list[float] = field(default_factory=list)  # of this epoch, before clipping
    cut: list[float] = field(default_factory=list)  # the same after it
    kls: list[float] = field(default_factory=list)  # of this epoch


class TrainingSteps:
    """The steps of one refit."""

    def __init__(
        self,
        adapter: Adapter,
        likelihood: Likelihood,
        parts: Sequence[Part],
        settings: TrainSettings,
        keys: tuple[int, int],
        processes: Distributed,
    ) -> None:
        self.adapter = adapter
        self.likelihood = likelihood
        self.parts = parts
        self.settings = settings
        self.keys = keys
        self.processes = processes
        # dropout is drawn for a group, so with it the groups are those of one process
        self._shares = 1 if adapter.drops else processes.size
        self.an_epoch = math.ceil(len(parts) / settings.batch_size)
        self.total = settings.epochs * self.an_epoch
        self.now = Progress(kl_weight=settings.kl_weight)
        if settings.kl_target is not None:
            self.now.kl_weight = max(settings.kl_weight, _LEAST_WEIGHT)
        self.window = ClipWindow(settings.clip_level, settings.clip_multiple)
        self.moving = settings.pulls and settings.reference != "frozen"

    def run(self, progress: Callable[[int, int], None] | None) -> None:
        """Take all steps."""
        given, started = self.settings, monotonic()
        self.optimizer = Optimizer(
            self.adapter.parameters(),
            self.total,
            learning_rate=given.learning_rate,
            warmup_share=given.warmup_share,
            weight_decay=given.weight_decay,
            max_grad_norm=given.max_grad_norm,
        )
        if self.moving:
            self.second = self.adapter.reference()
        while self.now.step < self.total:
            what = f"take step {self.now.step + 1} of the training"
            with within_memory(what, checkpointing=given.checkpointing):
                self._step()
            self.now.seconds = monotonic() - started
            if progress is not None:
                progress(self.now.step, self.total)

    def _step(self) -> None:
        chosen, level = self._chosen(), self.window.level()
        if self.moving and self.settings.reference == "previous":
            self.second.move(0.0)
        seen = self._add_gradients(chosen, level)
        self._refuse_not_finite(seen)
        self.processes.total(self.optimizer.gradients())
        self.optimizer.step(self.now.step)
        if self.moving and self.settings.reference == "ema":
            self.second.move(self.settings.ema_decay)
        self._note(seen, level)
        self.now.tokens += sum(each.tokens for each in chosen)
        self.now.step += 1

    def _add_gradients(self, chosen: Sequence[Part], level: float) -> list[Seen]:
        """Add the gradients of some parts, in micro-batches; what was seen, in their order."""
        packing = self.likelihood.packing
        most = min(self.processes.gather([packing.batch_tokens]))  # one without room has halved it
        self.likelihood.packing = replace(packing, batch_tokens=most)
        groups = self.likelihood.batches([each.item for each in chosen], self._shares)
        mine = []
        for number in self.processes.share(len(groups)):

            def work(group: Sequence[Part], number: int = number) -> list[Seen]:
                self._reseed(number)
                return self._backward(group, level, len(chosen))

            group = [chosen[index] for index in groups[number]]
            mine.append(self.likelihood.in_memory(work, group))
        found = self.processes.gather(mine)
        order = [index for group in groups for index in group]
        flat = [seen for group in found for seen in group]
        return [pair for _, pair in sorted(zip(order, flat, strict=True), key=lambda each: each[0])]

    def _chosen(self) -> list[Part]:
        """The parts of the next step, from the order of its epoch."""
        epoch, place = divmod(self.now.step, self.an_epoch)
        if place == 0:
            self.now.losses, self.now.cut, self.now.kls = [], [], []
        order = generator(self.keys[0], "lm order", self.keys[1], epoch)
        size = self.settings.batch_size
        places = order.permutation(len(self.parts))[place * size : (place + 1) * size]
        return [self.parts[int(index)] for index in places]

    def _reseed(self, number: int) -> None:
        """Dropout of a micro-batch from its own number, in every process the same."""
        torch = load_torch()
        draw = generator(self.keys[0], "lm dropout", self.keys[1], self.now.step, number)
        key, device = int(draw.integers(2**62)), self.adapter.model.device
        torch.default_generator.manual_seed(key)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(key)

    def _backward(self, group: Sequence[Part], level: float, share: int) -> list[Seen]:
        """Add the gradient of a micro-batch's part of the step's mean; what was seen.

        All of it or, where there is no memory for it, nothing.
        """
        anchors = self._anchors(group)
        terms, seen = [], []
        for each, scores, anchor in zip(group, self._scores(group), anchors, strict=True):
            term, pair = self._term(each, scores, anchor, level)
            terms.append(term)
            seen.append(pair)
        torch, moving = load_torch(), self.adapter.parameters()
        whole = torch.stack(terms).sum() / share
        gradients = torch.autograd.grad(whole, moving, allow_unused=True)
        for parameter, own in zip(moving, gradients, strict=True):
            if own is not None:
                parameter.grad = own if parameter.grad is None else parameter.grad.add_(own)
        return seen

    def _term(
        self, each: Part, scores: Tensor, anchor: Tensor | None, level: float
    ) -> tuple[Tensor, Seen]:
        """What an example adds to the step's sum, with its loss and KL as numbers."""
        term, loss, pull = scores.sum() * 0.0, None, None
        if each.gold is not None:
            whole = self._loss(scores, each.gold)
            loss = float(whole.detach())
            term = clip(whole, level, self.settings.clips)
        if anchor is not None:
            pulling = kl(scores, anchor)
            pull = float(pulling.detach())
            if self.settings.pulls:
                term = term + self.now.kl_weight * pulling
        return term, (loss, pull)

    def _loss(self, scores: Tensor, gold: int) -> Tensor:
        return -scores[gold] if self.settings.objective == "sft" else cross_entropy(scores, gold)

    def _scores(self, group: Sequence[Part]) -> list[Tensor]:
        items = [each.item for each in group]
        sums = self.likelihood.sums(items)
        if self.settings.objective == "sft":
            return normalised(sums, items, "token_mean")
        alone = None
        if self.settings.normalisation == "pmi":
            alone = self.likelihood.sums([each.alone for each in group if each.alone is not None])
        kind, temperature = self.settings.normalisation, self.settings.temperature
        return normalised(sums, items, kind, alone=alone, temperature=temperature)

    def _anchors(self, group: Sequence[Part]) -> list[Tensor | None]:
        """Scores of the reference; None where there are none."""
        torch = load_torch()
        if self.moving:
            with self.second.active():
                return list(self._scores(group))
        if self.settings.reference != "frozen" or self.settings.objective == "sft":
            return [None] * len(group)
        device = self.adapter.model.device
        return [
            torch.tensor(each.reference, dtype=torch.float32, device=device)
            if each.reference
            else None
            for each in group
        ]

    def _refuse_not_finite(self, seen: Sequence[Seen]) -> None:
        for value in (value for pair in seen for value in pair if value is not None):
            if not math.isfinite(value):
                place = {"step": self.now.step + 1, "total": self.total}
                raise RunError(NOT_FINITE.format(what="a loss", **place))

    def _note(self, seen: Sequence[Seen], level: float) -> None:
        """Update after a step: clip window, KL weight, the means of the epoch."""
        losses = [loss for loss, _ in seen if loss is not None]
        kls = [pull for _, pull in seen if pull is not None]
        if self.settings.clips != "none":
            self.now.clipped += sum(loss > level for loss in losses)
        self.now.labels += len(losses)
        self.window.add(losses)
        self.now.losses += losses
        flat = np.zeros(0)  # of the game's clip, the value alone
        self.now.cut += [clip_value(loss, flat, level, self.settings.clips)[0] for loss in losses]
        self.now.kls += kls
        target = self.settings.kl_target
        if self.settings.pulls and target is not None and kls:
            most = 1.0 / self.settings.learning_rate
            observed = sum(kls) / len(kls)
            self.now.kl_weight = adjusted_kl_weight(
                self.now.kl_weight, max(0.0, observed), target, most=most
            )
