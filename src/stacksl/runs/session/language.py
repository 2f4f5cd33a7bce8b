"""The language model of a run, by its settings and its recorded facts, and its room in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from stacksl.errors import RunError, SettingsError
from stacksl.features import FeatureMap
from stacksl.lm.distributed import current_processes
from stacksl.lm.export.folder import read_provenance
from stacksl.lm.loading import Weights
from stacksl.lm.model import WEIGHTS, LanguageModel
from stacksl.lm.prompt.format import template
from stacksl.lm.settings import LoraSettings, ModelChoices, TrainSettings
from stacksl.runs.settings.fields import Settings
from stacksl.runs.spec import RunSpec
from stacksl.types import Item, copied

CHOOSE_BY = 25  # labels by which a normalization is chosen, as measured in docs/lm.md
MOST_CHOOSE = 512  # owned labels by which it is chosen, at most

COMPUTED = {
    "lm_device": "the device",
    "lm_dtype": "the dtype",
    "lm_path": "the scoring path",
    "lm_threads": "torch's threads at",
    "lm_processes": "the number of processes at",
}
"""Recorded facts that results depend on bit for bit, with their names in messages."""


def language_model(spec: RunSpec) -> LanguageModel:
    """The language model of a run, by its settings and its recorded facts.

    Where a normalization is to be chosen, owned labels choose it now, or labels that the run buys
    later (`LanguageTrainer`) if a pool has too few of them.
    """
    recorded = spec.folder.resolved()
    choices = choices_of(spec.settings, recorded)
    weights = Weights(str(recorded.get("lm_base", "")), str(recorded.get(WEIGHTS, "")))
    processes = current_processes()
    model = LanguageModel(choices, seed=spec.settings.seed, processes=processes, known=weights)
    if weights.fingerprint:
        model.expect_base(weights.fingerprint, f"the run {spec.folder.path} began with")
    owned = spec.sources.owned
    enough = len(owned) >= CHOOSE_BY or spec.settings.mode == "stream"
    if choices.normalization == "auto" and "lm_normalization" not in recorded and enough:
        labels = list(islice(owned.items(), MOST_CHOOSE))
        items = {item.id: item for item in spec.dataset.items}
        model.choose([items[name] for name, _ in labels], [label for _, label in labels])
    return model


def note_model(spec: RunSpec, model: FeatureMap) -> list[str]:
    """Record how a language model computes; a warning for each fact that has changed."""
    if not isinstance(model, LanguageModel):
        return []
    facts = model.facts()
    warnings = spec.changed(facts, COMPUTED)
    if (adapter := spec.settings.lm.adapter) is not None:
        base = model.worker.base
        with suppress(RunError):  # of another version, or no adapter of a run
            if (trained_on := read_provenance(Path(adapter)).fingerprint) != base.fingerprint:
                warnings.append(
                    f"the adapter {adapter} was trained on the weights {trained_on[:12]}, and"
                    f" {base.name} is {base.fingerprint[:12]}: give the base that it belongs to"
                    " with --model, unless you mean this one"
                )
    spec.note(facts, renewed=[WEIGHTS])  # the same bytes may have been written again
    return warnings


def expect_room(settings: Settings, items: Sequence[Item], test: Sequence[Item] = ()) -> None:
    """Hold the plan's memory against what is free on its device; no weight is read for it.

    Raises:
        SettingsError: on the CPU, it needs more than nine tenths of what is free (a warning on a
            GPU); the sentence says what to set, or the model cannot be had.
    """
    from stacksl.lm.loading import place_of
    from stacksl.lm.size import expect_fit, free_bytes

    processes, choices = current_processes(), choices_of(settings, {})
    device = processes.device if settings.lm.device != "cpu" else None
    target_device = place_of(device or settings.lm.device)
    free_memory = free_bytes(target_device)
    if target_device == "cpu":
        free_memory //= processes.size  # every process holds a whole model
    expect_fit(replace(choices, device=target_device), items, free_memory, test)


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
    for argument in text.split(",") if text else []:
        name, sign, value = map(str.strip, argument.partition("="))
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
