"""`stacksl change` and `stacksl forget`: what is added to a run, and an item that leaves it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from stacksl.cli import options
from stacksl.cli.live import live
from stacksl.cli.options import option
from stacksl.cli.printing import as_json, facts, warn
from stacksl.cli.verbs.ls import by_file, status_facts
from stacksl.cli.verbs.run import agree, setting_of, shown_run, word
from stacksl.errors import SettingsError
from stacksl.report.wording import MICRO, count, money, plural

if TYPE_CHECKING:
    from stacksl.api import Run
    from stacksl.runs.changes.change import Outcome
    from stacksl.runs.changes.forgetting import Forgotten

STAYS = (
    "a class cannot be removed from a run, and the model may predict it even if no answer names it:"
    " for a model without it, give the labels of this run (export --labels) to another by --owned"
)
EVERYBODY = ""  # the value of --free without a name

Names = list[str] | None
Files = list[Path] | None
WHO = "Who answers"  # a panel of the help

Budget = Annotated[str | None, option("Labels in all, a share, '$400' or all; +9 adds 9.", "B")]
Items = Annotated[Files, option("More items, like the run's own; may be repeated.", "FILE")]
Owned = Annotated[Files, option("Labels that you already have: learned, not paid.", "FILE")]
AddClass = Annotated[Names, option("A new class, as people read it; may be repeated.", "NAME")]
Description = Annotated[Names, option("What a class means, in the order of --add-class.", "D")]
Reopen = Annotated[
    bool, option("Buy one more label where the answer was none of these.", None, "--reopen")
]
AddAnnotator = Annotated[Names, option("One more person, who gets rows from now on.", "NAME")]
NewLabeler = Annotated[
    str | None, option("Another labeler: it gets the open questions.", "NAME", "--labeler")
]
StopWhen = Annotated[str | None, option("Another rule of when to stop, as accuracy=0.9.", "RULE")]
Training = Annotated[
    Names, option("A new value of a setting, as open_questions=50.", "NAME=VALUE", "--set")
]
Away = Annotated[
    Names,
    option("Free the open rows of NAME, who gets no others until --back.", "NAME", panel=WHO),
]
Back = Annotated[Names, option("Give NAME rows again.", "NAME", panel=WHO)]
Free = Annotated[str | None, option("Free the open rows of NAME, or of all.", "[NAME]", panel=WHO)]
Key = Annotated[Names, option("Free only this row; may be repeated.", "KEY", panel=WHO)]
Drop = Annotated[
    bool,
    option("Buy other items instead of assigning freed rows again.", None, "--drop", panel=WHO),
]
SetAside = Annotated[
    Names, option("Leave the answers of NAME out of training, and refit.", "NAME", panel=WHO)
]
Keep = Annotated[Names, option("Let NAME's answers count, even if they differ.", "NAME", panel=WHO)]
TrainOnAudit = Annotated[
    bool, option("Train on the labels that measured the model, too.", None, "--train-on-audit")
]
Later = Annotated[bool, option("Only record the change, for `stacksl resume`.", None, "--later")]
Id = Annotated[str, option("The item's id in the data.", "ID", "--id")]


def change(
    run: options.RunFolder,
    budget: Budget = None,
    items: Items = None,
    owned: Owned = None,
    add_class: AddClass = None,
    description: Description = None,
    reopen: Reopen = False,
    add_annotator: AddAnnotator = None,
    labeler: NewLabeler = None,
    stop_when: StopWhen = None,
    set_: Training = None,
    away: Away = None,
    back: Back = None,
    free: Free = None,
    key: Key = None,
    drop: Drop = False,
    set_aside: SetAside = None,
    keep: Keep = None,
    train_on_audit: TrainOnAudit = False,
    later: Later = False,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Change a run that has begun, and continue it.

    A change is made completely or not at all. The options of "Who answers" need a command of their
    own, and freed rows go to other people. Only --free --drop may be given with --budget: if people
    gave 200 answers, --budget 200 --free --drop withdraws the open questions and ends the run.

    A hundred labels were not enough; what would 200 cost?
        stacksl change runs/first --budget 200 --dry-run
    Add new questions, and labels that you already have:
        stacksl change runs/first --items more.csv --owned old.csv
    Add a class that your colleagues miss:
        stacksl change runs/first --add-class "Lost card" --description "it cannot be found"
    Ben is ill, and the others get his open rows and the next ones:
        stacksl change runs/first --away ben
    Nobody can answer two rows, so buy others:
        stacksl change runs/first --key k7f3-q --key m2pw-d --drop
    """
    opened = options.open_run(run)
    changes: dict[str, Any] = {
        "budget": budget,
        "items": items or (),
        "owned": owned or (),
        "classes": _with_descriptions(add_class or [], description or []),
        "reopen": reopen,
        "annotators": add_annotator or (),
        "labeler": labeler,
        "stop_when": stop_when,
        "settings": dict(map(setting_of, set_ or [])),
    }
    people_changes: dict[str, Any] = {
        "away": away or (),
        "back": back or (),
        "free": True if free == EVERYBODY else free or False,
        "keys": key or (),
        "drop": drop,
        "set_aside": set_aside or (),
        "keep": keep or (),
    }
    if budget is not None and drop and free == EVERYBODY and not (key or away or set_aside):
        changes["drop"], people_changes = True, dict.fromkeys(people_changes)
    changes_people = any(people_changes.values())
    changes_purchase = any(changes.values()) or later or (dry_run and not changes_people)
    kinds = [changes_purchase, changes_people, train_on_audit]
    if sum(kinds) > 1:
        raise SettingsError(
            "expected one kind of change: what is bought (with --later), who answers (--away to"
            " --keep), or --train-on-audit; give each in a command of its own"
        )
    if changes_people:
        _change_people(opened, {**people_changes, "dry_run": dry_run}, json=json, quiet=quiet)
    elif train_on_audit:
        labels = opened.refit_with_audit()
        sentence = f"the model was fitted again, with the {plural(labels, 'label')} of the audit"
        print(as_json({**opened.status(), "trained_on_audit": labels}) if json else sentence)
    elif dry_run:
        offered = opened.change(**changes, dry_run=True)
        warn(offered.warnings)
        effects = [offered.measures, *_bought(offered, changes), _described(offered, changes, run)]
        lines = ["Nothing was written. After the change:", *filter(None, effects)]
        print(as_json({"run": run, **_facts(offered, reopen)}) if json else "\n".join(lines))
    else:
        _change_run(opened, changes, later=later, yes=yes, json=json, quiet=quiet)


def _change_run(
    run: Run, changes: dict[str, Any], *, later: bool, yes: bool, json: bool, quiet: bool
) -> None:
    from stacksl.runs.storage.status import expect_labeler

    if not later and changes["labeler"] is None:  # else it would fail after the cost was agreed to
        expect_labeler(run.folder, None)
    offered, reopen = run.change(**changes, dry_run=True), changes["reopen"]
    warn(offered.warnings)
    if not quiet and offered.measures is not None:
        print(offered.measures, file=sys.stderr)
    agree(_bought(offered, changes), yes)
    with live(quiet=quiet) as show:
        outcome = run.change(**changes, agreed=offered, later=later, progress=show)
    if json:
        print(as_json({**run.status(), **_facts(outcome, reopen)}))
        return
    closing = f"continue with: stacksl resume {word(run.path)}" if later else shown_run(run)
    print(f"{_described(outcome, changes, run.path)}\n\n{closing}")


def _change_people(run: Run, changes: dict[str, Any], *, json: bool, quiet: bool) -> None:
    with live(quiet=quiet) as show:
        freed = run.people(**changes, progress=show)
    freed_rows = plural(freed, "row" if by_file(run) else "question")
    if json:
        print(as_json({**status_facts(run), "released": freed}))
    elif changes["dry_run"]:
        print(f"{freed_rows} would be freed")
    else:
        standing = {"back": "gets rows again", "set_aside": "is set aside", "keep": "counts again"}
        effects = [f"{name} {does}" for key, does in standing.items() for name in changes[key]]
        effects += [f"{freed_rows} freed"] if freed else []
        print("\n\n".join(filter(None, ["\n".join(effects), shown_run(run)])))


def _with_descriptions(names: list[str], descriptions: list[str]) -> dict[str, str]:
    if len(descriptions) > len(names):
        raise SettingsError(
            f"--description says what an added class means, got {len(descriptions)} for"
            f" {plural(len(names), 'class', 'classes')}: give one --add-class NAME for each"
        )
    if len(set(names)) < len(names):
        raise SettingsError("--add-class got the same name twice: give each class once")
    return dict(zip(names, [*descriptions, *[""] * (len(names) - len(descriptions))], strict=True))


def _bought(offered: Outcome, changes: dict[str, Any]) -> list[str]:
    bought = [STAYS] if changes["classes"] else []
    if offered.cost:
        amount = f"{plural(offered.more, 'more label')}, {count(offered.labels)}"
        labels = f"{amount if offered.more else plural(offered.labels, 'label')} in all"
        bought.append(f"{labels}, for {money(offered.cost)} more at most")
    if changes["reopen"] and offered.again:
        bought.append(f"{_again(offered)} at most, within the budget")
    return bought


def _again(outcome: Outcome) -> str:
    return f"{plural(len(outcome.again), 'more label')}{outcome.cost_again}"


def _facts(outcome: Outcome, reopen: bool) -> dict[str, Any]:
    return {
        "budget": outcome.labels,
        "cost": None if outcome.cost is None else outcome.cost / MICRO,
        "audit_labels": outcome.audit,
        "dropped": outcome.dropped,
        "added": outcome.items,
        "owned": outcome.owned,
        "classes": outcome.classes,
        "mapped": outcome.mapped,
        "reopened": len(outcome.again) if reopen else 0,
        "again": 0 if reopen else len(outcome.again),
        "annotators": list(outcome.annotators),
        "outdated_sheets": [{"annotator": name, "file": file} for name, file in outcome.outdated],
        "added_warnings": list(outcome.warnings),
    }


def _described(outcome: Outcome, changes: dict[str, Any], run: Path) -> str:
    """The effect of the change, a line for each part of it."""
    lines = []
    if changes["budget"] is not None:
        lines.append(f"the budget is {plural(outcome.labels, 'label')} in all")
    if outcome.dropped:
        lines.append(f"{plural(outcome.dropped, 'open question')} withdrawn")
    if outcome.items:
        lines.append(f"{plural(outcome.items, 'item')} to choose from added")
    if outcome.owned:
        lines.append(f"{plural(outcome.owned, 'label')} that you have added")
    if changes["annotators"]:
        names = ", ".join(changes["annotators"])
        lines.append(f"rows that are handed out from now on go to {names} as well")
    if changes["labeler"] is not None:
        lines.append(f"{changes['labeler']} answers from now on")
    if changes["stop_when"] is not None:
        lines.append(f"{changes['stop_when']} stops the run from now on")
    if changes["settings"]:
        lines.append("the new settings hold from now on")
    if changes["classes"] and outcome.classes is not None:
        lines.append(f"the run has {count(outcome.classes)} classes now")
    if outcome.outdated:
        out = ", ".join(f"{name} ({file})" for name, file in outcome.outdated)
        lines.append(
            f"tell {out}: these sheets do not list what was added, the next ones do; an answer by"
            " its name counts on them, too"
        )
    if outcome.mapped:
        lines.append(f"{plural(outcome.mapped, 'answer')} named what was added, at no cost")
    if outcome.again and changes["reopen"]:
        lines.append(f"asked again: {_again(outcome)}")
    elif outcome.again and changes["classes"]:
        lacking = max(0, len(outcome.again) - outcome.left)
        more = f" --budget {outcome.labels + lacking}" if lacking > 0 else ""
        lines.append(
            f"{plural(len(outcome.again), 'item')} had the answer none of these before; to ask"
            f" again buys {_again(outcome)}: stacksl change {word(run)} --reopen{more}"
        )
    return "\n".join(lines)


def forget(
    run: options.RunFolder,
    id: Id,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Erase one item everywhere in a run: text, id, notes, features, sheets and reports.

    The model and the report are deleted, and `stacksl resume` makes them again without the item.
    What was learned from it during the run stays and is named; the ledger's chain still verifies,
    and `ledger replay` plays the run from the arrays of that moment on. If the command is
    interrupted, the next command on the run first finishes it.

    A patient withdrew consent:
        stacksl forget runs/first --id q4711
    For a record of what was erased:
        stacksl forget runs/first --id q4711 --json
    """
    from stacksl.cli.heads import keep_at_end
    from stacksl.runs.changes import forgetting

    keep_at_end(run)
    result = forgetting.forget(run, id)
    print(as_json({"run": run, **asdict(result)}) if json else _shown_forgotten(result))


def _shown_forgotten(result: Forgotten) -> str:
    learned = "its label was learned" if result.learned else "no label of it was learned"
    return facts(
        [
            ("Forgotten", f"{learned}; its id is now {result.name}"),
            (
                "Deleted",
                "the model and the report; `stacksl resume` makes them again without it once all"
                " answers are there",
            ),
            *(("Remains", sentence) for sentence in result.remains),
        ]
    )


VERBS = (change, forget)
