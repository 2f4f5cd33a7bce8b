"""Report facts: the final model on the run's own items, growth, uses of labels and items.

All that the report says of items without an answer comes from one product of the model with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stacksl.core.blocks import Array
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import counted
from stacksl.models.evaluation import Tested
from stacksl.models.forecast import FEWEST, gain
from stacksl.models.own_items import class_totals, labeled_share, table_choices
from stacksl.report.quality import ClassTotal, Gain, Named, OwnItems
from stacksl.runs.finish.answers import table_answers
from stacksl.runs.finish.forecasting import Forecaster, known_of, options_of
from stacksl.runs.items.corpus import Corpus, Role
from stacksl.runs.loop.game import Game
from stacksl.runs.spec import RunSpec

WANTED = (0.8, 0.9, 0.95, 0.97, 0.99)  # accuracies
MORE = 100  # labels
CHUNK = 4096  # items whose probabilities are held at a time


def own_items(
    spec: RunSpec, game: Game, tested: Tested, policies: Callable[[Sequence[int]], list[Array]]
) -> OwnItems:
    """The final model on the items without an answer, judged by the audit or the test file.

    The audit takes precedence, since its items are like the run's own. Where a share of the table
    is promised, its looks say what is right in it. `policies` gives the probabilities of the items
    of given rows.
    """
    corpus, classes = game.corpus, game.corpus.items[0].candidates
    unanswered = np.isin(corpus.roles, [Role.POOL, Role.DUPLICATE, Role.REFERENCE])
    answers = table_answers(spec, game.ledger)
    answered_ids = {*game.ledger.bought(), *answers}  # the labels that are owned of texts, too
    unanswered[[corpus.row[item] for item in answered_ids]] = False
    rows = np.flatnonzero(unanswered)
    labels, probabilities = np.zeros(len(rows), np.int64), np.zeros(len(rows))  # of the likeliest
    for at in range(0, len(rows), CHUNK):
        span, batch = slice(at, at + CHUNK), policies(rows[at : at + CHUNK].tolist())
        labels[span] = [np.argmax(policy) for policy in batch]
        probabilities[span] = [np.max(policy) for policy in batch]
    judged = tested.audited or tested.evaluation
    none = np.zeros(0, dtype=np.int64)
    gold, predicted = (none, none) if judged is None else (judged.gold, judged.predicted)
    confidence = np.zeros(0) if judged is None else judged.confidence
    right = gold == predicted
    source = "" if judged is None else "audit" if tested.audited is not None else "test"
    totals: tuple[ClassTotal, ...] = ()
    choices: tuple[tuple[float, int], ...] = ()
    if all(item.candidates == classes for item in corpus.items):
        words = [word for word in map(counted, answers.values()) if isinstance(word, int)]
        human = np.array(words, dtype=np.int64)
        totals = class_totals(human, labels, gold, predicted, classes)
        promised = spec.settings.promised_share is not None
        if source == "audit" and len(rows) and not promised:
            learned = [row for row, _, _ in game.examples.bought]
            bought = np.array([np.max(policy) for policy in policies(learned)] if learned else [])
            of_all = len(human) + len(rows)
            choices = table_choices(confidence, right, probabilities, bought, of_all)
    return OwnItems(
        rest=len(rows),
        measured=len(gold),
        source=source,
        shares=tuple(labeled_share(confidence, right, probabilities, mark) for mark in WANTED),
        totals=totals,
        choices=choices,
    )


def more_labels(spec: RunSpec, game: Game) -> Gain:
    """What `MORE` labels are estimated to add, by the forecast from the training labels.

    The audit takes no part, as in the benchmark that measured how often the interval holds.
    """
    growth, labels = known_of(spec.settings, spec.dataset), len(game.examples.bought)
    if growth is None:
        return Gain(MORE, reason="growth was not measured for columns of labels or own options")
    level = Forecaster(spec, game).level(labels)
    if level is None:
        return Gain(MORE, reason=f"a forecast needs {FEWEST} labels chosen by the run")
    forecast = gain(growth, level, labels, MORE, options_of(spec))
    return Gain(MORE, forecast.value, forecast.low, forecast.high)


def uses(game: Game) -> dict[str, Any]:
    """What each training label was used for, by the fields of `report.facts.Budget`."""
    names = ("answered", "unlearned", "unnamed", "aside", "open")
    corpus, learned = game.corpus, {row for row, _, choice in game.examples.bought if choice >= 0}
    set_aside, counts = game.ledger.set_aside, dict.fromkeys(names, 0)
    counted: set[int] = set()
    for purchase in game.ledger.export():
        if purchase["purpose"] != "train" or purchase["state"] not in ("open", "answered"):
            continue
        row, is_aside = corpus.row[str(purchase["item"])], purchase["labeler"] in set_aside
        if purchase["state"] == "open":
            use = "open"
        elif purchase["kind"] != "label":
            repeated = row in learned or row in counted  # each item counts once as what trains
            use = "aside" if is_aside else "unlearned" if repeated else "unnamed"
            counted |= {row} if use == "unnamed" else set()
        elif row in learned and row not in counted and not is_aside:
            use = "answered"
            counted.add(row)
        else:
            use = "aside" if is_aside else "unlearned"
        counts[use] += 1
    counts["unlearned"] += game.ledger.accounts.asked - sum(counts.values())  # audited rows, again
    return counts


def roles(corpus: Corpus, ledger: Ledger) -> tuple[Named, ...]:
    """What the items are for; the counts add up to all items."""
    bought = np.zeros(len(corpus.items), dtype=np.bool_)
    bought[[corpus.row[item] for item in ledger.bought("train") if item in corpus.row]] = True
    free = corpus.roles == Role.POOL
    counts = {
        "asked for, to learn from": int((free & bought).sum()),
        "never asked for": int((free & ~bought).sum()),
        "of the audit": int((corpus.roles == Role.AUDIT).sum()),
        "reference rows for its interval": int((corpus.roles == Role.REFERENCE).sum()),
        "with a label owned before": int((corpus.roles == Role.OWNED).sum()),
        "with a text that has a label": int((corpus.roles == Role.DUPLICATE).sum()),
        "erased": int((corpus.roles == Role.ERASED).sum()),
    }
    return tuple(Named(name, str(n)) for name, n in counts.items() if n)
