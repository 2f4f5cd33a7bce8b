"""What a refit of the adapter minimizes: one number an example, as a function of option scores.

The same losses as `core.losses`, on tensors that carry gradients back into the model. Scores are
s = (normalized log-likelihood) / temperature and π = softmax(s).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stacksl.core.losses import Reading
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.paths import Tensor, load_torch

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
    above = torch.full_like(loss, level)
    if reading == "scale" and level > 0.0:
        above = level * (1.0 + torch.log((loss / level).clamp_min(1.0)))
    return torch.where(loss <= level, loss, above)  # the host does not wait for the loss
