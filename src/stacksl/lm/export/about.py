"""What an adapted language model was made from and for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stacksl import __version__
from stacksl.lm.prompt.format import PmiContext, PromptFormat, Protocol
from stacksl.lm.prompt.tokens import Limits
from stacksl.lm.quantised import unquantised
from stacksl.lm.scoring.normalise import Normalisation
from stacksl.lm.weights import Weights
from stacksl.types import copied


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What an adapted model was made from and for: the content of `lm.json`.

    Attributes:
        name, source, revision: the base as it was named, and where `from_pretrained` finds it: a
            hub name or an absolute folder.
        fingerprint, stamp: of the base's weights, in hex (`lm.weights.Weights`).
        licence: the base's, where it says one.
        protocol, template, chat: how an item is put to the model; `template` is the text itself.
        system, chat_arguments: of the chat form.
        pmi_context: the premise of `pmi`.
        normalisation, temperature: how log-likelihoods become scores.
        max_len_prompt, max_len_choice, positions: the limits in tokens, None for none.
        dtype: the base's in the run.
        classes: the fixed label set; None where items bring their own options.
        columns: how a file of items is read.
        stacksl: the version that wrote the file.
    """

    name: str
    source: str
    fingerprint: str
    stamp: str
    protocol: Protocol
    template: str
    normalisation: Normalisation
    temperature: float
    dtype: str
    pmi_context: PmiContext
    chat: bool = False
    system: str | None = None
    chat_arguments: Mapping[str, Any] = field(default_factory=dict)
    revision: str | None = None
    licence: str | None = None
    max_len_prompt: int | None = None
    max_len_choice: int | None = None
    positions: int | None = None
    classes: tuple[str, ...] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    stacksl: str = __version__

    @property
    def base(self) -> str:
        """What to load the base by: `name` where it is one of ours, which moves with us."""
        return self.name if self.name == "sample" else self.source

    @property
    def weights(self) -> Weights:
        """What identifies the base's weights."""
        return Weights(self.fingerprint, self.stamp)

    @property
    def limits(self) -> Limits:
        """How long token rows may be."""
        return Limits(self.max_len_prompt, self.max_len_choice, self.positions)

    def form(self, tokenizer: Any) -> PromptFormat:
        """How items are put to the model; `tokenizer` is the base's, for its chat form."""
        return copied(PromptFormat, self, chat=tokenizer if self.chat else None)


def model_arguments(about: About, folder: Path | str) -> dict[str, str | bool]:
    """What lm-eval's `--model_args` takes to score with the adapted model of `folder`."""
    found: dict[str, str | bool] = {"pretrained": about.source, "peft": str(folder)}
    if about.revision is not None:
        found["revision"] = about.revision
    found["dtype"] = unquantised(about.dtype)
    if about.chat:  # the chat template has written every special token
        found["add_bos_token"] = False
    return found
