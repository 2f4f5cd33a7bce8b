"""The annotators of a run: their answers, rows to free, absences, whose answers count, corrections.

Corrections of accepted answers by their annotators are listed before they are recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stacksl.errors import RunError, SettingsError, warn_user
from stacksl.labelers.sheets.cells import sign
from stacksl.labelers.sheets.rows import clean_key, has_form
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import Answer, Handed, Purchase, Receipt, Word, settled
from stacksl.ledger.store.settings import Setting
from stacksl.report.wording import unasked
from stacksl.runs.finish.answers import OWNER
from stacksl.runs.finish.promising import expect_promise
from stacksl.runs.items.stored import EXCLUDED, how_read
from stacksl.runs.loop.game import Report
from stacksl.runs.session.assignment import (
    FILE,
    SheetAnswers,
    SheetLabeler,
    open_rows,
)
from stacksl.runs.session.session import Session, bring_arrays
from stacksl.runs.settings.fields import Settings
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import RunFolder
from stacksl.runs.storage.status import reopen, status_of

ENOUGH = 50  # rows answered twice from which a person's errors are stated


@dataclass(frozen=True, slots=True)
class Annotator:
    """An annotator: the numbers of open and answered rows, and whether they are away.

    `standing` is `set_aside`, `kept`, or empty; see `Ledger.set_standing`. Of `twice` audited rows
    that others answered too, until two agreed, those two said something else in `wrong`.
    """

    name: str
    open: int
    answered: int
    away: bool
    standing: str = ""
    twice: int = 0
    wrong: int = 0


def people(folder: RunFolder) -> list[Annotator]:
    """The annotators of a run, in the order of the settings.

    Raises:
        RunError: the run is not one that people answer.
    """
    settings = expect_people(folder)
    with Ledger.open(folder.database, readonly=True) as ledger:
        open_counts = Counter(row.annotator for row, _ in open_rows(ledger))
        rows, standing, away = ledger.export(), ledger.standing, ledger.away
        audited = ledger.audited_by_all().values()
    twice, wrong = Counter[str](), Counter[str]()
    three_people = len({answer.labeler for answers in audited for answer in answers}) > 2
    for answers in audited if three_people else ():  # of two people nobody is outvoted
        if (settled_word := settled([answer.word for answer in answers])) is not None:
            twice.update(answer.labeler for answer in answers)
            wrong.update(answer.labeler for answer in answers if answer.word != settled_word)
    answered = Counter(str(row["labeler"]) for row in rows if row["state"] == "answered")
    return [
        Annotator(
            name,
            open_counts[name],
            answered[name],
            name in away,
            standing.get(name, ""),
            *((twice[name], wrong[name]) if twice[name] >= ENOUGH else ()),
        )
        for name in settings.people
    ]


def free_rows(
    folder: RunFolder,
    *,
    away: Sequence[str] = (),
    back: Sequence[str] = (),
    free: str | bool = False,
    keys: Sequence[str] = (),
    drop: bool = False,
    set_aside: Sequence[str] = (),
    keep: Sequence[str] = (),
    dry_run: bool = False,
) -> int:
    """Free assigned rows for others, and say whose answers count; the number of rows freed.

    Where people do not answer, all open questions can be freed: they are asked again, or dropped.

    Of a row that has a label from somebody else, or waits for one, the label goes back to the
    budget where its annotator is `away` or `set_aside`. Dropped rows never come back, those of the
    audit like the others: whoever has them could tell them apart. An audit counts them as unknown,
    since without the items that are hard to answer it would overestimate the model. The arguments
    are those of `Run.people`.

    Raises:
        RunError: no such row is open, an annotator is unknown, or nobody would be left to answer.
    """
    all_names = [*away, *back, *set_aside, *keep, *([free] if isinstance(free, str) else [])]
    with folder.locked(), Ledger.open(folder.database) as ledger:
        if free is True and not (all_names or keys) and folder.resolved().get("labeler") != FILE:
            return _free_questions(folder, ledger, drop, dry_run=dry_run)
        settings, table = expect_people(folder), folder.resolved()
        annotators, away_before = settings.people, ledger.away
        _expect_annotators(all_names, annotators, back, away_before)
        if drop and not (away or set_aside or free or keys):
            raise RunError(
                "dropping needs rows to drop: give --free, --key, --away or --set-aside with --drop"
            )
        absent = (away_before | set(away)) - set(back)
        unavailable = absent | (ledger.set_aside | set(set_aside)) - set(keep)
        if (away or set_aside) and unavailable >= set(annotators):
            raise RunError(
                f"expected an annotator left to answer, got all of {', '.join(annotators)} away or"
                " set aside: leave one out, call one back with --back, or add one with `stacksl"
                " change --add-annotator`"
            )
        leases = _leases(ledger, {clean_key(key) for key in keys}, free, {*away, *set_aside})
        if not leases and (free or keys):
            raise RunError(
                f"no such row of the run {folder.path} is open: `stacksl status {folder.path}`"
                " lists the sheets that have open rows"
            )
        *_, further_labels = table["budget_now"]
        looks = further_labels > 0
        _warn_of_few(folder, settings, len({*annotators} - unavailable), looks)
        if dry_run:
            return len(leases)
        with ledger.together():
            if set_aside or keep or (back and looks):
                reopen(folder, ledger)
            events = {"away": sorted(absent - away_before), "back": sorted(away_before - absent)}
            for event, names in {**events, "set_aside": set_aside, "kept": keep}.items():
                ledger.codes_of(names)
                for name in names:
                    ledger.set_standing(event, name)
            dropped = leases if drop else _second(ledger, leases) if away or set_aside else []
            ledger.free(leases, dropped)
    return len(leases)


def _free_questions(folder: RunFolder, ledger: Ledger, drop: bool, *, dry_run: bool) -> int:
    """Free the open questions of a run that a program answers; how many there are."""
    if not (leases := ledger.open_purchases()):
        raise RunError(f"no question of the run {folder.path} is open: nothing is to be freed")
    if not dry_run:
        ledger.free(leases, leases if drop else ())
    return len(leases)


def _expect_annotators(
    names: Sequence[str], annotators: Sequence[str], back: Sequence[str], away: Set[str]
) -> None:
    """Check that all `names` are annotators, and that who is called `back` is `away`."""
    if unknown := [name for name in names if name not in annotators]:
        raise RunError(
            f"'{unknown[0]}' is no annotator of this run: known are {', '.join(annotators)}"
        )
    if present := [name for name in back if name not in away]:
        raise RunError(
            f"expected --back with an annotator who is away, got '{present[0]}':"
            f" {', '.join(sorted(away)) or 'nobody'} {'are' if len(away) > 1 else 'is'} away"
        )


def _warn_of_few(folder: RunFolder, settings: Settings, people_left: int, looks: bool) -> None:
    """Warn where too few people are left for second `looks`, or for one at the table."""
    if looks and people_left < 2 and folder.read_state()["state"] != "finished":
        warn_user(unasked(0, str(folder.path)))
    if people_left == 2 and settings.promised_share is not None:
        warn_user(
            "two annotators are left, and a look at the table needs three: a row on which two"
            " differ counts as wrong; add a person with `stacksl change"
            f" {folder.path} --add-annotator NAME`, or wait until one is back"
        )


def _leases(ledger: Ledger, keys: set[str], free: str | bool, away: Set[str]) -> list[Purchase]:
    """The open leases to free, in the order of their rows."""
    if unknown := sorted(keys - {row.key for row in ledger.private.handed()}):
        key_list = ", ".join(filter(has_form, unknown))  # any other text may be data
        raise RunError(f"unknown key {key_list}".rstrip() + ": use a key from a sheet of this run")
    return [
        lease
        for row, lease in open_rows(ledger)
        if row.annotator in away
        or (
            bool(free or keys)
            and (not isinstance(free, str) or row.annotator == free)
            and (not keys or row.key in keys)
        )
    ]


def _second(ledger: Ledger, leases: Sequence[Purchase]) -> list[Purchase]:
    """Of the leases to train those whose item has a label, or keeps another slot that is open.

    An item that was answered with none of these, and is asked about again, has no label.
    """
    leases = [lease for lease in leases if lease.purpose == "train"]  # a second look goes on
    open_counts = Counter(lease.item for lease in ledger.open_purchases())
    doubled_leases = []
    for lease in leases:
        if open_counts[lease.item] > 1 or ledger.label_of(lease.item) is not None:
            open_counts[lease.item] -= 1
            doubled_leases.append(lease)
    return doubled_leases


# Answers ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Received:
    """The result of the files of one call.

    Attributes:
        accepted: accepted answers by kind: `label`, `none`, `ambiguous`, `broken`.
        repeated: answers that had been given before.
        disputed: answers that contradict the annotator's own accepted one: kept, not paid.
        late: answers to rows that somebody else answered in the meantime, that were dropped, or
            whose second look has ended: kept, not paid.
        empty: rows still without an answer.
        faults: a line for each cell that could not be read.
        corrected: accepted answers that were replaced.
        status: of the run after them; see `status_of`.
    """

    accepted: dict[str, int] = field(default_factory=dict)
    repeated: int = 0
    disputed: int = 0
    late: int = 0
    empty: int = 0
    faults: tuple[str, ...] = ()
    corrected: int = 0
    status: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


def answer(folder: RunFolder, files: Sequence[Path], report: Report | None) -> Received:
    """Enter the answers in `files` and play the run until it waits again or has finished.

    Cells that cannot be read are named, and all others are entered.

    Raises:
        RunError: the labels of the run are not from people, or a file is of another run.
        DataError: a file cannot be read; no answer of any file was entered.
    """
    expect_people(folder)  # before the lock is waited for
    with folder.locked(inside=True), Session.open(RunSpec.open(folder), report) as session:
        assert isinstance(session.labeler, SheetLabeler)
        sheets = session.labeler.read(files)
        session.play(tells=True)
        return received(folder, session.ledger, sheets, session.receipts)


def received(
    folder: RunFolder, ledger: Ledger, sheets: SheetAnswers, receipts: Sequence[Receipt]
) -> Received:
    """The result of sheets that were read and entered."""
    outcomes = Counter(receipt.outcome for receipt in receipts)
    return Received(
        accepted=dict(Counter(r.answer.kind for r in receipts if r.outcome == "accepted")),
        repeated=outcomes["repeated"],
        disputed=outcomes["disputed"],
        late=outcomes["late"],
        empty=sheets.empty,
        faults=sheets.faults,
        status=status_of(folder, ledger),
    )


def expect_people(folder: RunFolder) -> Settings:
    """The settings of a run that people answer by file.

    Raises:
        RunError: another labeler answers.
    """
    settings = how_read(folder)
    if not settings.people:
        name = folder.read_state().get("labeler", settings.labeler)
        raise RunError(
            f"the labels of the run {folder.path} come from '{name}', not from people: runs with"
            " --labeler file are answered by file"
        )
    return settings


# Corrections ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Correction:
    """An accepted answer and another one that its annotator gives now.

    `before` and `after` are the name of the class, else the option's letter or number on the
    sheet; `answer` is the new one.
    """

    key: str
    annotator: str
    before: str
    after: str
    answer: Answer


def corrections(
    folder: RunFolder, files: Sequence[Path], agreed: Sequence[Correction] | None = None
) -> list[Correction]:
    """The corrections in `files`; recorded if they are `agreed`, for the next refit to learn.

    Raises:
        RunError: the labels of the run are not from people, two files differ in a row, or a
            correction is not among those `agreed`.
        DataError: a file cannot be read.
    """
    with folder.locked():
        expect_people(folder)
        spec = RunSpec.open(folder)
        with Ledger.open(folder.database, readonly=agreed is None) as ledger:
            listed = _corrections(spec, ledger, files)
            if agreed is None or not listed:
                return listed
            if not set(listed) <= set(agreed):
                raise RunError(
                    "expected the corrections that were listed, got others: the sheets or the"
                    " answers have changed since; repeat the command"
                )
            with ledger.together():
                reopen(folder, ledger)
                for new in (correction.answer for correction in listed):
                    ledger.correct(
                        new.item, new.index, new.labeler,
                        slot=new.slot, kind=new.kind, text=new.text, note=new.note,
                    )  # fmt: skip
    return listed


def own_label(folder: RunFolder, item: str, label: str) -> None:
    """Give an item that nobody was asked about a label of the owner's, or another one, for free.

    No label is bought of the other items with its text, as where a file has their label.

    Raises:
        RunError: somebody was asked about it, its text is in an audit, or it is none of the run's.
        SettingsError: the label is none of the item's options, or the run promises a share.
    """
    with folder.locked(), Ledger.open(folder.database) as ledger:
        spec = RunSpec.open(folder)
        usable, bought = spec.sources.usable, set(ledger.bought())
        owned = item in ledger.bought("owned")
        if item not in usable or (item in bought and not owned):
            raise RunError(
                "expected a row that nobody was asked about, got another one: answers are corrected"
                " by the key of their row"
            )
        audited = [usable[id].content for id in ledger.bought("audit") if id in usable]
        if usable[item].content in audited and not owned:
            raise RunError(
                "expected a row with another text than the audited rows, got one with the same: the"
                " model would learn your label and be measured by it; set it in the exported table"
            )
        options = usable[item].candidates
        if label not in options:
            raise SettingsError("expected one of the options of the row as its label, got another")
        if spec.settings.promised_share is not None:
            expect_promise(spec.settings, owned=True)
        bring_arrays(spec, ledger)
        with ledger.together():
            reopen(folder, ledger)
            if owned:
                ledger.correct(item, options.index(label), OWNER)
            else:
                numbered, text = enumerate(spec.dataset.items), usable[item].content
                alike = {row for row, x in numbered if x.content == text and x.id not in bought}
                excluded = sorted(spec.sources.excluded | alike)
                ledger.change_settings({EXCLUDED: Setting(excluded)})
                ledger.own([(item, options.index(label))], OWNER)


def _corrections(spec: RunSpec, ledger: Ledger, files: Sequence[Path]) -> list[Correction]:
    labeler = SheetLabeler(spec, ledger)
    rows = {(row.item, row.slot, row.token): row for row in ledger.private.handed()}
    accepted_rows = {
        (row["item"], row["slot"]): row for row in ledger.export() if row["state"] == "answered"
    }
    by_row: dict[tuple[str, int], Correction] = {}
    for new in labeler.read(files).answers:
        old, row = accepted_rows.get((new.item, new.slot)), rows[new.item, new.slot, new.token]
        if old is None or old["labeler"] != new.labeler:  # of somebody else, or not answered yet
            continue
        word = old["answer"] if old["kind"] == "label" else old["kind"]
        assert isinstance(word, int | str)
        if word == new.word:
            continue
        before, after = _displayed(labeler, row, word), _displayed(labeler, row, new.word)
        correction = Correction(row.key, new.labeler, before, after, new)
        if by_row.setdefault((new.item, new.slot), correction).answer.word != new.word:
            raise RunError(
                f"the row {row.key} has different answers in these files: leave one of them"
            )
    return list(by_row.values())


def _displayed(labeler: SheetLabeler, row: Handed, word: Word) -> str:
    """An answer as the owner of the run reads it; no text of an item is quoted."""
    if isinstance(word, str):
        return word
    if labeler.classes is not None:
        return labeler.classes.names[word]
    candidates = labeler.items[labeler.row[row.item]].candidates
    return sign(row.order.index(word), tuple(candidates[i] for i in row.order))
