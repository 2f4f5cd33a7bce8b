"""The language model of a run, by its settings and its recorded facts."""

from __future__ import annotations

from stacksl.lm import LanguageModel
from stacksl.lm.distributed import current_processes
from stacksl.runs.settings.language import choices_of
from stacksl.runs.spec import RunSpec

COMPUTED = {
    "lm_device": "the device",
    "lm_dtype": "the dtype",
    "lm_path": "the scoring path",
    "lm_threads": "torch's threads at",
    "lm_processes": "the number of processes at",
}
"""Recorded facts that results depend on bit for bit, with their names in messages."""


def language_model(spec: RunSpec) -> LanguageModel:
    """The language model of a run, by its settings and its recorded facts."""
    recorded = spec.folder.resolved()
    choices = choices_of(spec.settings, recorded)
    return LanguageModel(choices, seed=spec.settings.seed, processes=current_processes())


def changed_facts(spec: RunSpec, model: LanguageModel) -> list[str]:
    """A warning for each fact of `model` that differs from the recorded one."""
    table = spec.folder.resolved()
    return [
        f"this run began with {what} {table[name]} and continues with {now}: its numbers may differ"
        " from an undisturbed run's"
        for name, now in model.facts().items()
        if (what := COMPUTED.get(name)) is not None and table.get(name, now) != now
    ]
