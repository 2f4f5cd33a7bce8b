"""Everything that fixes a language model's part of a run, as plain values that can be sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from stacksl.core.losses import Reading
from stacksl.errors import SettingsError
from stacksl.lm.prompt.format import PmiContext, Protocol
from stacksl.lm.scoring.normalise import Normalisation
from stacksl.types import Item

Reference: TypeAlias = Literal["frozen", "ema", "previous"]


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """The shape of a low-rank adapter: W + (alpha / rank) B A in every target layer.

    Args:
        rank: the rows of A, (rank, in), and the columns of B, (out, rank).
        alpha: the adapter's weight, times rank.
        dropout: the share of an adapter's inputs that training leaves out, from 0 to below 1.
        targets: names of linear layers, or ends of their dotted names; None, or PEFT's
            `all-linear`, for every linear layer but the output.

    Source: Hu et al. (2022), "LoRA".
    """

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    targets: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """Everything that fixes a refit besides its examples, its seed and where it begins.

    Attributes:
        objective: one of `objectives.OBJECTIVES`.
        reference: π_ref of the KL term: the base model, a moving average of the adapter over the
            steps of this refit, or the adapter before the step. The last has no KL gradient at
            all but for dropout (`docs/paper.md`, D3), since every step has one gradient.
        ema_decay: α of reference ← α·reference + (1 - α)·adapter after every step.
        kl_weight: λ of the term λ·KL(π ‖ π_ref).
        kl_target: τ; after every step the weight is adjusted to keep the mean KL of a step near
            it, within [1e-6, 1/learning_rate]; None leaves the weight alone.
        clip: how a loss above the level is clipped (`docs/paper.md`, D10).
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


@dataclass(frozen=True, slots=True)
class ModelChoices:
    """Which model, how it is asked, how it is read and how it is trained.

    Attributes:
        model: a folder, a name on the hub, or `sample`.
        protocol, template, chat: how an item is put (`prompts.PromptFormat`); the template's text,
            not its name.
        system, chat_arguments: of the chat form (`prompts.PromptFormat`).
        pmi_context: the premise of `pmi` (`prompts.PromptFormat`).
        normalisation, temperature: how log-likelihoods become scores; `auto` is `token_mean` until
            labels choose it with the premise (`LanguageModel.choose`), a temperature of None is
            fitted.
        max_len_prompt, max_len_choice: tokens kept (`tokens.Limits`).
        device, dtype: as `loading.load` takes them.
        path: how options are scored (`likelihood.PATHS`), or `auto`.
        batch_tokens: tokens of one forward pass, at most.
        threads: torch's on the CPU, since sums are cut by their number; None leaves them.
        state_dim: the directions of option states that are kept.
        lora, training: of the adapter, and of its refits.
    """

    model: str
    protocol: Protocol = "option"
    template: str = "{prompt}\nAnswer:"
    chat: bool = False
    system: str | None = None
    chat_arguments: Mapping[str, Any] = field(default_factory=dict)
    pmi_context: PmiContext = "template"
    normalisation: Normalisation | Literal["auto"] = "token_mean"
    temperature: float | None = None
    max_len_prompt: int | None = None
    max_len_choice: int | None = None
    device: str = "auto"
    dtype: str = "auto"
    path: str = "auto"
    batch_tokens: int = 4096
    threads: int | None = None
    state_dim: int = 128
    lora: LoraSettings = field(default_factory=LoraSettings)
    training: TrainSettings = field(default_factory=TrainSettings)


@dataclass(frozen=True, slots=True)
class Lesson:
    """One item of a refit: its label, or None for a term that only holds the policy where it was.

    `candidates` are the loss set, indices into the item's options; they hold the label.
    `reference` are the base model's scores of all K options, as the run took them before any refit.
    """

    item: Item
    label: int | None
    candidates: tuple[int, ...]
    reference: tuple[float, ...]
