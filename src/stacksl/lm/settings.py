"""Everything that fixes a language model's part of a run, as plain values that can be sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stacksl.core.losses import Reading
from stacksl.core.scorers.base import Reference
from stacksl.lm.prompt.format import AnswerFormat, PmiContext, PromptFormat
from stacksl.lm.prompt.tokens import Limits
from stacksl.lm.scoring.normalize import Normalization
from stacksl.types import Item, copied


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """The shape of a low-rank adapter: W + (alpha / rank) B A in every target layer.

    Args:
        rank: the rows of A, (rank, in), and the columns of B, (out, rank).
        alpha: the adapter's weight, times rank.
        dropout: the share of an adapter's inputs that training leaves out, from 0 to below 1.
        targets: names of linear layers, or ends of their dotted names; None, or PEFT's
            `all-linear`, for every linear layer but the output.
        start: an adapter of this shape that training begins with, a folder or a name on the hub.

    Source: Hu et al. (2022), "LoRA".
    """

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    targets: tuple[str, ...] | None = None
    start: str | None = field(default=None, repr=False)  # its weights are in the fingerprint


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """Everything that fixes a refit besides its examples, its seed and where it begins.

    The fields are those of a run's settings `update` and `lm`, which explain them and check their
    ranges. Under the reference `previous` the KL term is left out, since its gradient is zero
    (`docs/paper.md`, D3).

    Attributes:
        normalization, temperature: of the option log-likelihoods: their kind, and what they are
            divided by.
    """

    objective: str = "ce"
    reference: Reference = "frozen"
    kl_weight: float = 0.1
    clip: Reading = "scale"
    clip_level: float | None = None
    normalization: Normalization = "token_mean"
    temperature: float = 1.0
    epochs: int = 3
    batch_size: int = 8
    learning_rate: float = 2e-4
    warmup_share: float = 0.1
    weight_decay: float = 0.01
    gradient_checkpointing: bool = False

    @property
    def pulls(self) -> bool:
        """Whether a KL term takes part."""
        return self.objective == "stacksl" and self.reference == "frozen" and self.kl_weight > 0

    @property
    def clips(self) -> Reading:
        """How losses are clipped; the other objectives never do."""
        return self.clip if self.objective == "stacksl" else "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How a model is asked and its answers are read; `template` is the text, not its name."""

    answer_format: AnswerFormat = "option"
    template: str = "{prompt}\nAnswer:"
    chat: bool = False
    system: str | None = None
    chat_arguments: Mapping[str, Any] = field(default_factory=dict)
    pmi_context: PmiContext = "template"
    max_len_prompt: int | None = None
    max_len_choice: int | None = None

    def limits(self, positions: int | None) -> Limits:
        """How long token rows may be with a base of so many `positions`."""
        return Limits(self.max_len_prompt, self.max_len_choice, positions)

    def form(self, tokenizer: Any) -> PromptFormat:
        """How items are put to the model; `tokenizer` is the base's, for its chat form."""
        return copied(PromptFormat, self, chat=tokenizer if self.chat else None)


@dataclass(frozen=True, slots=True)
class ModelChoices(Asking):
    """Which model, how it is asked, how it is read and how it is trained.

    The fields are those of a run's settings `lm`, which explain them.

    Attributes:
        normalization, temperature: `auto` is `token_mean` until labels choose it with the premise
            (`LanguageModel.choose`), a temperature of None is fitted.
        threads: torch's on the CPU, since sums are cut by their number; None leaves them.
        state_dim: 0 where nothing reads states of options.
        verdict: on packed rows that were checked before (`Likelihood`).
        lora, training: of the adapter, and of its refits.
    """

    model: str
    normalization: Normalization | Literal["auto"] = "token_mean"
    temperature: float | None = None
    device: str = "auto"
    dtype: str = "auto"
    batch_tokens: int = 4096
    threads: int | None = None
    state_dim: int = 128
    verdict: str = ""
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
