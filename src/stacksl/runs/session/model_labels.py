"""Labels of a run from a model: on a server, with what they cost and the consent to send texts, in
this process, or read from a file or from a run that the model labeled.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property, partial
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from stacksl.core.blocks import SharedBlock
from stacksl.core.rng import generator
from stacksl.data import Dataset, strange
from stacksl.errors import DataError, SettingsError, StackslError
from stacksl.labelers.chat.calls import Calls
from stacksl.labelers.chat.endpoint import KEY, Endpoint, address, is_loopback
from stacksl.labelers.chat.labeler import ChatLabeler
from stacksl.labelers.chat.prompts import (
    DEFAULT,
    Questions,
    Rates,
    Shot,
    encoded,
    template_of,
)
from stacksl.labelers.protocol import Pending, Request, requests_of
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, Purchase
from stacksl.lm.loading import open_base
from stacksl.lm.model import LanguageModel
from stacksl.lm.settings import ModelChoices
from stacksl.models.metrics import wilson
from stacksl.report.wording import MICRO, money, plural
from stacksl.runs.items.corpus import Role
from stacksl.runs.items.reading import read_like
from stacksl.runs.loop.game import Examples
from stacksl.runs.session.language import choices_of
from stacksl.runs.settings.budget import micro_units
from stacksl.runs.settings.conflicts import LOCAL, OPENAI
from stacksl.runs.settings.fields import Settings
from stacksl.runs.settings.resolve import Resolved
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder
from stacksl.types import Item

TEMPLATE = "label_template_text"  # in the run's settings
CONSENT = "label_consent"
LOADED = "label_model"
CHECKED = "label_verdict"  # of its scoring path
JUDGED = "label_judged"  # by how many owned labels, once that ended
LEAST_KNOWN, MOST_KNOWN = 30, 100  # owned labels by which a model that answers is judged
NO_AUDIT = (
    "the labels are a model's: no audit by people measures them or what is learned from them;"
    " --test FILE with people's answers would"
)
CALLS_A_LABEL = 2  # that its price is reserved for: one may be lost


def with_model_labels(resolved: Resolved, items: Sequence[Item]) -> Resolved:
    """The settings of a run whose labels come from a model; others are unchanged.

    Such a run has no audit: its answers would measure agreement with the model alone. Where tokens
    have prices, the price of a label is what two of the dearest calls cost, unless it was given.

    Raises:
        SettingsError: the template cannot be used, or a label may cost more than its price.
    """
    settings = resolved.settings
    if settings.labeler_kind == LOCAL:
        return resolved.with_defaults({"audit": 0}, "labeler")
    if settings.labeler_kind != OPENAI:
        return resolved
    layer: dict[str, Any] = {"audit": 0}
    prompts = questions(settings)
    if settings.server.input_price is not None:
        dearest = _dearest(prompts, items, settings.server.shots)
        layer["price"] = f"{Decimal(CALLS_A_LABEL * dearest) / MICRO:f}"
        if settings.price is not None and micro_units(settings.price) < dearest:
            raise SettingsError(
                f"one call about the longest item may cost {money(dearest)}, above the price of a"
                f" label of {settings.price}: give a --price of at least {money(dearest)}"
            )
    return resolved.with_defaults(layer, "labeler")


def _dearest(prompts: Questions, items: Sequence[Item], count: int) -> int:
    """The most that one call about any of the items costs, with `count` examples of them."""
    shots = (Shot(i.id, i.prompt, max(i.candidates, key=_bytes)) for i in items)
    longest = sorted(shots, key=lambda shot: -_bytes(shot.prompt) - _bytes(shot.answer))
    return max(prompts.dearest(i.prompt, i.candidates, longest[:count]) for i in items)


def questions(settings: Settings, template: str | None = None) -> Questions:
    """How the model is asked; `template` goes before the file that the settings name.

    Raises:
        SettingsError: the template cannot be read or used.
    """
    text, server = template, settings.server
    if text is None and (path := server.label_template) is not None:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as fault:
            raise SettingsError(
                f"the label_template {path} should be a text in UTF-8, got"
                f" {getattr(fault, 'strerror', None) or 'other bytes'}: name another file"
            ) from None
    rates = Rates(Decimal(server.input_price or 0), Decimal(server.output_price or 0))
    model = settings.labeler.partition(":")[2]
    template = template_of(DEFAULT if text is None else text, server.shots)
    return Questions(model, template, settings.seed, rates, server.answer_tokens)


def expect_consent(spec: RunSpec) -> None:
    """Check that a new run may send texts, where its labels come from a model.

    Raises:
        SettingsError: it may not; the sentence names what would be sent where.
    """
    allowed = spec.settings.server.allow_send and spec.resolved.origin["server.allow_send"]
    if spec.settings.labeler_kind != OPENAI or allowed == "flag":
        return
    count = spec.sources.available
    contents = f"{consent(spec.settings)}, of up to {spec.budget.labels} of {count} items"
    if judging := len(_judging(spec)):
        contents += f" and of up to {judging} items whose labels you own, to check the model"
    raise SettingsError(
        f"this run would send {contents}: give --allow-send to let it (a config file cannot), or"
        " --dry-run to see one request"
    )


def consent(settings: Settings) -> str:
    """What is sent where: the fields, the model and the host."""
    model, url = settings.labeler.partition(":")[2], address(str(settings.server.url))
    plain = urlsplit(url).scheme == "http" and not is_loopback(url)
    fields = ", options and labeled examples" if settings.server.shots else " and options"
    return f"prompts{fields} to the model '{model}' at {url}{' (unencrypted)' if plain else ''}"


def shots_of(examples: Examples, count: int, item: str) -> list[Shot]:
    """`count` labeled items to show with an item, the nearest one last, or as many as there are.

    They are items whose labels train: owned, or bought; never those that measure. Where items have
    their own options, they are the last that were learned.
    """
    corpus, row = examples.corpus, examples.corpus.row[item]
    is_audit = corpus.roles == Role.AUDIT
    pairs = [(r, y) for r, y, _ in examples.bought if r != row and not is_audit[r]]
    if count and isinstance(examples.block, SharedBlock):
        h = examples.block.h
        similarity = np.asarray(h[np.array([r for r, _ in pairs], np.int64)]) @ np.asarray(h[row])
        pairs = [pairs[n] for n in np.argsort(similarity, kind="stable")]
    chosen_items = [(corpus.items[r], y) for r, y in pairs[max(0, len(pairs) - count) :]]
    return [Shot(example.id, example.prompt, example.candidates[y]) for example, y in chosen_items]


def expect_local(settings: Settings) -> None:
    """Check that the language model that answers is there.

    Raises:
        SettingsError, MissingExtra: it is not, or it cannot be loaded.
    """
    choices = _local_choices(settings, settings.labeler.partition(":")[2])
    base = open_base(choices.model, device=choices.device, dtype=choices.dtype)
    choices.form(base.tokenizer)


def _local_choices(settings: Settings, name: str, verdict: str = "") -> ModelChoices:
    """How the language model `name` answers: by the settings `lm`, unless another is adapted."""
    if settings.adapts:
        return ModelChoices(name, verdict=verdict)
    choices = choices_of(settings, {})
    return replace(choices, model=name, normalization="token_mean", verdict=verdict)


class LocalLabeler:
    """The labeler of a run whose labels come from a language model in this process.

    The option with the highest mean log-likelihood of its tokens is the answer; open questions are
    scored together. The model is loaded at the first one, from the folder or name recorded by the
    run.
    """

    repeatable = False

    def __init__(self, spec: RunSpec) -> None:
        self.name, self._spec = spec.settings.labeler, spec
        self.warnings, self._unfit = [NO_AUDIT] if spec.test is None else [], ""
        self._open: dict[tuple[str, int, int], Request] = {}
        name = self.name.partition(":")[2]
        spec.note({LOADED: str(Path(name).resolve()) if Path(name).is_dir() else name})

    @cached_property
    def _model(self) -> LanguageModel:
        recorded = self._spec.folder.resolved()
        verdict = str(recorded.get(CHECKED, ""))
        return LanguageModel(_local_choices(self._spec.settings, recorded[LOADED], verdict))

    def ask(self, requests: Sequence[Request]) -> None:
        """Note the requests; `answers` scores them."""
        self._open |= {(r.item, r.slot, r.token): r for r in requests}

    def answers(self) -> list[Answer]:
        """The model's answers to the open requests; none where it differs from owned labels.

        That is judged once, before the run's first answer.
        """
        if not self._open:
            return []
        if JUDGED not in self._spec.folder.resolved():
            self._unfit = disagreement(self._spec, self._answers_to) or ""
        if self._unfit:
            return []
        answers = self._answers_to(list(self._open.values()))
        self._open.clear()
        return answers

    def _answers_to(self, requests: Sequence[Request]) -> list[Answer]:
        items = [Item(request.item, request.prompt, request.candidates) for request in requests]
        scores = self._model.scores(items, "token_mean")
        self._spec.note({CHECKED: self._model.worker.verdict})
        pairs = zip(requests, map(np.argmax, scores), strict=True)
        return [request.answer(int(best), self.name, request.price) for request, best in pairs]

    def pending(self) -> list[Pending]:
        """The requests without an answer, where the model is of no use; else none."""
        return [Pending(self.name, len(self._open), self._unfit)] if self._unfit else []


def chat_labeler(
    spec: RunSpec, shots: Callable[[str], Sequence[Shot]], ledger: Ledger
) -> ChatLabeler:
    """The labeler of a run whose labels come from a model; records consent and template first.

    `shots` are the labeled examples to show with an item, by its id.

    Raises:
        SettingsError: the consent was for another host, model or field; or the key is unusable.
    """
    settings, recorded = spec.settings, spec.folder.resolved()
    agreed = recorded.get(CONSENT)
    if agreed is None:
        expect_consent(spec)
    elif agreed != consent(settings):
        raise SettingsError(
            f"this run would send {consent(settings)}, but what was allowed is to send {agreed}:"
            " start a new run with --allow-send"
        )
    prompts = questions(settings, recorded.get(TEMPLATE))
    spec.note({CONSENT: consent(settings), TEMPLATE: prompts.template})
    key = os.environ.get(KEY)
    endpoint = Endpoint(str(settings.server.url), key, settings.server.timeout)
    calls = Calls(spec.folder.database, key)
    check = None if JUDGED in recorded else partial(disagreement, spec)
    concurrency, batched = settings.server.concurrency, settings.server.batch_api
    words = (p.word for p in reversed(ledger.accounts.purchases.values()) if p.stage == "answered")
    labeler = ChatLabeler(endpoint, prompts, calls, concurrency, shots, check, batched=batched)
    labeler.unnamed = len([*takewhile(lambda word: word == "broken", words)])
    labeler.warnings += [NO_AUDIT] if spec.test is None else []
    return labeler


def disagreement(spec: RunSpec, ask: Callable[[Sequence[Request]], list[Answer]]) -> str | None:
    """Why a model's answers about owned items speak against it; empty where they do not.

    It is of no use where one class named for every item would be right more often, or a guess where
    items have their own options. Few items show nothing. That all were answered is noted in the
    run; where some were not it gives None, and is asked again. The function `ask` gives the model's
    answers, as far as there are any.
    """
    owned, items = spec.sources.owned, _judging(spec)
    purchases = [(Purchase(item.id, 0, 0, 0, "owned", 0), item) for item in items]
    answers = ask(requests_of(purchases)) if items else []
    if len(answers) < len(items):
        return None
    spec.note({JUDGED: len(answers)})
    if not answers:
        return ""
    correct = sum(owned[answer.item] == answer.index for answer in answers)
    upper_bound = wilson(correct, len(answers))[1]
    baseline, rule = max(Counter(owned.values()).values()) / len(owned), "one class for every item"
    if spec.dataset.classes is None:
        baseline, rule = sum(1 / len(item.candidates) for item in items) / len(items), "a guess"
    if upper_bound >= baseline:
        return ""
    return (
        f"it agrees with {correct} of {len(answers)} labels that you own (95% interval: at most"
        f" {upper_bound:.0%}), and {rule} would agree with {baseline:.0%}: `resume`"
        " continues anyway, or start a new run with another model, template or names of classes"
    )


def _judging(spec: RunSpec) -> list[Item]:
    """The owned items by which a model is judged, drawn; none where they are too few."""
    owned, erased = spec.sources.owned, spec.sources.erased
    numbered = enumerate(spec.dataset.items)
    items = [item for row, item in numbered if item.id in owned and row not in erased]
    if len(items) < LEAST_KNOWN:
        return []
    limit = LEAST_KNOWN if spec.settings.server.input_price else MOST_KNOWN  # labels pay for them
    positions = generator(spec.settings.seed, "known").permutation(len(items))[:limit]
    return [items[n] for n in positions]


def _bytes(text: str) -> int:
    """The bytes of a text as it is sent."""
    return len(encoded({"": text}))


# Labels that are read --------------------------------------------------------------------------


def load_model_labels(
    source: str, train: Dataset, settings: Settings, items: Sequence[Item]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The class that a model gave each of the `items`, −1 for none, by their prompts; warnings.

    The `source` is the folder of a run that the model labeled, or a file with the prompts and the
    model's labels, read as `train` was, which has classes.

    Raises:
        DataError: it cannot be read, its classes are others, or it labels none of the items.
    """
    path, warnings = Path(source), tuple[str, ...]()
    if os.path.isdir(path):  # False for too long a name
        labels = _bought(path, train)
    else:
        dataset = read_like(source, train, settings, "file of a model's labels")
        texts = {item.id: item.prompt for item in dataset.items}
        labels = {texts[item_id]: label for item_id, label in dataset.answers.items()}
        if unknown := dataset.unknown:
            warnings = (
                f"{plural(len(unknown), 'label')} in {path.name} left out as none of the"
                f" {len(train.classes or ())} classes: {strange(unknown, train.classes or ())}",
            )
    classes = tuple(labels.get(item.prompt, -1) for item in items)
    if max(classes, default=-1) < 0:
        kind = "model's run" if path.is_dir() else "file of a model's labels"
        raise DataError(
            f"the {kind} {path.name} should have prompts of the data with one of its classes each,"
            " got none: make it from the same file"
        )
    return classes, warnings


def _bought(path: Path, train: Dataset) -> dict[str, int]:
    """The class of each prompt whose label was bought in the run at `path` and trains its model.

    Owned labels, which the model may have been shown, are none of them.
    """
    run = f"the model's run {path.name}"
    try:
        spec = RunSpec.open(RunFolder.open(path))
        with Ledger.open(spec.folder.database, readonly=True) as ledger:
            labels = {item: ledger.label_of(item) for item in ledger.bought("train")}
    except StackslError as fault:
        raise DataError(f"in {run}: {fault}") from None
    names, classes = spec.dataset.classes, {name: n for n, name in enumerate(train.classes or ())}
    if names is None:
        raise DataError(f"{run} should have fixed classes, got options of each item's own")
    if unknown := [name for name in names if name not in classes]:
        raise DataError(
            f"{run} has the class '{unknown[0]}', which is none of the {len(classes)} of the data:"
            " give both runs the same classes"
        )
    if not any(label is not None for label in labels.values()):
        raise DataError(f"{run} has no label yet: `stacksl resume {path}` first")
    items = spec.sources.usable
    return {
        items[item].prompt: classes[names[label]]
        for item, label in labels.items()
        if label is not None and item in items
    }
