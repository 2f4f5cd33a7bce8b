"""What `stacksl evaluate` says of rows without answers, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stacksl.cli.printing import share, visible
from stacksl.report.wording import count, excerpt, percent, plural

LENGTH = 100  # characters of an example


def watched(result: Mapping[str, Any]) -> str:
    """The result of `Run.watch` for people."""
    return "\n".join(map(visible, _lines(result)))


def fell(stated: Mapping[str, Any] | None) -> str | None:
    """Whether the accuracy of new rows is below that of the audit."""
    if stated is None:
        return None
    fallen = "lower" if stated["p"] <= 0.05 else "not lower beyond chance"
    right = f"{count(stated['correct'])} of {plural(stated['n'], 'row')}"
    part = share(stated["correct"] / stated["n"])
    return f"{right} ({part}); the new accuracy is {fallen} (one-sided p = {stated['p']:.3f})"


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    rows, held = plural(found["n"], "row"), count(found["held_out"])
    yield f"The file has no answers, so no accuracy is measured; {rows} beside those of the run:"
    yield _verdict(found)
    if found["verdict"] == "too few rows":
        return
    if found["held_out"] < 50:
        yield (
            f"The model's answers are not compared: that takes 50 rows held out at random before"
            f" the first purchase, and this run has {held}. A run has them where it has an audit of"
            " 50 labels, or an audit and 2,000 items."
        )
    elif found["confidence"] is None:
        yield (
            "The model's confidence is not compared: its features were fitted on the run's own rows"
            " (hashing); sentence features are not."
        )
    else:
        before, now = map(percent, found["confidence"])
        yield f"The model's mean confidence is {now}, and {before} on the {held} rows held out."
    for each in found["classes"] or ():
        grew = "grew" if each["now"] > each["before"] else "shrank"
        now, *ends = (percent(each[key]) for key in ("now", "low", "high"))
        yield (
            f"{each['name']} {grew} from {percent(each['before'])} to {now}"
            f" (95% interval {' to '.join(ends)})."
        )
    if found["classes"] == []:
        yield "No class grew or shrank beyond chance."
    yield f"{plural(found['unlike'], 'row')} of these are where the run has few."
    for group in found["groups"]:
        yield f"  {plural(group['rows'], 'row')} about {group['name']}, such as:"
        for example in group["examples"]:
            yield f"    {example['id']}: {excerpt(example['text'], LENGTH)}"
    if (stated := found["stated"]) is not None:
        right = f"{count(stated['correct'])} of {plural(stated['n'], 'row')}"
        audits = (f"{percent(each['probability'], 0)} with {each['n']}" for each in stated["found"])
        yield (
            f"In the run's audit {right} were right. An audit of new rows finds a fall of ten"
            f" points in {' and in '.join(audits)} of them:"
        )
        how = "--model-labels label --audit 60 --annotators NAMES --out NEW"
        yield f"  stacksl predict {found['run']} FILE --out labelled.csv"
        yield f"  stacksl run labelled.csv {how}"
        yield f"  stacksl evaluate {found['run']} NEW"


def _verdict(found: Mapping[str, Any]) -> str:
    if found["verdict"] == "too few rows":
        return "These are too few rows to compare: it takes 50 new ones, and 50 of the run."
    if found["verdict"] == "different":
        return (
            f"The new rows differ from the run's, which the first {count(found['told_after'])} of"
            " them show. Of rows that are alike this is said in 5% of cases at most, however often"
            " you look."
        )
    if found["classes"] or found["groups"]:
        return (
            "No bet tells the new rows from the run's so far. What follows was found at this one"
            " look, and can be chance."
        )
    return (
        "The new rows are like the run's: nothing tells them apart. Whether people would answer"
        " them as before, only an audit of new rows can tell."
    )
