"""The sentences of a run that adapts a language model, for page and model card."""

from __future__ import annotations

from stacksl.report.facts import Facts, LanguageModel
from stacksl.report.quality import CurvePoint
from stacksl.report.wording import percent, plural

STEERED = (
    "While labels were bought, a head on the model’s own states, updated after every label, added "
    "to the model’s scores; it steered the purchases and is not part of the model."
)
RANKED = (
    "Items were ranked by the model’s own scores: the base’s until a refit, then the last refit’s."
)
DRAWN = (
    " Before that, labels that choose how its scores are made were drawn at random, if too few"
    " were owned."
)


def steered(facts: Facts) -> str:
    """What decided the purchases; empty where they were drawn."""
    if facts.method.mode == "stream":
        return STEERED
    if facts.method.gate == "random":
        return ""
    chosen = any((row.name, row.value) == ("lm.normalization", "auto") for row in facts.settings)
    return RANKED + DRAWN * chosen


def license(model: LanguageModel) -> str:
    """The license of the base model, or that it is not known."""
    if model.license is None:
        return (
            f"The base model {model.base} names no license in its folder: find out its license,"
            " which also holds for the adapted model."
        )
    return (
        f"The license of the base model {model.base} is {model.license}; it also holds for the"
        " adapted model."
    )


def base_of(facts: Facts) -> CurvePoint | None:
    """The accuracy of a language model without a label on the test file."""
    return facts.curve[0] if facts.language and facts.curve else None


def change_of_base(facts: Facts) -> str:
    """What all labels together added to the base model's accuracy; empty where that is unknown."""
    base = base_of(facts)
    if base is None:
        return ""
    points = 100 * (facts.curve[-1].accuracy - base.accuracy)
    change = f"added {points:.1f} points" if points >= 0 else f"took {-points:.1f} points away"
    learned = facts.curve[-1].labels
    start = f"Without a label the base model answers {percent(base.accuracy)} correctly"
    return f"{start}; {plural(learned, 'label')} {change}." if learned else f"{start}."
