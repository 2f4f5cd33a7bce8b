"""What a run's settings and items must be to each other, before anything is written."""

from __future__ import annotations

from typing import Any

from stacksl.core.gates.registry import GATES, require_ranking
from stacksl.data import Dataset
from stacksl.errors import SettingsError
from stacksl.models.audit import audit_size
from stacksl.runs.items.sources import Sources
from stacksl.runs.settings.budget import parse_until, time_limit
from stacksl.runs.settings.fields import Settings
from stacksl.runs.settings.resolve import Resolved
from stacksl.runs.spec import RunSpec

READING = (
    "owned", "classes", "bank", "k", "format", "prompt_column", "label_column", "id_column",
    "max_candidates", "strict",
)  # fmt: skip
"""Settings that say which files are read, and how."""


def source(settings: Settings, *, stdin: bool, file: bool) -> None:
    """Refuse settings that need items of another source.

    Raises:
        SettingsError: a bank without a file of questions, or rounds without standard input.
    """
    if settings.bank is not None and (stdin or not file):
        raise SettingsError("--bank needs the questions in a file: give its path as DATA")
    if settings.rounds is not None and not stdin:
        raise SettingsError("--rounds counts the items of standard input: leave it out of a file")


def taken(resolved: Resolved, spec: RunSpec) -> None:
    """Refuse flags that say how files are read, where the items of the run `spec` are taken.

    Raises:
        SettingsError: one differs from that run's.
    """
    now, before = resolved.settings, spec.settings
    for name in READING:
        if resolved.origin.get(name) == "flag" and getattr(now, name) != getattr(before, name):
            raise SettingsError(
                f"the items of the run {spec.folder.path} are taken as they were read, without"
                f" another {name}: leave that out, or name the file to read it again"
            )


def rows(settings: Settings, given: Any, sources: Sources) -> None:
    """Refuse an array of features that does not fit the settings or the items.

    Raises:
        SettingsError, FeatureError: it is missing, not wanted, of other items, or a test set has
            no features.
    """
    from stacksl.features.given import GIVEN, by_id

    if (given is None) == (settings.features == GIVEN):
        raise SettingsError("features 'given' are for Python: stacksl.run(..., features=X)")
    if given is None:
        return
    by_id([item.id for item in sources.pool.items], given)
    if sources.test is not None:
        raise SettingsError(
            "a test set has no features of its own here: leave test= out, and give them to"
            " Run.evaluate(items, answers, features=X)"
        )


def audit(settings: Settings, labels: int, tested: bool, rounds: int) -> int:
    """The labels of the audit, out of a budget of `labels` over `rounds` items.

    Raises:
        SettingsError: the audit leaves nothing to train on, or too little beside a model.
    """
    size = audit_size(labels, asked_for=settings.audit, tested=tested, items=rounds)
    return size


def until(settings: Settings, dataset: Dataset) -> None:
    """Refuse a rule of stopping that cannot be followed.

    Raises:
        SettingsError: it is no rule, there is no forecast for these items, or people answer.
    """
    if settings.until is None:
        return
    if time_limit(settings.until) is not None:
        if settings.labeler == "file":
            raise SettingsError(
                "until with a time is for the file's own answers or a model's, since a run of"
                " people waits between commands: give a budget"
            )
        return
    from stacksl.runs.finish.forecasting import known_of

    parse_until(settings.until)
    if known_of(settings, dataset) is None:
        raise SettingsError(
            "until needs a forecast, and there is one for files of classes alone: give a budget"
        )


def pool(settings: Settings, dataset: Dataset, labels: int) -> None:
    """Refuse what a pool cannot play, and what only a pool can.

    Raises:
        SettingsError: a gate without a ranking, `kl_on_skips` in a pool, or `min_per_class` in a
            stream or too large.
    """
    if settings.min_per_class and settings.mode != "pool":
        raise SettingsError(
            "min_per_class looks for rare classes among all items: give --mode pool with it"
        )
    if settings.min_per_class and settings.adapts:
        raise SettingsError(
            "min_per_class needs a linear model of fixed classes: leave it out, or leave --model"
            " and --adapt out"
        )
    most = labels // max(1, len(dataset.classes or ()))
    if settings.min_per_class > most:
        raise SettingsError(
            f"min_per_class must be at most {most}, the budget of {labels} labels over the"
            f" {len(dataset.classes or ())} classes, got {settings.min_per_class}"
        )
    if settings.mode == "pool":
        require_ranking(GATES[settings.gate]())
        if settings.kl_on_skips:
            raise SettingsError(
                "kl_on_skips learns from the rounds that a stream skips, and a pool has none: leave"
                " it out, or give --mode stream"
            )
    elif settings.adapts and settings.normalisation == "auto" and settings.owned is None:
        raise SettingsError(
            "the normalisation 'auto' is chosen by the first labels of a pool or by labels that you"
            " have, got a stream: give --mode pool, --owned FILE, or a normalisation"
        )


def said(settings: Settings, sources: Sources) -> tuple[int, ...]:
    """The class that a model gave each item, -1 for none; empty where no such labels are given.

    Raises:
        SettingsError: the run is of another kind.
        DataError: they cannot be read, or there are none of the items.
    """
    dataset = sources.pool
    if settings.model_labels is None:
        return ()
    from stacksl.features import make_features
    from stacksl.features.given import GIVEN
    from stacksl.runs.session.said import load_said

    ranked = dataset.classes is not None and settings.mode == "pool" and not settings.adapts
    named = settings.names and settings.refit and settings.features != GIVEN
    if not (
        ranked and named and make_features(settings.features, classes=dataset.classes).reads_text
    ):
        raise SettingsError(
            "model_labels needs a pool of texts with fixed classes, whose final model is fitted on"
            " labels and class names: give --mode pool and leave out --model, --no-names and"
            " features of your own, or leave out --model-labels"
        )
    found = load_said(settings.model_labels, dataset, settings, sources.dataset.items)
    return tuple(found.tolist())
