"""The numbers that fix a refit of the adapter, with the default and the range of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from stacksl.core.losses import Reading
from stacksl.errors import SettingsError
from stacksl.lm.scoring.normalise import Normalisation, check_scale
from stacksl.lm.training.objectives import OBJECTIVES

Reference: TypeAlias = Literal["frozen", "ema", "previous"]


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """Everything that fixes a refit besides its examples, its seed and where it begins.

    Attributes:
        objective: one of `OBJECTIVES`.
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
        weight_decay: AdamW's, on matrices alone.
        max_grad_norm: longer gradients are scaled to this length.
        checkpointing: whether activations are computed again instead of kept.
        save_every: steps between two training checkpoints; 0 leaves none.

    Raises:
        SettingsError: naming every value that is out of range.
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
    save_every: int = 0

    def __post_init__(self) -> None:
        mistakes = [*self._range_mistakes(), *self._choice_mistakes()]
        if self.kl_target is not None and self.reference == "previous":
            mistakes.append("a kl_target needs reference frozen or ema: KL to 'previous' is 0")
        if mistakes:
            raise SettingsError("; ".join(mistakes))
        check_scale(self.normalisation, self.temperature)

    @property
    def pulls(self) -> bool:
        """Whether a KL term takes part."""
        weighs = self.kl_weight > 0 or self.kl_target is not None
        return self.objective == "stacksl" and weighs

    @property
    def clips(self) -> Reading:
        """How losses are clipped; the other objectives never do."""
        return self.clip if self.objective == "stacksl" else "none"

    def _range_mistakes(self) -> Iterator[str]:
        level = math.inf if self.clip_level is None else self.clip_level
        multiple = 1.0 if self.clip_multiple is None else self.clip_multiple
        target = 1.0 if self.kl_target is None else self.kl_target
        finite, above = "a finite number of at least 0", "a finite number above 0"
        checks = [
            ("ema_decay", "a number from 0 to below 1", 0 <= self.ema_decay < 1),
            ("kl_weight", finite, 0 <= self.kl_weight < math.inf),
            ("kl_target", above, 0 < target < math.inf),
            ("clip_level", "a number above 0", level > 0),
            ("clip_multiple", above, 0 < multiple < math.inf),
            ("clip_multiple", "left out with a clip_level", level == math.inf or multiple == 1.0),
            ("epochs", "1 or more", self.epochs >= 1),
            ("batch_size", "1 or more", self.batch_size >= 1),
            ("learning_rate", above, 0 < self.learning_rate < math.inf),
            ("warmup_share", "a number from 0 to 1", 0 <= self.warmup_share <= 1),
            ("weight_decay", finite, 0 <= self.weight_decay < math.inf),
            ("max_grad_norm", "a number above 0", self.max_grad_norm > 0),
            ("save_every", "0 or more", self.save_every >= 0),
        ]
        for name, wanted, good in checks:
            if not good:
                yield f"{name} must be {wanted}, not {getattr(self, name)}"

    def _choice_mistakes(self) -> Iterator[str]:
        choices: list[tuple[str, str, Sequence[str]]] = [
            ("objective", self.objective, tuple(OBJECTIVES)),
            ("reference", self.reference, get_args(Reference)),
            ("clip", self.clip, get_args(Reading)),
        ]
        for name, got, known in choices:
            if got not in known:
                yield f"{name} must be one of {', '.join(known)}, not '{got}'"
