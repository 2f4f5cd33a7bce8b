"""How many labels are needed: what a file or a run lets one expect, as `stacksl plan` prints it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from stacksl.api.planning import prepare
from stacksl.api.stored import Run
from stacksl.errors import DataError
from stacksl.labelers.oracle import OracleLabeler
from stacksl.report.wording import MICRO
from stacksl.runs.settings.budget import parse_prices
from stacksl.runs.settings.resolve import Resolved
from stacksl.runs.spec import RunSpec

if TYPE_CHECKING:
    from stacksl.models.forecast import Growth, Normal

LABELS = (100, 200, 500, 1000)
UNKNOWN = (
    "nothing is forecast for language models and for items with options of their own: no scenario"
    " of them was measured"
)


def plan(source: str | Path | None = None, settings: Resolved | None = None) -> dict[str, Any]:
    """The accuracy to expect at 100, 200, 500 and 1,000 training labels, with 90 % intervals.

    Args:
        source: a file of items, or the folder of a run; None for the built-in sample.
        settings: features, price and how the file is read; a run has its own.

    Returns:
        `labels` learnt so far, `rests_on` (a sentence), `expected` (a row each: `labels`, `more`
        to buy, `cost` of these in money, `accuracy`, `low`, `high`), `now` (the accuracy now), None
        where unknown, and `reason` where nothing can be estimated.

    Raises:
        StackslError: one sentence on what is wrong.
    """
    if source is not None and Path(source).is_dir():
        return _of_run(Run.open(source).folder)
    return _of_data(source, settings)


def _of_data(source: str | Path | None, settings: Resolved | None) -> dict[str, Any]:
    """Before a label is bought: from scenarios alone."""
    from stacksl.core.blocks import SharedBlock
    from stacksl.features import make_features
    from stacksl.models.forecast import LOOKED_AT, agreement, before, scenarios
    from stacksl.runs.finish.forecasting import known_of, options_of
    from stacksl.runs.loop.class_names import name_rows, name_texts

    spec = prepare(source, settings=settings, labeler=OracleLabeler({}, {})).spec
    data = spec.sources.pool
    known = known_of(spec.settings, data)
    if known is None:
        return _table(spec, 0, None, None, UNKNOWN)
    if len(data.items) <= LABELS[0]:
        raise DataError(
            f"a forecast begins at {LABELS[0]} labels, got {len(data.items)} items: with so few,"
            " label them all"
        )
    agreed = None
    classes = spec.sources.classes
    if classes is not None and spec.settings.names:
        made = make_features(spec.settings.features, classes=data.classes)
        some = data.items[:: -(-len(data.items) // LOOKED_AT)]
        made.fit(some)
        block = made.transform(some)
        if made.reads_text and isinstance(block, SharedBlock):
            texts = name_texts(classes.names, classes.descriptions)
            named = name_rows(made, texts, examples=classes.examples)
            agreed = agreement(block.h, named)
    found = _table(spec, 0, known, before(known, options_of(spec), agreed))
    sets = len({each.source for each in scenarios()})
    found["rests_on"] = f"runs on {sets} public sets, measured beforehand; no label of yours"
    if agreed is not None:
        share = f"{100 * agreed:.0f}% of the items"
        found["rests_on"] += f"; class names and neighbours agree on {share}"
    return found


def _of_run(folder: Any) -> dict[str, Any]:
    """During and after a run: from what it noted when it last waited or ended."""
    from stacksl.models.forecast import Normal
    from stacksl.runs.finish.forecasting import known_of

    spec, noted = RunSpec.open(folder), folder.read_state().get("plan")
    if noted is None:
        reason = "the run has not waited or ended yet: ask again then"
        return _table(spec, 0, None, None, reason)
    level = None if noted["level"] is None else Normal(**noted["level"])
    known = known_of(spec.settings, spec.dataset)
    reason = "" if level else UNKNOWN if known is None else "too few labels are learnt yet"
    found = _table(spec, noted["labels"], known, level, reason)
    right = noted["right"]
    if right is not None and level is not None:
        found["rests_on"] = (
            f"{noted['labels']:,} training labels, of which the model had {100 * right:.0f}% right"
            " before each was bought; they are harder than the rest, so this is carried over to all"
            " items by the model's own probabilities"
        )
    return found


def _table(
    spec: RunSpec, labels: int, known: Growth | None, level: Normal | None, reason: str = ""
) -> dict[str, Any]:
    """The forecast from a level at `labels`; before the first, the level is that at 100."""
    from stacksl.models.forecast import ahead
    from stacksl.runs.finish.forecasting import options_of

    price = None if spec.settings.price is None else parse_prices(spec.settings.price).most
    rows: list[dict[str, Any]] = []
    now = None
    if known is not None and level is not None:
        options, at = options_of(spec), labels or LABELS[0]
        most = len(spec.dataset.items) - len(spec.sources.aside)
        for wanted in LABELS:
            if labels < wanted <= most:
                found = ahead(known, level, at, wanted, options)
                cost = None if price is None else (wanted - labels) * price / MICRO
                row = {"labels": wanted, "more": wanted - labels, "cost": cost}
                rows.append({**row, "accuracy": found.value, "low": found.low, "high": found.high})
        if labels:
            found = ahead(known, level, at, at, options)
            now = {"accuracy": found.value, "low": found.low, "high": found.high}
    return {
        "labels": labels,
        "rests_on": "",
        "now": now,
        "expected": rows,
        "reason": reason,
    }
