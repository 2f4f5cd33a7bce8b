"""The rows of a comparison as tables and sentences."""

from __future__ import annotations

from collections.abc import Sequence

from stacksl_lab.study.rows import Row, half_width
from stacksl_lab.study.tables import estimate, table

COMPARISON = "compare"
"""The name of the study, in its rows."""

TITLES = {
    "plain": "Final model: logistic regression on the labels",
    "product": "Final model: that of `stacksl run`",
}


def layout(rows: Sequence[Row]) -> str:
    """For each final model: accuracies, labels to reach shares of the full one, what to choose."""
    models = list(dict.fromkeys(str(row.settings["model"]) for row in rows))
    return "\n\n".join(_of_model([r for r in rows if r.settings["model"] == m], m) for m in models)


def _of_model(rows: Sequence[Row], model: str) -> str:
    by_metric = {
        (row.row, row.metric, row.settings.get("labels", row.settings.get("share"))): row
        for row in rows
        if row.metric != "recommended"
    }
    chosen = [row for row in rows if row.metric == "recommended"]
    budgets = [row.settings["labels"] for row in chosen]
    shares = list(dict.fromkeys(r.settings["share"] for r in rows if r.metric == "labels_to"))
    full = next(r for r in rows if r.row == "all labels")
    names = list(dict.fromkeys(row.row for row in rows if row.metric == "seconds"))
    accuracies, costs = [], []
    for name in names:
        cells = [name]
        for labels in budgets:
            gain = by_metric.get((name, "gain", labels))
            accuracy = by_metric[name, "accuracy", labels]
            aside = "" if gain is None else f" ({estimate(gain, '+.3f', '.3f')})"
            plain = f"{accuracy.value:.3f}" if aside else estimate(accuracy, ".3f")
            cells.append(plain + aside)
        accuracies.append(cells)
        to = [_bounded(by_metric[name, "labels_to", share], ".0f") for share in shares]
        saved = [_bounded(by_metric.get((name, "saved", labels)), "z.0%") for labels in budgets]
        costs.append([name, *to, *saved, f"{by_metric[name, 'seconds', None].value:.1f}"])
    head = [f"{labels:,} labels" for labels in budgets]
    first = f"{TITLES[model]}; {estimate(full, '.3f')} with all {full.settings['labels']:,} labels"
    reach = [f"labels to {share:.0%}" for share in shares]
    saving = [f"saved at {labels:,}" for labels in budgets]
    return "\n\n".join(
        [
            table(["strategy (gain over random)", *head], accuracies, first),
            table(["strategy", *reach, *saving, "CPU s"], costs),
            " ".join(_advice(row) for row in chosen),
        ]
    )


def _bounded(row: Row | None, digits: str) -> str:
    """A value with its interval, or the end of the measured range that it is outside of."""
    if row is None:
        return ""
    for side, sign in (("above", ">"), ("below", "<")):
        if side in row.settings:
            return f"{sign} {row.settings[side]:{digits}}"
    return estimate(row, digits)


def _advice(row: Row) -> str:
    """What to choose at a budget."""
    labels = f"{row.settings['labels']:,} labels"
    if row.row == "random":
        return f"At {labels}: random; no gain over it is above zero beyond chance."
    half = half_width(row)
    width = "" if half is None else f" ± {half:.3f}"
    return f"At {labels}: {row.row}, {row.value:+.3f}{width} over random."
