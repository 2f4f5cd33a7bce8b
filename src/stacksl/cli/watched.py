"""What `stacksl evaluate` says of rows without answers, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stacksl.cli.printing import facts, share, visible
from stacksl.report.wording import count, excerpt, percent, plural

LENGTH = 100  # characters of an example


def watched(result: Mapping[str, Any]) -> str:
    """The result of `Run.watch` for people."""
    return "\n".join(map(visible, _lines(result)))


def fell(stated: Mapping[str, Any] | None) -> str | None:
    """Whether the accuracy of new rows is below that of the audit."""
    if stated is None:
        return None
    right = stated["correct"] / stated["n"]
    fallen = "lower" if stated["p"] <= 0.05 else "not lower beyond chance"
    about = f"{count(stated['correct'])} of {plural(stated['n'], 'row')} ({share(right)})"
    return f"{about}; the new accuracy is {fallen} (one-sided p = {stated['p']:.3f})"


def audited(result: Mapping[str, Any]) -> str:
    """The result of `Run.audited_since` for people."""
    low, high = result["interval"]
    right = f"{count(result['correct'])} of {plural(result['n'], 'row')}"
    return facts(
        [
            ("Right in the new audit", f"{right} (95% interval {low:.3f} to {high:.3f})"),
            ("Right in the first audit", fell(result["stated"])),
        ]
    )


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    rows = plural(found["n"], "row")
    yield f"The file has no answers, so no accuracy is measured; {rows} beside those of the run:"
    yield _verdict(found)
    if found["repeated"]:
        yield f"{plural(found['repeated'], 'row')} of them have a text that the run has already."
    if found["verdict"] == "too few rows":
        return
    if found["confidence"] is not None:
        before, now = map(percent, found["confidence"])
        yield (
            f"The model's mean probability of its answers is {now}, and {before} on the"
            f" {count(found['held_out'])} rows held out."
        )
    if found["held_out"] < 50:
        yield (
            f"The model's answers are not compared: that takes 50 rows held out at random before"
            f" the first purchase, and this run has {count(found['held_out'])}. A run has them"
            " where it has an audit of 50 labels, or an audit and 2,000 items."
        )
    elif found["confidence"] is None:
        yield (
            "The model's confidence is not compared: its features were fitted on the run's own rows"
            " (hashing); sentence features are not."
        )
    for each in found["classes"] or ():
        grew = "grew" if each["now"] > each["before"] else "shrank"
        yield (
            f"{each['name']} {grew} from {percent(each['before'])} to {percent(each['now'])}"
            f" (95% interval {percent(each['low'])} to {percent(each['high'])})."
        )
    if found["classes"] == []:
        yield "No class grew or shrank beyond chance."
    if found["unlike"]:
        yield f"{plural(found['unlike'], 'row')} of these are where the run has few:"
    else:
        yield "No group of rows is where the run has few."
    for group in found["groups"]:
        part = percent(group["said_of"] / group["rows"], 0)
        yield (
            f"  {plural(group['rows'], 'row')} about {group['name']}; the model says"
            f" {group['said']} of {part}, such as:"
        )
        for example in group["examples"]:
            yield f"    {example['id']}: {excerpt(example['text'], LENGTH)}"
    if found["stated"] is not None:
        chances = (
            f"{percent(each['probability'], 0)} with {count(each['n'])} of them"
            for each in found["stated"]["found"]
        )
        yield (
            f"In the run's audit {count(found['stated']['correct'])} of"
            f" {plural(found['stated']['n'], 'row')} were right. An audit of new rows finds a fall"
            f" of ten points in {', and in '.join(chances)}:"
        )
        yield f"  stacksl predict {found['run']} FILE --out labelled.csv"
        how = "--model-labels label --audit 60 --annotators NAMES --out NEW"
        yield f"  stacksl run labelled.csv {how}"
        yield f"  stacksl evaluate {found['run']} NEW"


def _verdict(found: Mapping[str, Any]) -> str:
    if found["verdict"] == "too few rows":
        return "These are too few rows to compare: it takes 50 new ones, and 50 of the run."
    if found["verdict"] == "alike" and (found["classes"] or found["groups"]):
        return (
            "No bet tells the new rows from the run's so far. What follows was found at this one"
            " look, and can be chance."
        )
    if found["verdict"] == "alike":
        return (
            "The new rows are like the run's: nothing tells them apart. A change of few rows, or of"
            " answers alone, can still be there; an audit of new rows finds that."
        )
    return (
        f"The new rows differ from the run's, which the first {count(found['told_after'])} of them"
        " show. Where rows are alike, this is said in 5% of cases at most, however often you look."
    )
