"""Sentences and named values on an adapted language model, for page and card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacksl.report.codec import Named
from stacksl.report.wording import count, number, percent, plural

if TYPE_CHECKING:
    from stacksl.report.facts import Facts
    from stacksl.report.language import AdapterRefit, Cut, Epoch, LanguageModel, NormalisationRow


STEERED = (
    "While labels were bought, a head on the model’s own states, learnt after every label, added "
    "to the model’s scores; it steered the purchases and is not part of the model."
)
RANKED = (
    "Items were ranked by the model’s own scores: the base’s until a refit, then the last refit’s."
)
DRAWN = (
    " Before that, labels that choose how its scores are made were drawn at random, if too few"
    " were owned."
)
PROMISE = (
    "Each refit moves the model and with it the features, so scores begin anew with each epoch "
    "and are never summed across epochs. They are calibrated, not valid: they say how contested "
    "an answer was for the model of that epoch, and bound nothing."
)


def steered(facts: Facts) -> str:
    """What decided the purchases; empty where they were drawn."""
    if facts.method.mode == "stream":
        return STEERED
    if facts.method.gate == "random":
        return ""
    chosen = any((row.name, row.value) == ("normalisation", "auto") for row in facts.settings)
    return RANKED + DRAWN * chosen


def duration(seconds: float | None) -> str:
    """A time, in the unit that reads best; a dash where there is none.

    >>> duration(0.0421), duration(7.25), duration(754), duration(9000), duration(None)
    ('0.0421 s', '7.25 s', '12 min 34 s', '2 h 30 min', '–')
    """
    if seconds is None or seconds < 60:
        return "–" if seconds is None else f"{number(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, left = divmod(minutes, 60)
    return f"{count(hours)} h {left} min" if hours else f"{minutes} min {rest} s"


def memory(size: int) -> str:
    """A number of bytes in MiB, or in GiB from one on.

    >>> memory(599_650_304), memory(9_000_000_000)
    ('572 MiB', '8.38 GiB')
    """
    return f"{number(size / 2**30)} GiB" if size >= 2**30 else f"{number(size / 2**20)} MiB"


def licence(model: LanguageModel) -> str:
    """The licence of the base model, or that it is not known."""
    named = model.base.licence
    if named is None:
        return (
            f"The base model {model.base.name} names no licence in its folder; find out what holds"
            " for it, since the same holds for what is made from it."
        )
    return (
        f"The licence of the base model {model.base.name} is {named}; it holds for what is made"
        " from it, too."
    )


def base_of(facts: Facts) -> NormalisationRow | None:
    """The test results by the run's own normalisation, the base's beside the final model's."""
    rows = facts.language.normalisations if facts.language else ()
    return next((row for row in rows if row.own), None)


def change(facts: Facts) -> str:
    """What all labels together added to the base model's accuracy; empty where that is unknown."""
    row = base_of(facts)
    if row is None:
        return ""
    points = 100 * (row.accuracy - row.base_accuracy)
    moved = f"added {points:.1f} points" if points >= 0 else f"took {-points:.1f} points away"
    learnt = facts.language.refits[-1].labels if facts.language and facts.language.refits else 0
    start = f"Without a label the base model answers {percent(row.base_accuracy)} correctly"
    return f"{start}; {plural(learnt, 'label')} {moved}." if learnt else f"{start}."


def model_rows(model: LanguageModel) -> tuple[Named, ...]:
    """The base, the adapter, how items are presented to it and on what it was computed."""
    base, scoring, computed = model.base, model.scoring, model.computed
    limits = (
        _limit(scoring.max_len_prompt, "a prompt", "as many as the model takes"),
        _limit(scoring.max_len_choice, "an option", "no limit"),
    )
    rows = (
        ("Base model", base.name),
        ("Read from", base.source),
        ("Revision", base.revision or "none recorded"),
        ("Licence", base.licence or "not stated"),
        ("Parameters", count(base.parameters)),
        ("Trained by a refit", f"{count(model.trained)} (a LoRA adapter)"),
        ("Protocol", scoring.protocol),
        ("Chat form", "the base tokenizer's" if scoring.chat else "none"),
        ("Normalisation", scoring.normalisation),
        ("Premise of pmi", scoring.pmi_context),
        ("Temperature", number(scoring.temperature, 4)),
        *limits,
        ("Positions of the model", count(scoring.positions) if scoring.positions else "not stated"),
        *((f"Cut of the {cut.where}", _cut(cut)) for cut in model.cuts),
        ("Device and dtype", f"{computed.device}, {computed.dtype}"),
        ("Scoring path", computed.path),
        ("Processes and threads", f"{count(computed.processes)}, {count(computed.threads)} each"),
    )
    return tuple(Named(name, value) for name, value in rows)


def _limit(tokens: int | None, of: str, none: str) -> tuple[str, str]:
    return f"Tokens of {of}, at most", count(tokens) if tokens else none


def _cut(cut: Cut) -> str:
    lost = f", {count(cut.lost)} without a candidate's text" if cut.lost else ""
    if not (cut.prompts or cut.options):
        return f"nothing, of {plural(cut.items, 'item')}{lost}"
    return (
        f"{plural(cut.prompts, 'prompt')} lost their start, {plural(cut.options, 'option')} their"
        f" end, of {plural(cut.items, 'item')}{lost}"
    )


def cost_rows(facts: Facts) -> tuple[Named, ...]:
    """Memory and time; nothing for a run without a language model."""
    model = facts.language
    if model is None:
        return ()
    computed, learnt = model.computed, facts.budget.answered
    training = sum(refit.seconds for refit in model.refits)
    where = "of tensors on the GPU" if computed.on_device else "of the process"
    rows = [
        (f"Peak memory {where}", memory(computed.peak_memory)),
        ("Training, all refits", duration(training)),
        ("Training, a label bought", duration(training / learnt if learnt else None)),
    ]
    if computed.seconds is not None:
        each = duration(computed.seconds / learnt if learnt else None)
        rows += [
            ("The run, start to end", duration(computed.seconds)),
            ("The run, a label bought", each),
        ]
    return tuple(Named(name, value) for name, value in rows)


def per_label(refit: AdapterRefit) -> str:
    """How long a refit took for each label that it learnt from."""
    return duration(refit.seconds / refit.labels if refit.labels else None)


def normalisation_words(row: NormalisationRow) -> str:
    """One normalisation's result as a line: the final model, then the base."""
    return (
        f"{_measured(row.accuracy, row.low, row.high)}, macro F1 {percent(row.macro_f1)}; base "
        f"{_measured(row.base_accuracy, row.base_low, row.base_high)}, "
        f"macro F1 {percent(row.base_macro_f1)}"
    )


def _measured(accuracy: float, low: float, high: float) -> str:
    return f"{percent(accuracy)} ({percent(low)} to {percent(high)})"


def refit_words(refit: AdapterRefit) -> str:
    """One refit as a line."""
    tested = "" if refit.accuracy is None else f"test accuracy {percent(refit.accuracy)}; "
    return (
        f"{tested}loss {number(refit.loss)}, KL {number(refit.kl)}, {percent(refit.clipped)} "
        f"clipped; {duration(refit.seconds)}, {per_label(refit)} a label"
    )


def epoch_words(epoch: Epoch) -> str:
    """One epoch's certificates as a line."""
    seen = f"{plural(epoch.rounds, 'round')}, {count(epoch.asked)} asked"
    if epoch.gate_score is None:
        return seen
    score, asked = number(epoch.gate_score, 4), number(epoch.gate_score_asked, 4)
    return f"{seen}; gate score {score}, {asked} of it on asked ones"
