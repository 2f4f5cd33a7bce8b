"""Refits of tiny random models: what is trained, on which examples."""

from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.likelihood import Likelihood
from stacksl.lm.scoring.normalize import normalized
from stacksl.lm.settings import LoraSettings, TrainSettings
from stacksl.lm.training.refit import Example, Optimizer

FAST = TrainSettings(objective="stacksl", learning_rate=2e-2, epochs=4, batch_size=2, clip="none")


def attached(model, **lora):
    """An adapter on a model that has no folder."""
    from stacksl.lm.loading import Base
    from stacksl.lm.training.adapters import Adapter

    base = Base(
        config=model.config,
        tokenizer=None,
        name="tiny",
        source="tiny",
        revision=None,
        positions=256,
        device="cpu",
        dtype=str(model.dtype).removeprefix("torch."),
    )
    base.model = model
    return Adapter(base, LoraSettings(rank=4, alpha=8.0, **lora), seed=0)


def moved(adapter, size=0.05):
    """The adapter away from its start, where B = 0 hides half of the gradients."""
    import torch

    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in adapter.parameters():
            parameter += size * torch.randn(parameter.shape, generator=draw)
    return adapter


def base_scores(adapter, items, alone, settings):
    """Scores of the adapter as it is, which is the base as long as it is not trained."""
    import torch

    likelihood = Likelihood(adapter.model)
    with torch.no_grad():
        sums = likelihood.sums(items)
        own = likelihood.sums(alone) if settings.normalization == "pmi" else None
    scores = normalized(
        sums, items, settings.normalization, alone=own, temperature=settings.temperature
    )
    return [tuple(row.tolist()) for row in scores]


def examples_of(adapter, items, settings, skips=()):
    """Examples with gold 1 over half or more of the options; those in `skips` have none."""
    alone = [TokenItem(item.id, (1,), item.options, item.lengths) for item in items]
    found = []
    for number, scores in enumerate(base_scores(adapter, items, alone, settings)):
        candidates = (1, 0) if number % 2 else tuple(range(len(items[number].options)))
        gold = None if number in skips else 1
        own = alone[number] if settings.normalization == "pmi" else None
        found.append(Example(items[number], own, gold, candidates, scores))
    return found


def recorded(monkeypatch):
    """The gradients of every step, which then moves nothing."""
    steps = []

    def length(self):
        steps.append([gradient.clone() for gradient in self.gradients()])
        return scaled(self)

    scaled = Optimizer.length
    monkeypatch.setattr(Optimizer, "length", length)
    monkeypatch.setattr(
        Optimizer, "step", lambda self, number: self._adam.zero_grad(set_to_none=True)
    )
    return steps


def same(left, right):
    import torch

    return left.keys() == right.keys() and all(
        torch.equal(left[name], right[name]) for name in left
    )
