"""`stacksl run` and `stacksl resume`: from a file of items to a model and a report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from stacksl.cli import options
from stacksl.cli.live import live, tracked
from stacksl.cli.printing import as_json, facts, quality, spent, visible, warn
from stacksl.cli.verbs.dry_run import (
    audit_precision,
    data_facts,
    print_plan,
    shows_audit,
    understood,
)
from stacksl.engine import on_ray
from stacksl.errors import DataError, HeaderInDoubt, SettingsError
from stacksl.report.wording import change_call, count, money, plural

if TYPE_CHECKING:
    from stacksl.api import Plan, Run
    from stacksl.runs.spec import RunSpec

Result = TypeVar("Result")


@options.takes()
def run(
    context: typer.Context,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            show_default=False,
            help="Rows: CSV, .xlsx, JSONL, Parquet, or - (standard input); else a sample.",
        ),
    ] = None,
    test: options.Test = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    preset: options.Preset = None,
    config: options.Config = None,
    set_: options.Set = None,
    out: options.Out = None,
    engine: options.Engine = None,
    report_to: options.ReportTo = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
    help_all: options.HelpAll = False,
) -> None:
    """Buy the labels that are worth it under a hard budget, and write a model and a report.

    How many of the labels that a model gave are right, by 200 answers of two colleagues?
        stacksl run tickets.xlsx --model-labels gpt_label --audit 200 --annotators anna,ben
    What is in the file, and what would a run cost and gain? Nothing is bought or written:
        stacksl run train.csv --budget 10% --price 2.50 --dry-run
    No labels yet, and two colleagues answer in spreadsheets:
        stacksl run texts.csv --classes names.txt --budget 800 --labeler file --annotators anna,ben
    A language model (pip install 'stacksl[lm]'):
        stacksl run train.jsonl --model Qwen/Qwen3-4B-Base --adapt lora --budget 0.25
    """
    from stacksl.api import prepare
    from stacksl.runs.settings.resolve import resolve

    on_ray(engine)
    table, copied = _config(config)
    named_files = table.pop("data", None), table.pop("test", None)
    if copied and data and "classes" in table:
        table["classes"] = str(config)  # with those that were added since

    def planned() -> Plan:
        resolved = resolve({**dict(map(setting_of, set_ or [])), **context.obj}, table, preset)
        return prepare(
            data or copied or named_files[0],
            test=test or (None if copied and not data else named_files[1]),  # else the run's
            out=out,
            settings=resolved,
        )

    try:
        plan = with_header(context, planned)
    except DataError as fault:
        if dry_run and fault.dataset is not None:  # every row, before the sentence on them all
            understood_facts = {"data": data_facts(fault.dataset)}
            print(as_json(understood_facts) if json else understood(fault.dataset))
        raise
    begin(plan, dry_run=dry_run, yes=yes, quiet=quiet, json=json, report_to=report_to)


def resume(
    run: options.RunFolder,
    report_to: options.ReportTo = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Resume a run that was stopped, killed or is waiting.

    The run ends as it would have without the interruption, with the same purchases and the same
    model. A finished run stays as it is, unless `change --later` has changed it.

    Continue a run where it stopped:
        stacksl resume runs/first
    The same, with the end result as JSON:
        stacksl resume runs/first --json --quiet
    """
    opened = options.open_run(run)
    if opened.folder.read_state()["state"] == "interrupted":
        sentence = "this run was killed, or the machine went down; it continues where it was"
        if "lm.model" in opened.folder.resolved():
            sentence += "; if memory ran out, `stacksl change RUN --set lm.batch_tokens=N` takes"
            sentence += " less of it"
        warn([sentence])
    try:
        with live(quiet=quiet) as bar, tracked(report_to, run, bar) as progress:
            ended = opened.resume(progress)
    except KeyboardInterrupt as stop:
        raise _stopped(run) from stop
    _finish(ended, json)


def begin(
    plan: Plan, *, dry_run: bool, yes: bool, quiet: bool, json: bool, report_to: str | None = None
) -> None:
    """Ask whether to buy, where labels cost money; begin the run, and print what became of it.

    A dry run prints the plan alone.
    """
    from stacksl.data import columns_line
    from stacksl.runs.finish.promise_sentences import before_a_look, expected_promise

    spec, alone = plan.spec, quiet and not dry_run
    short, brief = (before_a_look(spec, spec.budget.labels, says_range=x) for x in (True, alone))
    warn([*(brief if one == short else one for one in plan.warnings), plan.comparison])
    if dry_run:
        print_plan(plan, json=json)
        return
    if not quiet:
        promise = expected_promise(plan.spec)
        audit = "" if promise or not shows_audit(plan.spec) else audit_precision(plan.spec)
        for line in (*columns_line(plan.spec.sources.pool), promise, audit):
            if line and not any(line in warning for warning in plan.warnings):
                print(visible(line), file=sys.stderr)
    budget = plan.spec.budget
    if budget.cost is not None:
        agree([f"{count(budget.labels)} labels for {money(budget.cost)} at most"], yes)
    plan = plan.claimed()
    try:
        with live(quiet=quiet) as bar, tracked(report_to, plan.out, bar) as progress:
            ended = plan.start(progress)
    except KeyboardInterrupt as stop:
        raise _stopped(plan.out) from stop
    _finish(ended, json)


def setting_of(text: str) -> tuple[str, Any]:
    """A setting written NAME=VALUE; a value that is no TOML is text."""
    import tomllib

    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise SettingsError(f"--set expects NAME=VALUE, such as scorer.ridge=0.1, not '{text}'")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except ValueError:
        return name.strip(), value.strip()


def _config(path: Path | None) -> tuple[dict[str, Any], RunSpec | None]:
    """The settings of a run's folder, with its items, or the table in a config file.

    Raises:
        SettingsError: the file cannot be read, or is not TOML.
        RunError: the folder is not that of a run.
    """
    if path is None:
        return {}, None
    if path.is_dir():
        from stacksl.runs.spec import RunSpec

        folder = options.open_run(path).folder
        return folder.config(), RunSpec.open(folder)
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8")), None
    except OSError as fault:
        raise SettingsError(
            f"cannot read the config {path} ({fault.strerror}): name a TOML file or a run's folder"
        ) from fault
    except ValueError as fault:
        raise SettingsError(f"the config {path} must be TOML (name = value): {fault}") from fault


def agree(bought: Sequence[str], yes: bool) -> None:
    """Print what will be `bought` at which cost and, on a terminal, ask for consent.

    Raises:
        typer.Abort: if the answer is no.
    """
    for line in bought:
        print(line, file=sys.stderr)
    if bought and not yes and is_interactive():
        typer.confirm("Go on?", abort=True, err=True)


def with_header(context: typer.Context, read: Callable[[], Result]) -> Result:
    """What `read` gives; on a terminal it is asked whether a first row in doubt is a header."""
    try:
        return read()
    except HeaderInDoubt as fault:
        if not is_interactive():
            raise
        print(str(fault), file=sys.stderr)
        header = not typer.confirm("Is it an item like the others?", err=True)
        context.obj["read.header"] = header
        return read()


def is_interactive() -> bool:
    """Whether standard input and standard error are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _stopped(folder: Path) -> KeyboardInterrupt:
    from stacksl.runs.storage.folder import DATABASE

    if (folder / DATABASE).exists():
        return KeyboardInterrupt(f"stopped; continue with: stacksl resume {word(folder)}")
    return KeyboardInterrupt("stopped before the run began; nothing was bought")


def run_facts(run: Run, status: dict[str, Any] | None = None) -> dict[str, Any]:
    """The result of a run, as the JSON of `run` and `resume`."""
    return {
        **(run.status() if status is None else status),
        "report": run.path / "report.html",
        "model": run.path / "model",
    }


def _finish(run: Run, json: bool) -> None:
    """Print the result of a run; a stopped one ends the call as Ctrl-C does."""
    from stacksl.cli.heads import keep_at_end

    keep_at_end(run.path)
    result = run_facts(run)
    if result["state"] == "stopped":
        raise _stopped(run.path)
    print(as_json(result) if json else shown_run(run))


def shown_run(run: Run, status: dict[str, Any] | None = None) -> str:
    """The result of a run, or what it waits for, with the next commands.

    `status` is that of the run, where it is known already.
    """
    from stacksl.report.sentences import commands
    from stacksl.runs.storage.folder import shown_facts

    result = run_facts(run, status)
    path, waits = word(run.path), result["state"] == "waiting"
    if result["state"] == "finished":
        model = None if result["evaluates"] else result["model"]
        lines = summary(run, result, [("Report", result["report"]), ("Model", model)])
        run_report = shown_facts(run.folder)
        steps = commands(replace(run_report, run=str(run.path))) if run_report else []
        return "\n".join([lines, "\nNext:", *(f"  {step}  # {aim}" for aim, step in steps)])
    lines = summary(run, result, [("Go on with", None if waits else result["resume"])])
    if waits and result["labeler"] == "file":
        lines += f"\n\nNext, when rows are filled in:\n  stacksl answer {path} FILE..."
        return f"{lines}\nOr answer in the browser:\n  stacksl label {path}"
    return f"{lines}\n\nTo continue:\n  {result['resume']}" if waits else lines


def summary(run: Run, result: Mapping[str, Any], more: Sequence[tuple[str, object]]) -> str:
    """What `run` and `status` say: labels, money, what its owner can do, and how good it is."""
    waits = " for answers" if result["state"] == "waiting" else ""
    sheets = result["sheets"] or ()
    unit, preposition = ("row", "in") if result["labeler"] == "file" else ("answer", "of")
    return facts(
        [
            ("Run", f"{result['run']}, {result['state']}{waits}"),
            ("Labels", _labels(result)),
            ("Cost", spent(result)),
            ("Unspent", result["unspent"]),
            ("Money left buys more", more_for_money(run, result)),
            *notices(result),
            *quality(result),
            *more,
            *((f"{plural(s['open'], unit)} {preposition}", s["file"]) for s in sheets),
            *(("Because", sheet.get("why")) for sheet in sheets),
        ]
    )


def notices(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the owner can do about a second look, proposed classes and annotators who differ."""
    from stacksl.report.quality import Differing, SecondLook
    from stacksl.report.sentences import unpaid

    run, second_look = word(Path(result["run"])), (result["audit"] or {}).get("second")
    notes: list[tuple[str, str]] = []
    if second_look and result["state"] == "finished" and not second_look["nobody"]:
        audit = result["audit"]
        lack = unpaid(SecondLook(**second_look), audit["measures"], audit["look"])
        call = f"stacksl change {run} --budget {result['budget'] + lack}"
        sentence = f"{plural(lack, 'row')} had no label left for another answer: `{call}` asks them"
        if lack:
            notes.append(("Second look", sentence))
    for group in result["proposed"]:
        rows, why = group["rows"], "look alike and like no class"
        if group.get("written"):
            rows, why = group["written"], "were answered with none and the text"
        call = f"stacksl change {run} --add-class {word(group['name'])}"
        notes.append((f"{rows:,} rows", f"{why}: {group['name']}; to add them as one: {call}"))
    if lost := result["lost_by_class"]:
        notes.append(("Adding a class", lost))
    for person in (Differing(**row) for row in result["differing"]):
        call = f"stacksl change {run} --set-aside {word(person.name)} or --keep {word(person.name)}"
        notes.append((f"{person.name} differs", f"{person.sentence}: {call}"))
    return notes


def more_for_money(run: Run, result: Mapping[str, Any]) -> str | None:
    """The command that buys labels for what is left of a budget in money at the end."""
    from stacksl.runs.storage.folder import shown_facts

    money, budget = result["money"], str(run.folder.resolved().get("budget"))
    if result["state"] != "finished" or result["stopped"] or not (money and budget[0] == "$"):
        return None
    run_report, labels = shown_facts(run.folder), 0
    if money["price"]:  # only labels that cost less than planned leave money for more
        labels = result["spent"] + int((money["budget"] - money["spent"]) // money["price"])
    if not (run_report and labels > result["budget"]) or "never asked for" not in [
        row.name for row in run_report.data.roles
    ]:
        return None
    changes = {"budget": f"${money['budget']:f}".rstrip("0").rstrip(".")}
    return change_call(str(run.path), changes, python=run_report.method.python)


def _labels(result: Mapping[str, Any]) -> str:
    """What has become of the labels; those of the audit of a run that goes on are kept at once."""
    if result["state"] == "finished":
        # the questions of a pool are counted as labels already
        rounds = f" in {count(result['rounds'])} rounds" if result["mode"] == "stream" else ""
        measuring = result["measuring"]
        measures = f", {count(measuring)} of them only to measure" if measuring else ""
        return f"{count(result['spent'])} of {count(result['budget'])} bought{rounds}{measures}"
    answered, out = result["answered"], result["out"]
    place = "in sheets" if result.get("labeler", "file") == "file" else "asked"
    # one number: how many rows of the audit were given up would tell which
    name = ", not yet asked or given up" if result["given_up"] else " and not yet asked"
    reserved = {f"reserved{name}": result["spent"] - answered - out}
    counts_by_name = {place: out, **reserved, "left": result["left"]}
    counts = "".join(f", {name} {count(n)}" for name, n in counts_by_name.items() if n)
    return f"{count(result['budget'])}: answered {count(answered)}{counts}"


def word(path: Path | str) -> str:
    """A path or a name as it is typed in a shell."""
    import shlex

    return shlex.quote(str(path))


VERBS = (run, resume)
