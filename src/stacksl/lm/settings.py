"""Everything that fixes a language model's part of a run, as plain values that can be sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stacksl.lm.prompt.format import PmiContext, Protocol
from stacksl.lm.scoring.normalise import Normalisation
from stacksl.lm.training.lora import LoraSettings
from stacksl.lm.training.recipe import TrainSettings
from stacksl.types import Item


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
