"""The definition that scoring is compared with: a plain forward pass an option."""

from __future__ import annotations

from typing import Any

from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.likelihood import Likelihood


def naive(model: Any, items: list[TokenItem]) -> list[Any]:
    """Log p(option | prompt) of every item, from logits of whole rows, with gradients."""
    import torch

    found = []
    for item in items:
        sums = []
        for option in item.options:
            ids = torch.tensor([[*item.prompt, *option]], device=model.device)
            logits = model(input_ids=ids, use_cache=False).logits[0, len(item.prompt) - 1 : -1]
            target = ids[0, len(item.prompt) :, None]
            sums.append(logits.float().log_softmax(-1).gather(1, target).sum())
        found.append(torch.stack(sums))
    return found


def by(path: str, model: Any, **settings: Any) -> Likelihood:
    """A model as a scorer by one path."""
    likelihood = Likelihood(model, **settings)
    likelihood.path = path  # type: ignore[assignment]
    return likelihood
