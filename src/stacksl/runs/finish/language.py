"""Report facts of the language model that a run adapted, from the run and the model."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from stacksl.ledger.queries import LedgerReader
from stacksl.lm import Cuts, LanguageModel, Tokenizing
from stacksl.lm.export.card import About
from stacksl.lm.quantised import numbers_of
from stacksl.lm.scoring.paths import load_torch
from stacksl.lm.training.adapters import REFERENCE
from stacksl.models.adapted import AdaptedModel
from stacksl.models.evaluation import Evaluation, Tested
from stacksl.report import language as f
from stacksl.report.quality import CurvePoint, Named
from stacksl.runs.finish.adapter import stream_epochs, training_of, uncovered
from stacksl.runs.loop.adapters import Refitted, history
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import TIMES
from stacksl.types import copied


def language_facts(
    spec: RunSpec,
    ledger: LedgerReader,
    model: LanguageModel,
    tested: Tested,
    state: Mapping[str, Any],
) -> f.LanguageModel:
    """The facts of the language `model` of a run; `tested` has the results of its test file."""
    about = AdaptedModel(model, spec.dataset.classes, spec.dataset.columns).about()
    adapter = model.worker.adapter
    trained = sum(int(p.numel()) for p in adapter.parameters())
    total = sum(
        numbers_of(weights)
        for name, weights in adapter.model.named_parameters()
        if f".{REFERENCE}." not in name  # the second adapter of `ema` and `previous`
    )
    return f.LanguageModel(
        base=_base(about, total - trained),
        trained=trained,
        scoring=copied(f.Scoring, about, temperature=float(about.temperature)),
        computed=_computed(spec, model, state),
        training=tuple(
            Named(k, _shown(v)) for k, v in training_of(model.choices, uncovered(model)).items()
        ),
        cuts=_cuts(spec, model, about),
        normalisations=_normalisations(about.normalisation, tested),
        refits=_refits(_history(spec, ledger), tested.curve),
        epochs=tuple(f.Epoch(**epoch) for epoch in stream_epochs(spec, ledger)),
    )


def _base(about: About, parameters: int) -> f.BaseModel:
    path = Path(about.source)
    name = path.name if path.is_absolute() else about.name
    return copied(f.BaseModel, about, name=name, parameters=parameters)


def _computed(spec: RunSpec, model: LanguageModel, state: Mapping[str, Any]) -> f.Computed:
    recorded = spec.folder.resolved()
    facts = model.facts()
    peak, on_device = _peak_memory(str(facts["lm_device"]))
    return f.Computed(
        device=str(facts["lm_device"]),
        dtype=str(facts["lm_dtype"]),
        path=str(recorded.get("lm_path", model.choices.path)),
        threads=int(facts["lm_threads"]),
        processes=int(facts["lm_processes"]),
        peak_memory=peak,
        on_device=on_device,
        seconds=_seconds(state),
    )


def _peak_memory(device: str) -> tuple[int, bool]:
    """Peak memory in bytes, and whether it is the GPU's."""
    if device.startswith("cuda"):
        return int(load_torch().cuda.max_memory_allocated(device)), True
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, False


def _seconds(state: Mapping[str, Any]) -> float | None:
    """From start to end; None after an interruption, since the pause is no part of the run."""
    if state.get("interruptions") or not state.get("finished"):
        return None
    begun, done = (datetime.strptime(str(state[k]), TIMES) for k in ("created", "finished"))
    return (done - begun).total_seconds()


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cuts(spec: RunSpec, model: LanguageModel, about: About) -> tuple[f.Cut, ...]:
    """Counted over all items, since a resumed run has read only a part of them."""
    tokenizer = model.worker.base.tokenizer
    form, tokenizing = about.form(tokenizer), Tokenizing(tokenizer, about.limits)
    named, found = {"items to label": spec.dataset, "test items": spec.test}, []
    for where, dataset in named.items():
        if dataset is not None:
            cuts = Cuts.of(tokenizing.items([form.render(item) for item in dataset.items]))
            found.append(f.Cut(where, cuts.items, cuts.prompts, cuts.options, cuts.lost))
    return tuple(found)


def _normalisations(own: str, tested: Tested) -> tuple[f.NormalisationRow, ...]:
    def numbers(found: Evaluation) -> tuple[float, float, float, float]:
        return found.accuracy, *found.interval, found.macro_f1

    return tuple(
        f.NormalisationRow(name, name == own, *numbers(after), *numbers(tested.before[name]))
        for name, after in tested.by_normalisation.items()
    )


def _history(spec: RunSpec, ledger: LedgerReader) -> list[Refitted]:
    """The refits that the ledger names, as their records have them."""
    refits = (row for row in ledger.rows() if row.event == "refit")
    count = max((int(row.payload.get("adapter", 0)) for row in refits), default=0)
    return history(spec.folder.adapters, count)


REPORTED = (
    "examples", "steps", "clipped", "kl_weight", "seconds", "tokens",
    "loss", "loss_clipped", "largest", "largest_clipped", "kl",
)  # fmt: skip


def _refits(history: list[Refitted], curve: tuple[CurvePoint, ...]) -> tuple[f.AdapterRefit, ...]:
    """`curve` begins with the base model, then has a point a refit; it is empty without a test."""
    found = []
    for number, each in enumerate(history, start=1):
        values: dict[str, Any] = {name: each.trained.get(name) for name in REPORTED}
        if curve:
            point = curve[number]
            values |= {"accuracy": point.accuracy, "low": point.low, "high": point.high}
        found.append(f.AdapterRefit(each.number, each.labels, **values))
    return tuple(found)
