"""The sentences and named values of a run that adapts a language model, for page and model card."""

from __future__ import annotations

from stacksl.report.facts import Facts
from stacksl.report.language import LanguageModel, Scoring
from stacksl.report.quality import CurvePoint, Named
from stacksl.report.wording import count, duration, memory, number, percent, plural

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
    named = model.base.license
    if named is None:
        return (
            f"The base model {model.base.name} names no license in its folder: find out its"
            " license, which also holds for the adapted model."
        )
    return (
        f"The license of the base model {model.base.name} is {named}; it also holds for the"
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
    moved = f"added {points:.1f} points" if points >= 0 else f"took {-points:.1f} points away"
    learned = facts.curve[-1].labels
    start = f"Without a label the base model answers {percent(base.accuracy)} correctly"
    return f"{start}; {plural(learned, 'label')} {moved}." if learned else f"{start}."


def model_rows(model: LanguageModel) -> tuple[Named, ...]:
    """The base, the adapter, how items are presented to it and on what it was computed."""
    base, computed = model.base, model.computed
    rows = (
        ("Base model", base.name),
        ("Read from", base.source),
        ("Revision", base.revision or "none recorded"),
        ("License", base.license or "not stated"),
        ("Parameters", count(base.parameters)),
        ("Trained by a refit", f"{count(model.trained)} (a LoRA adapter)"),
        *scoring_rows(model.scoring).items(),
        ("Device and dtype", f"{computed.device}, {computed.dtype}"),
        ("Scoring path", computed.path),
        ("Processes and threads", f"{count(computed.processes)}, {count(computed.threads)} each"),
    )
    return tuple(Named(name, value) for name, value in rows)


def scoring_rows(scoring: Scoring) -> dict[str, str]:
    """How items are presented to a model, and how their likelihoods become scores."""
    prompt, option, positions = scoring.max_len_prompt, scoring.max_len_choice, scoring.positions
    return {
        "Answer format": scoring.answer_format,
        "Chat form": "the base tokenizer's" if scoring.chat else "none",
        "Normalization": scoring.normalization,
        "Premise of pmi": scoring.pmi_context,
        "Temperature": number(scoring.temperature, 4),
        "Tokens of a prompt, at most": count(prompt) if prompt else "as many as the model takes",
        "Tokens of an option, at most": count(option) if option else "no limit",
        "Positions of the model": count(positions) if positions else "not stated",
    }


def effort_rows(model: LanguageModel) -> tuple[Named, ...]:
    """The memory and the time that a language model took."""
    computed = model.computed
    where = "of tensors on the GPU" if computed.on_device else "of the process"
    training = sum(refit.seconds for refit in model.refits)
    rows = [
        Named(f"Peak memory {where}", memory(computed.peak_memory)),
        Named("Training, all refits", duration(training)),
    ]
    if computed.seconds is not None:
        rows.append(Named("The run, start to end", duration(computed.seconds)))
    return tuple(rows)
