"""From the settings of a run to those of its language model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stacksl.errors import SettingsError
from stacksl.lm import LoraSettings, ModelChoices, TrainSettings
from stacksl.lm.prompt.format import template
from stacksl.runs.settings.fields import Settings
from stacksl.types import copied


def choices_of(settings: Settings, recorded: Mapping[str, Any]) -> ModelChoices:
    """What `settings` say of a language model; what a run `recorded` of itself goes before it.

    Raises:
        SettingsError: a template or a value that there is not.
    """
    lm, text = settings.lm, recorded.get("lm_template")
    targets = [name.strip() for name in (lm.lora_targets or "").split(",")]
    by_scores = settings.mode == "pool" and settings.gate.name in ("margin", "random")
    return copied(
        ModelChoices,
        lm,
        model=lm.model or "sample",
        template=template(lm.template, lm.answer_format) if text is None else str(text),
        chat_arguments=chat_arguments(lm.chat_arguments),
        pmi_context=recorded.get("lm_pmi_context", lm.pmi_context),
        normalization=recorded.get("lm_normalization", lm.normalization),
        dtype=str(recorded.get("lm_dtype", lm.dtype)),
        scoring=str(recorded.get("lm_path", lm.scoring)),
        lora=LoraSettings(
            rank=lm.lora_rank,
            alpha=lm.lora_alpha,
            dropout=lm.lora_dropout,
            targets=tuple(filter(None, targets)) or None,
            start=lm.adapter,
        ),
        threads=recorded.get("lm_threads"),
        verdict=str(recorded.get("lm_verdict", "")),
        state_dim=0 if by_scores else lm.state_dim,
        training=copied(
            TrainSettings,
            lm,
            **settings.update.model_dump(exclude={"kl_on_skips"}),
            normalization=TrainSettings().normalization,
            temperature=TrainSettings().temperature,
        ),
    )


def chat_arguments(text: str | None) -> dict[str, Any]:
    """What a chat template takes besides the turns, from NAME=VALUE with commas between.

    Raises:
        SettingsError: a part without a name or a value.

    >>> chat_arguments("enable_thinking=false, style=short")
    {'enable_thinking': False, 'style': 'short'}
    """
    arguments: dict[str, Any] = {}
    for part in (text or "").split(",") if text else []:
        name, sign, value = map(str.strip, part.partition("="))
        if not (name.isidentifier() and sign and value):
            raise SettingsError(
                "lm.chat_arguments should be NAME=VALUE with commas between, such as"
                f" enable_thinking=false, got '{text}'"
            )
        try:
            arguments[name] = json.loads(value)
        except ValueError:
            arguments[name] = value
    return arguments
