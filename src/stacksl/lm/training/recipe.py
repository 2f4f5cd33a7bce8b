"""The numbers that fix a refit of the adapter, with the default of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from stacksl.core.losses import Reading
from stacksl.errors import SettingsError
from stacksl.lm.scoring.normalise import Normalisation

Reference: TypeAlias = Literal["frozen", "ema", "previous"]


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """Everything that fixes a refit besides its examples, its seed and where it begins.

    Attributes:
        objective: one of `objectives.OBJECTIVES`.
        reference: π_ref of the KL term: the base model, a moving average of the adapter over the
            steps of this refit, or the adapter before the step. The last has no KL gradient at
            all but for dropout (DESIGN D3), since every step has one gradient.
        ema_decay: α of reference ← α·reference + (1 - α)·adapter after every step.
        kl_weight: λ of the term λ·KL(π ‖ π_ref).
        kl_target: τ; after every step the weight is adjusted to keep the mean KL of a step near
            it, within [1e-6, 1/learning_rate]; None leaves the weight alone.
        clip: how a loss above the level is clipped (DESIGN D10).
        clip_level: ρ in nats; None is the 95 % quantile of the last 200 losses.
        clip_multiple: ρ as a multiple of their median instead.
        normalisation: of the option log-likelihoods.
        temperature: what normalised scores are divided by.
        epochs: passes over the examples.
        batch_size: examples of an optimiser step.
        learning_rate: the peak of AdamW's.
        warmup_share: the share of the steps in which it rises to the peak.
        weight_decay: AdamW's.
        max_grad_norm: longer gradients are scaled to this length.
        checkpointing: whether activations are computed again instead of kept.

    Raises:
        SettingsError: a `kl_target` with the reference `previous`. Ranges are those of the run's
            settings, which are checked where they are given.
    """

    objective: str = "ce"
    reference: Reference = "frozen"
    ema_decay: float = 0.99
    kl_weight: float = 0.1
    kl_target: float | None = None
    clip: Reading = "scale"
    clip_level: float | None = None
    clip_multiple: float | None = None
    normalisation: Normalisation = "token_mean"
    temperature: float = 1.0
    epochs: int = 3
    batch_size: int = 8
    learning_rate: float = 2e-4
    warmup_share: float = 0.1
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    checkpointing: bool = False

    def __post_init__(self) -> None:
        if self.kl_target is not None and self.reference == "previous":
            raise SettingsError("a kl_target needs reference frozen or ema: KL to 'previous' is 0")

    @property
    def pulls(self) -> bool:
        """Whether a KL term takes part."""
        weighs = self.kl_weight > 0 or self.kl_target is not None
        return self.objective == "stacksl" and weighs

    @property
    def clips(self) -> Reading:
        """How losses are clipped; the other objectives never do."""
        return self.clip if self.objective == "stacksl" else "none"
