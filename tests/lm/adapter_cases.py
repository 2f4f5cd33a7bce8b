"""Adapters of tiny models: their shape, a little training, and what is compared."""

from __future__ import annotations

from typing import Any

from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.likelihood import Likelihood
from stacksl.lm.settings import LoraSettings
from stacksl.lm.training.adapters import Adapter

from .plain import by

SMALL = LoraSettings(rank=4, alpha=8.0)


def scores(model: Any, items: list[TokenItem]) -> Any:
    import torch

    with torch.no_grad():
        return torch.cat(by("padded", model, batch_tokens=1).sums(items))


def train(adapter: Adapter, items: list[TokenItem], steps: int = 3) -> None:
    """Steps that raise the first option of every item."""
    import torch

    optimizer = torch.optim.AdamW(adapter.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = -torch.stack(
            [each.log_softmax(0)[0] for each in Likelihood(adapter.model).sums(items)]
        ).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
