"""The state of a run from its creation to its end, and its status, read without its lock."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stacksl.data.values import normal
from stacksl.errors import LedgerError, RunError, StackslError, expect_path, kind_and_place
from stacksl.labelers.protocol import Labeler
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.store.database import opened
from stacksl.ledger.store.schema import TERMS
from stacksl.models.watching import LEVEL, fall_p, power
from stacksl.report import sentences
from stacksl.report.answers import audited, in_counts
from stacksl.report.quality import AuditResult, TestResult
from stacksl.report.sentences import column_words, compared, in_table, settled_by
from stacksl.report.wording import MICRO, of_run, plural
from stacksl.runs.items.stored import differing
from stacksl.runs.settings.budget import stop_rule
from stacksl.runs.spec import RunSpec, versions
from stacksl.runs.storage.folder import (
    DATABASE,
    FACTS,
    MODEL,
    TIMES,
    RunFolder,
    State,
    expect_derived,
    shown_facts,
)

AFTER = ("rows", "rows_after", "classes_after")  # what was added after the audit was drawn
SHORT = "short"  # a warning of the terms of now: the budget may end before a look at the table
UNANSWERED, UNANSWERED_SHARE = 10, 0.1  # items without a candidate from which it is said

AUDITED = ("measures", "correct", "unknown", "number", "trained_on", "waits", "look", "second",
           *AFTER, "none_before", "passed_over")  # fmt: skip

CLOSED = "the page, which is closed"  # the place of rows; `label` opens it again

if TYPE_CHECKING:
    from stacksl.ledger.queries import LedgerReader


def status_of(folder: RunFolder, ledger: LedgerReader | None = None) -> dict[str, Any]:
    """The contract of `stacksl status --json`; see `docs/cli.md`.

    A changed run keeps the accuracies of its previous model until it has finished again. `ledger`
    is the run's, where it is open already.
    """
    table, state, facts = folder.resolved(), folder.read_state(), shown_facts(folder)
    run, audit_sentence = str(folder.path), ""
    final = facts if state["state"] == "finished" else None
    if final is not None:
        expect_derived(folder, MODEL, FACTS)
    with ExitStack() as stack:
        try:
            if ledger is None:
                ledger = stack.enter_context(Ledger.open(folder.database, readonly=True))
            present = present_warnings(state, ledger, table.get("stop_when"))
        except LedgerError as fault:
            raise LedgerError(f"the ledger of {folder.path} cannot be read: {fault}") from fault
        labels = _labels(ledger, table, finished=state["state"] == "finished")
        open_by = labels.pop("open_by")
        labels |= {"answered": final.budget.answered} if final else {}
        if facts and (audit := facts.audit):  # as it was shown: its run may have changed since
            items, classes = ledger.added(state["shown"]["rows"] if "shown" in state else 0)
            counts = zip(AFTER, (items, items, classes), strict=True)
            added = {name: getattr(audit, name) + added_since for name, added_since in counts}
            facts = replace(facts, audit=(audit := replace(audit, **added)))
            audit_sentence = audited(audit, run, judged=facts.column is None)
            audit_sentence = (
                f"{audit_sentence} {sentences.outside(facts, ended=final is not None)}".rstrip()
            )
    judged_run = evaluated(folder.path, table)
    column_audit = final.column.audit if final and final.column else None
    last_report = None  # what was shown before the run went on
    if facts and not final and not (facts.audit and facts.audit.waits):
        last_report = f"{facts.finished}, with {plural(facts.budget.spent, 'label')}"
        last_report += ": accuracy, model and table are of then; the run goes on"
    page, ended = folder.page() or None, state if final is None else asdict(final)
    stopped = f"{ended.get('stopped', '')} {ended.get('details', '')}".strip()
    sheets = state.get("sheets") if labels["out"] else None
    if sheets and table["labeler"] == "file":
        closed = {"open": labels["out"], "file": "the page" if page else CLOSED}
        sheets = [
            sheet | closed if sheet["file"] == CLOSED else _sheet_now(folder, sheet, table, open_by)
            for sheet in sheets
        ]
    python, files = "labeler" in state, table.get("files", {})
    next_step = _next_step(folder, state["state"], table, python=python, sheets=sheets)
    return {
        "run": run,
        "state": state["state"],
        **labels,
        "data": table.get("data"),
        "mode": table["mode"],
        "gate": table["gate.name"],
        "labeler": state.get("labeler", table["labeler"]),
        "created": state.get("created"),
        "finished": state.get("finished"),
        "last_report": last_report,
        "sentence": state.get("sentence"),
        "page": page,
        "resume": None if page else next_step,
        "warnings": [of_run(why, run) for why in (*present, *differing(files))],
        "stop_when": table.get("stop_when"),
        "stopped": of_run(stopped, run),
        "unspent": (final and sentences.unspent(final, run)) or None,
        "sheets": sheets,
        "differing": state.get("differing", []),
        "proposed": state.get("proposed", []),
        "lost_by_class": state.get("lost_by_class", ""),
        "test": _accuracy(facts.test, sentences.tested(facts), "macro_f1") if facts else None,
        "audit": _accuracy(facts.audit, audit_sentence, *AUDITED) if facts else None,
        "table": final
        and final.table
        and {**asdict(final.table), "sentence": " ".join(in_table(final)).rstrip()},
        "column": facts
        and facts.column
        and {
            **asdict(facts.column),
            "sentence": " ".join(column_words(facts.column, facts, run if final else "")).rstrip(),
        },
        "evaluates": judged_run and str(judged_run),
        "stated": final and stated(judged_run, column_audit, settled_by(final, run)),
    }


def _sheet_now(
    folder: RunFolder, sheet: dict[str, Any], table: Mapping[str, Any], open_by: Mapping[str, int]
) -> dict[str, Any]:
    """A sheet with its path and open rows of now: the folder may have moved, an item be erased."""
    path = Path(sheet["file"])
    name = path.stem.partition("-")[2] or table["annotators"].partition(",")[0].strip()
    if not table.get("sheets.dir") and path.parent.name == "ask":
        path = folder.path / "ask" / path.name
    return {**sheet, "open": open_by[name], "file": str(path)}


def evaluated(folder: Path, settings: Mapping[str, Any]) -> Path | None:
    """The run whose model an audit of new rows judges; None of other runs, or if it is gone."""
    path = Path(os.path.normpath(folder / settings.get("evaluates", "")))
    return path if path != folder and (path / DATABASE).is_file() else None


def stated(
    path: Path | None, now: AuditResult | None, settle: Callable[[int], str] | None = None
) -> dict[str, Any] | None:
    """The audit of the run at `path`, and whether the accuracy of new rows is lower `now`.

    `p` counts open rows against a fall, so that its level holds however they are settled, and
    `p_least` for one. If people gave either audit no second look, first answers alone count.
    """
    if path is None or now is None or now.waits or not now.counted()[1]:
        return None
    if (earlier := random_audit(RunFolder(path))) is None:
        return None
    audits = now, earlier[1]
    first = any(audit.second is None and audit.measures != "accuracy" for audit in audits)
    (right, n, open_now), (then, of, open_then) = (audit.counted(first=first) for audit in audits)
    p = fall_p((then, of), (right + open_now, n))
    p_least = fall_p((then + open_then, of), (right, n))
    fell = True if p <= LEVEL else None if p_least <= LEVEL else False
    sides = ("new row", now, settle), earlier
    counts = (in_counts(*side[:2], side[2] if fell is None else None, first) for side in sides)
    detectable = "" if fell else f" {power((then, of, open_then), n).capitalize()}."
    sentence = compared(fell, p_least, p, *counts) + detectable
    return {
        **{"run": str(path), "correct": then, "n": of, "open": open_then},
        "now": {"correct": right, "n": n, "open": open_now},
        **{"p": p, "p_least": p_least, "fell": fell, "sentence": sentence},
    }


def random_audit(folder: RunFolder) -> tuple[str, AuditResult, Callable[[int], str]] | None:
    """What a run's audit counts, the audit, and what settles rows; None without clear answers.

    The looks of a promise are none: their rows are those left after the doubtful ones were bought.
    """
    facts, rule = shown_facts(folder), folder.resolved().get("stop_when")
    audit = facts.audit if facts and stop_rule(rule)[0] != "right" else None
    if facts is None or audit is None or not audit.counted()[1]:
        return None
    judged = "answer of the final model to" if facts.column else "row of"
    return f"{judged} the audit of {folder.path}", audit, settled_by(facts, str(folder.path))


def _labels(ledger: LedgerReader, table: Mapping[str, Any], *, finished: bool) -> dict[str, Any]:
    """The labels and the money of a run, which may have `finished`.

    Before, the audit counts as it was planned, and answers of audit and training count together:
    the purpose of one row, dropped or answered, would show otherwise. A label that an audited row
    has given back may have been bought since. `open_by` has the open rows of each annotator.
    """
    accounts, money, dropped = ledger.accounts, None, 0
    spent, left = accounts.spent, accounts.left
    if not finished:
        _, _, audits, _ = table["budget_now"]
        planned = sum(audits)
        dropped = min(left, max(0, planned - (spent - accounts.asked - accounts.further)))
        spent, left = spent + dropped, left - dropped
    if accounts.money is not None:
        money = {
            "price": accounts.price / MICRO,
            "budget": accounts.money / MICRO,
            "spent": (accounts.spent_money + dropped * accounts.price) / MICRO,
        }
    looks = [row.seq for row in ledger.rows(only=("settings",)) if "look" in row.payload]
    since_look = ledger.rows(looks[0], only=("answered",)) if looks else ()
    asked = accounts.asked - sum(row.purpose == "train" and bool(row.slot) for row in since_look)
    leases = {(lease.item, lease.slot, lease.token) for lease in ledger.open_purchases()}
    rows = [h for h in ledger.private.handed() if (h.item, h.slot, h.token) in leases]
    return {
        "out": len(rows if table["labeler"] == "file" else leases),
        "open_by": Counter(row.annotator for row in rows),
        "rounds": accounts.last_round if finished or table["mode"] == "stream" else asked,
        "budget": accounts.budget,
        "asked": asked,
        "answered": sum(ledger.counts_by_kind().values()),
        "given_up": sum(state.stage == "released" for state in accounts.purchases.values()),
        "spent": spent,
        "measuring": spent - asked,
        "left": left,
        "money": money,
    }


def present_warnings(state: Mapping[str, Any], ledger: LedgerReader, rule: str | None) -> list[str]:
    """What was odd when the run began or was opened, and what is so under its stop `rule` of now.

    The latter are a budget that may end before a look, answers without a candidate, and labels
    that have not improved on class names.
    """
    of_names = state.get("over_names", {}).get("sentence")
    now = [state.get(SHORT), _unanswered(ledger), _unlabeled(ledger, rule), of_names]
    return [*state.get("warnings", []), *filter(None, now)]


def _unanswered(ledger: LedgerReader) -> str | None:
    """A sentence where a tenth of the items asked about have no label, and ten of them at least."""
    answered = {key: s for key, s in ledger.accounts.purchases.items() if s.stage == "answered"}
    asked_about = {item for (item, _), state in answered.items() if state.purpose != "owned"}
    labeled_items = {item for (item, _), state in answered.items() if isinstance(state.word, int)}
    unnamed = asked_about - labeled_items
    if len(unnamed) < max(UNANSWERED, len(asked_about) * UNANSWERED_SHARE):
        return None
    return (
        f"{len(unnamed):,} of {len(asked_about):,} answered items have no answer that names a"
        " candidate, and nothing is learned from them: look at the items and at the classes; a pool"
        " asks about similar items less often"
    )


def _unlabeled(ledger: LedgerReader, rule: str | None) -> str:
    """A sentence where an added class has no label; else empty."""
    if not ledger.accounts.classes_added:
        return ""
    words = {state.word for state in ledger.accounts.purchases.values()}
    # those of an audit are corrected later
    words |= {normal(answer.text or "") for answer in ledger.texts()}
    rows = [row.payload for row in ledger.rows(only=("class_added",))]
    rows = [added for added in rows if not {added["size"] - 1, normal(added["name"])} & words]
    names = ", ".join(f"'{added['name']}'" for added in rows)
    call, promised = "`stacksl change RUN", stop_rule(rule)[0] == "right"
    ways = []
    if "none" in words:
        ways.append(f"{call} --reopen` asks again where the answer was none")
    if not promised:  # which takes no labels that nobody checks
        ways.append(f"{call} --owned FILE` adds labels that you have")
    advice = ", and ".join(ways) or "answers to further rows may name it"
    return names and f"no label names the added {names}: {advice}"


def _next_step(
    folder: RunFolder, state: str, table: Mapping[str, Any], *, python: bool, sheets: Any
) -> str | None:
    """The command that continues a run; None where none is needed.

    `python`: an object made in Python answers. `sheets`: where open questions wait.
    """
    path = shlex.quote(str(folder.path))
    if state == "waiting" and table["labeler"] == "file" and sheets:
        closed = all(sheet["file"] == CLOSED for sheet in sheets)
        return f"stacksl label {path}" if closed else f"stacksl answer {path} FILE..."
    goes_on = state in ("interrupted", "stopped", "failed", "waiting")
    if goes_on and python and table["labeler"] != "file":
        call = f"stacksl change {path} --labeler NAME, or in Python Run.resume(labeler=...)"
        other = ", or Run.change(drop=True, labeler=...) about other items"
        return f"{call}{other}" if state == "waiting" else call
    goes_on |= state == "finished" and not folder.has_results()  # its model was deleted
    return f"stacksl resume {path}" if goes_on else None


def _accuracy(
    result: TestResult | AuditResult | None, sentence: str, *names: str
) -> dict[str, Any] | None:
    """The accuracy on the test file or the audit, with what else is shown of it."""
    if result is None or result.accuracy is None:
        return None
    values = asdict(result)
    shown = {key: values[key] for key in ("n", "accuracy", *names)}
    return {**shown, "interval": [result.low, result.high], "sentence": sentence}


def list_runs(folder: str | Path = "runs") -> list[dict[str, Any]]:
    """The status of each run under `folder`, newest first."""
    runs: list[tuple[int, dict[str, Any]]] = []
    parent = expect_path(folder, "the folder of runs")
    for path in parent.glob(f"*/{DATABASE}") if os.path.isdir(parent) else ():
        created = 0
        try:
            with opened(path, readonly=True) as store:
                created = int(store.select(TERMS, ("created",))[0][0])
            row = status_of(RunFolder.open(path.parent))
        except StackslError as fault:
            counts = dict.fromkeys(("rounds", "budget", "asked", "spent", "left", "money"))
            row = {"run": str(path.parent), "state": "unreadable", **counts, "sentence": str(fault)}
        runs.append((created, row))
    return [row for _, row in sorted(runs, key=itemgetter(0), reverse=True)]


def expect_begun(folder: RunFolder, ledger: LedgerReader) -> None:
    """Check that the run has come to its first round, or bought something.

    Raises:
        RunError: it has not.
    """
    if not ledger.accounts.last_round and not ledger.bought():
        raise RunError(
            f"the run {folder.path} has asked nothing yet: `stacksl resume {folder.path}` first, or"
            " delete its folder and start a new one"
        )


def reopen(folder: RunFolder, ledger: Ledger, *, other_labeler: bool = False, **new: Any) -> None:
    """Mark a finished run as stopped, so that it can be resumed; its other facts are kept.

    With `other_labeler` no Python object answers any more; what is `new` replaces earlier facts.
    """
    earlier = folder.read_state()
    facts = {**earlier, **new}
    state = facts.pop("state")
    if other_labeler:
        facts.pop("labeler", None)
    if state == "finished":
        sentence = f"the run was changed: `stacksl resume {folder.path}` continues it"
        ledger.write_state("stopped", {**facts, "sentence": sentence})
    elif {"state": state, **facts} != earlier:
        ledger.write_state(state, facts)


@dataclass(slots=True)
class Record:
    """The state of a run while it is open, and the facts that are to be kept with it."""

    folder: RunFolder
    facts: dict[str, Any]
    before: dict[str, Any] | None

    @classmethod
    def resume(cls, spec: RunSpec, labeler: Labeler | None) -> Record:
        """Mark the run as running; earlier facts are kept.

        Raises:
            RunError: a Python object answered before, and none is given now.
        """
        earlier = spec.folder.read_state()
        if labeler is None and spec.settings.labeler == "file":  # people go on
            answerer = None
        elif earlier["state"] == "finished":  # nobody is asked any more
            answerer = earlier.get("labeler")
        else:
            answerer = expect_labeler(spec.folder, labeler)
        facts: dict[str, Any] = {"created": now(), "warnings": []}
        kept_names = [*facts, "over_names", "shown", "judged", SHORT]
        if earlier["state"] == "finished":  # it is made again as it was
            kept_names.append("finished")
        facts |= {name: earlier[name] for name in kept_names if name in earlier}
        if answerer is not None:
            facts["labeler"] = answerer
        record = cls(spec.folder, facts, earlier)
        current = versions(spec.settings.plugins)
        names = {name: name.removeprefix("version_") for name in current}
        record.warn(spec.changed(current, names))
        record.write("running")
        return record

    def warn(self, sentences: Sequence[str]) -> None:
        """Add warnings, each sentence once."""
        self.facts["warnings"] = [*dict.fromkeys([*self.facts["warnings"], *sentences])]

    def write(self, state: State) -> None:
        """Write the state of the run."""
        self.folder.write_state(state, **self.facts)

    def restore_before(self) -> None:
        """Write the state from `before` the run was opened, if it was not played since."""
        if self.before is not None:
            self.folder.write_state(**self.before)

    @contextmanager
    def recording_failure(self) -> Iterator[None]:
        """Write the state `stopped` or `failed` if the block ends so, and note how it goes on."""
        labeler = "labeler=..." if "labeler" in self.facts else ""
        call = f"stacksl.Run.open({str(self.folder.path)!r}).resume({labeler})"
        note = f"In Python {call} continues the run; all answers so far are kept."
        try:
            yield
        except KeyboardInterrupt as stop:
            stop.add_note(note)
            self.write("stopped")
            raise
        except BaseException as fault:
            fault.add_note(note)
            expected = isinstance(fault, StackslError)
            sentence = str(fault) if expected else f"unexpected {kind_and_place(fault)}"
            with suppress(StackslError):  # the disk may be what failed
                self.folder.write_state("failed", **self.facts, sentence=sentence)
            raise


def expect_labeler(folder: RunFolder, labeler: Labeler | None) -> str | None:
    """The name of the Python object that answers; None where the settings name the labeler.

    Raises:
        RunError: such an object answered before, and none is given now.
    """
    recorded = folder.read_state().get("labeler")
    if labeler is None and recorded is not None:
        raise RunError(
            f"the labels of {folder.path} come from the labeler '{recorded}', an object made in"
            " Python: use stacksl.Run.open(...).resume(labeler=...) or .change(..., labeler=...)"
        )
    return None if labeler is None else name_of(labeler)


def name_of(labeler: Labeler) -> str:
    """The name of a Python object that answers."""
    return str(getattr(labeler, "name", type(labeler).__name__))


def now() -> str:
    """The current time, as times are shown."""
    return datetime.now(UTC).strftime(TIMES)
