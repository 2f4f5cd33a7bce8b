"""What a run is to bring and to need: accuracy by labels; memory of a language model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stacksl.report.wording import MICRO, plural
from stacksl.runs.settings.budget import stop_rule
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder

if TYPE_CHECKING:
    from stacksl.models.forecast import Normal

LABELS = (100, 200, 500, 1000)
UNKNOWN = (
    "there is no forecast for language models, for items with options of their own and for a column"
    " of labels, since none was measured"
)
ALONE = "; it is the accuracy of the model alone, and a promise counts people's labels as well"


def forecast_of_data(spec: RunSpec) -> dict[str, Any]:
    """The forecast of a run that has not begun, of runs on public sets.

    Returns:
        As `Run.forecast`.
    """
    from stacksl.runs.finish.forecasting import known_of, options_of

    items, growth = spec.sources.pool.items, known_of(spec.settings, spec.sources.pool)
    available, options = spec.sources.available, options_of(spec)
    if growth is None or len(items) <= LABELS[0]:
        too_few = f"a forecast begins at {LABELS[0]} labels, got {plural(len(items), 'item')}"
        return _forecast(0, options, available, None, None, UNKNOWN if growth is None else too_few)
    price, held = None if spec.budget.money is None else spec.budget.price, len(spec.sources.owned)
    forecast = _forecast(held, options, available + held, price, growth.first, at=LABELS[0])
    forecast |= {"labels": 0, "now": None}  # none is learned yet
    basis = f"runs on {growth.sources} public sets, measured beforehand; no label of yours"
    forecast["rests_on"] = basis if spec.settings.promised_share is None else basis + ALONE
    return forecast


def forecast_of_run(folder: RunFolder) -> dict[str, Any]:
    """The forecast of a run, from what it noted when it last waited or ended."""
    from stacksl.models.forecast import Normal

    noted, table = folder.read_state().get("plan"), folder.resolved()
    if noted is None:
        reason = "the run has not waited or ended yet: ask again then"
        return _forecast(0, 0, 0, None, None, reason)
    level = None if noted["level"] is None else Normal(**noted["level"])
    forecastable = "lm.model" not in table and folder.classes() is not None
    forecastable &= Path(table.get("model_labels") or "/").is_absolute()  # else they are a column
    reason = "" if level else "too few labels have been learned yet" if forecastable else UNKNOWN
    price = int(table["price_micro"]) if "money_micro" in table else None
    size = noted["options"], noted["most"]
    forecast = _forecast(noted["labels"], *size, price, level, reason)
    right, none = noted["right"], noted["none"]
    if right is not None and level is not None:
        of_which = f"{noted['labels']:,} training labels, of which"
        if (bought := noted.get("chosen", noted["labels"])) < noted["labels"]:
            of_which += f" {bought:,} were bought; of these"
        forecast["rests_on"] = (
            f"{of_which} the model had {100 * right:.0f}% right"
            " before each was bought; they are harder than the rest, so this is carried over to all"
            " items by the model's own probabilities"
        )
        if stop_rule(table.get("stop_when"))[0] == "right":
            forecast["rests_on"] += ALONE
        if none and none >= 0.05 * noted["answers"]:
            forecast["rests_on"] += (
                f"; {none:,} of {noted['answers']:,} answers named none of the classes: such rows"
                " are left out of this accuracy, and an audit counts them as wrong"
            )
    return forecast


def _forecast(
    labels: int, options: int, most: int, price: int | None, level: Normal | None,
    reason: str = "", *, at: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The forecast where `labels` are learned, from a level `at` a number of them (as many).

    The level is the logit of the accuracy, None for a `reason`; `most` labels can be learned.
    """
    from stacksl.models.forecast import GROWTH, accuracy_at

    def estimated(count: int) -> dict[str, Any] | None:
        if level is None:
            return None
        estimate = accuracy_at(GROWTH, level, at or labels, count, options)
        return {"accuracy": estimate.value, "low": estimate.low, "high": estimate.high}

    rows = []
    for count in (n for n in LABELS if labels < n <= most):
        to_buy = count - labels
        cost = None if price is None else to_buy * price / MICRO
        if (estimate := estimated(count)) is not None:
            rows.append({"labels": count, "more": to_buy, "cost": cost, **estimate})
    present = estimated(labels) if labels else None
    return {"labels": labels, "rests_on": "", "now": present, "expected": rows, "reason": reason}


def size_of(spec: RunSpec) -> dict[str, Any] | None:
    """The memory of a run that adapts a language model; None of another run.

    It is computed without reading a weight.

    Raises:
        SettingsError, DataError, MissingExtra: there is no such model, or it cannot be used.
    """
    from stacksl.lm.loading import place_of
    from stacksl.lm.size import free_bytes, planned
    from stacksl.runs.session.language import choices_of
    from stacksl.runs.settings.budget import due_at

    if not spec.settings.adapts:
        return None
    labels = spec.budget.labels + len(spec.sources.owned)
    due = sorted({*due_at(spec.settings.lm.refit_at, labels), labels})  # the end has one
    choices = choices_of(spec.settings, {})
    free = free_bytes(place_of(choices.device))
    size, _ = planned(choices, spec.sources.pool.items, spec.test.items if spec.test else ())
    counts = {"labels": labels, "refits": len(due)}
    return {**asdict(size), **counts, "memory": size.memory, "free": free}
