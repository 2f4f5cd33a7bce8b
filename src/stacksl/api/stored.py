"""A run on disk: what can be read of it, and the operations on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stacksl.data import Dataset, overlap, strange, unusable
from stacksl.errors import RunError, SettingsError, StackslError, expect, expect_path, warn_user
from stacksl.labelers.protocol import Labeler, Request
from stacksl.labelers.registry import as_labeler
from stacksl.report.quality import AuditResult
from stacksl.report.wording import plural
from stacksl.runs.items.intake import again_in_memory, expect_answers_apart
from stacksl.runs.items.reading import Reading, read_again
from stacksl.runs.items.stored import how_read
from stacksl.runs.settings.resolve import flattened, load_plugins
from stacksl.runs.spec import RunSpec
from stacksl.runs.storage.folder import FACTS, MODEL, RunFolder, expect_derived, read_facts
from stacksl.runs.storage.status import expect_labeler, stated, status_of
from stacksl.types import Item

if TYPE_CHECKING:
    from stacksl.ledger.ledger import Ledger
    from stacksl.models.adapted import AdaptedModel
    from stacksl.models.linear import Model
    from stacksl.runs.changes.change import Outcome
    from stacksl.runs.changes.people import Annotator, Correction, Received
    from stacksl.runs.loop.game import Progress

_Text = TypeVar("_Text", str, str | Path)


def expect_plain(progress: object = None, **flags: object) -> None:
    """Raise a `SettingsError` unless `progress` can be called and all `flags` are true or false."""
    expect(progress is None or callable(progress), "progress should be a function", progress)
    for name, flag in flags.items():  # a data frame has no truth, and numbers are not meant
        fits = type(flag).__name__ in ("bool", "bool_", "NoneType")
        expect(fits, f"{name} should be True or False", flag)


@lru_cache(maxsize=2)
def _linear_model(folder: RunFolder, files: tuple[tuple[Path, int, int], ...]) -> Model:
    """The linear model of a run, kept while its `files` have the same sizes and times of change."""
    from stacksl.models.linear import Model

    load_plugins(folder.resolved().get("plugins"))
    model = Model.load(folder.model)  # first: where it is damaged, the file is named
    expect_derived(folder, MODEL)
    return model


@dataclass(frozen=True, slots=True)
class Run:
    """A run on disk, by its `path`; `frame` is the data frame that it was made from in Python."""

    path: Path
    frame: Any = field(default=None, compare=False, repr=False)
    _absolute: Path = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        path = expect_path(self.path, "the place of a run")
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "_absolute", path.absolute())

    def __repr__(self) -> str:
        """The run by its path, with its state, what it waits for and why."""
        try:
            status = self.status()
        except StackslError:
            return f"Run({str(self.path)!r}, unreadable)"
        places = (status["sheets"] or []) if status["state"] == "waiting" else []
        place = f" of {places[0]['file']}" if len(places) == 1 else ""
        waits = f" for {plural(status['out'], 'answer')}{place}" if places else ""
        reasons = dict.fromkeys([status["sentence"], *(place.get("why") for place in places)])
        state = ": ".join([status["state"] + waits, *filter(None, reasons)])
        return f"Run({str(self.path)!r}, {state})"

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """The run at `path`.

        If the erasing of one of its items was interrupted, it is finished first.

        Raises:
            RunError: there is no run at `path`.
        """
        folder = RunFolder.open(expect_path(path, "the place of a run"))
        if folder.erasing():
            from stacksl.runs.changes.forgetting import finish_erasing

            finish_erasing(folder)
        return cls(folder.path)

    @property
    def folder(self) -> RunFolder:
        """The run's folder; settings and classes are compared with their digest when read.

        Raises:
            RunError: the path is no run.
        """
        moved = self.path.absolute() != self._absolute  # the process is in another folder now
        return RunFolder.at(self._absolute if moved else self.path)

    @property
    def model(self) -> Model | AdaptedModel:
        """The final model; a linear one is read again only when its files have changed.

        Raises:
            RunError: there is none yet, or it is damaged.
            SettingsError: a plugin of the run cannot be imported.
        """
        from stacksl.models.adapted import AdaptedModel, is_adapted

        folder = self.folder
        if is_adapted(folder.model):
            load_plugins(folder.resolved().get("plugins"))
            expect_derived(folder, MODEL)
            return AdaptedModel.load(folder.model)
        files = sorted(path for path in folder.model.glob("*") if path.is_file())
        stats = [(path, path.stat()) for path in files]
        return _linear_model(folder, tuple((p, s.st_size, s.st_mtime_ns) for p, s in stats))

    @property
    def ledger(self) -> Ledger:
        """The run's ledger, to read."""
        from stacksl.ledger.ledger import Ledger

        return Ledger.open(self.folder.database, readonly=True)

    def status(self) -> dict[str, Any]:
        """The status of the run, as `stacksl status --json` prints it."""
        return status_of(self.folder)

    def forecast(self) -> dict[str, Any]:
        """The accuracy to expect at 100, 200, 500 and 1,000 training labels.

        It uses the numbers that the run stored when it last waited or ended, never its audit.

        Returns:
            `labels` learned so far, `rests_on` (a sentence), `expected` (rows of `labels`, `more`
            to buy, their `cost` in money, `accuracy`, `low`, `high`), `now` (the accuracy now, None
            if unknown), and `reason` if nothing can be estimated. Intervals hold 90%.
        """
        from stacksl.api.forecasting import forecast_of_run

        return forecast_of_run(self.folder)

    def predict(
        self,
        data: Any,
        progress: Callable[[int, int], None] | None = None,
        *,
        columns: Mapping[str, str] | None = None,
        features: Any = None,
        right: float | str | None = None,
    ) -> Any:
        """A row per item: `id, choice, index, probability`.

        The rows are an iterator. For a data frame or a series of pandas they are that frame, with
        the columns `label`, `confidence` and `source`. The last bits of an item's probabilities,
        some 1e-15, and some 1e-5 of a language model, depend on the other items.

        Args:
            data: a path, a data frame, a series, a data set, or a list of texts or of items.
            progress: called with (done, total).
            columns: the names of the columns `prompt`, `id` or `candidates`, if they differ from
                those of the run's data.
            features: (n, d), for a run whose features were given as an array.
            right: the share of labels that should be right. Rows then have a `source`, `model` or
                `to a person`; the latter have no label. The share holds in 95 of 100 runs, for rows
                from the same source as the run's.
        """
        from stacksl.api.labeling import PREFIX, answer_cells, joined, left_to_people, threshold_of

        expect_plain(progress)
        threshold = None if right is None else threshold_of(self, right)
        dataset = self.read(data, given=columns)
        items = dataset.items
        if dataset.rejected and isinstance(data, str | Path):
            warn_user("; ".join(unusable(dataset)))
        predictions = self._model_for(items, features).predict(items, progress)
        rows = predictions if threshold is None else left_to_people(predictions, threshold)
        frame = data.to_frame(data.name or "text") if hasattr(data, "to_frame") else data
        if not hasattr(frame, "assign"):
            return ({**row, "id": dataset.own_id(row["id"])} for row in rows)
        return joined(frame, dataset, {row["id"]: answer_cells(row) for row in rows}, PREFIX)

    def read(
        self, data: Any, answers: Any = None, given: Mapping[str, str] | None = None
    ) -> Dataset:
        """Read a file or data in memory as the run's data was read, without loading weights.

        Args:
            data: as for `predict`; `answers` as for `evaluate`.
            given: the columns `prompt`, `label` or `id`, or the `format` of a file, if they differ.

        Raises:
            RunError: there is no model yet.
            DataError: it has no such items, or answers of its own and others are given.
        """
        from stacksl.lm.export.folder import read_provenance
        from stacksl.models.adapted import is_adapted

        expect(given is None or isinstance(given, Mapping), "columns should be a dict", given)
        expect_answers_apart(data, answers)
        folder = self.folder
        reading: Reading = read_provenance(folder.model) if is_adapted(folder.model) else self.model
        if isinstance(data, str | Path):
            dataset = read_again(how_read(folder), reading, expect_path(data, "a file"), given)
        else:
            dataset = again_in_memory(data, answers, reading, given)
        if isinstance(data, Dataset) or dataset.format.startswith("lines"):  # they have no columns
            return dataset
        usual, guessed = (columns.get("prompt") for columns in (reading.columns, dataset.columns))
        if None not in (usual, guessed) and usual != guessed and "prompt" not in (given or {}):
            warn_user(
                f"there is no column '{usual}' as in the run's data, so '{guessed}' is read as the"
                " text: --prompt-column NAME, or columns={'prompt': NAME} in Python, reads another"
            )
        return dataset

    def _model_for(self, items: Sequence[Item], features: Any) -> Model | AdaptedModel:
        """The final model; with the `features` of the items, if they were given as an array."""
        from stacksl.models.linear import Model

        model = self.model
        if features is None or not isinstance(model, Model):
            return model
        return model.with_rows([item.id for item in items], features)

    def labels(self, frame: Any = None, *, names: bool = False) -> Any:
        """The answers that were bought, one row each in the order of purchase.

        If the run was made from a data frame of pandas, or with the `frame` of its items, this is
        that frame with the first answer to each row. Otherwise it is an `api.labeling.Labeled`,
        from whose `rows` pandas makes a data frame: `pandas.DataFrame(run.labels().rows)`.

        Columns: `labeling.COLUMNS`; `label` is the name of the class or the text of the option,
        empty if the `kind` is no label; the time is in UTC, and the price in money. People are
        `annotator 1`, `annotator 2`, ... in the order of the run's setting, or have their `names`.
        Until the run has finished, all purchases of its audit are left out and counted.

        Raises:
            DataError: the rows of `frame` are other items than the run's.
        """
        from stacksl.api.labeling import COLUMNS, bought_answers, own_rows

        expect_plain(names=names)
        spec, table = bought_answers(self, names=names)
        frame = self.frame if frame is None else frame
        if frame is None:
            return table
        fields = COLUMNS[COLUMNS.index("label") :]
        first = reversed(table.rows)  # of several answers to an item the first one stays
        answers = {str(row["item"]): {name: row[name] for name in fields} for row in first}
        return own_rows(spec, frame, answers, "bought_")

    def table(self, frame: Any = None, progress: Callable[[int, int], None] | None = None) -> Any:
        """The run's own rows with their labels, as `stacksl export RUN --table` writes them.

        People's answers stand where there are some, and the model's labels elsewhere: `label`,
        `confidence` and `source`. An answer that names no class leaves the label empty, with a
        source such as `human: none`. If the run was made from a data frame of pandas, or with that
        `frame`, this is the frame with these columns, else an object like that of `labels()`.

        Raises:
            RunError: the run has never finished; while it goes on, the table is of its last end.
            DataError: the rows of `frame` are other items than the run's.
        """
        from stacksl.api.labeling import label_own

        expect_plain(progress)
        return label_own(self, progress, self.frame if frame is None else frame)

    def evaluate(
        self,
        data: Any,
        answers: Any = None,
        progress: Callable[[int, int], None] | None = None,
        *,
        columns: Mapping[str, str] | None = None,
        features: Any = None,
    ) -> dict[str, Any]:
        """The final model on items with answers: `n, accuracy, macro_f1, interval` and more.

        An unusable row counts as wrong. `stated` has the accuracy that the run's audit measured,
        and whether it fell since. The arguments are the same as for `predict`, with `answers` as
        `stacksl.run` takes them. Rows without answers are compared with the run's rows instead;
        keep them in the order in which they arrived. The keys are the same as in
        `stacksl evaluate --json`.

        Raises:
            DataError: rows without answers are fewer than 50, or those of the run are.
        """
        from stacksl.api.watching import watch
        from stacksl.models.evaluation import evaluate

        expect_plain(progress)
        run, spec = {"run": str(self.path)}, RunSpec.open(self.folder)
        dataset = self.read(data, answers, columns)
        model = self._model_for(dataset.items, features)
        typos = "did you mean" in strange(dataset.other_labels, dataset.classes or (), quoted=False)
        if not (dataset.answers or dataset.unknown or typos):
            with self.ledger as ledger:
                return {**run, **watch(spec, ledger, model, dataset, progress)}
        if {"confidence", "source"} <= {*dataset.unused}:
            warn_user(
                "the file has columns 'confidence' and 'source', as `stacksl predict` writes them:"
                " if a model gave its labels, this is no accuracy but agreement with that model"
            )
        outcome = evaluate(model, dataset, progress)
        if dataset.unknown and model.classes is not None:
            examples = strange(dataset.unknown, model.classes, quoted=False)
            of = f"of {dataset.name}"
            rows = plural(len(dataset.unknown), f"row {of} counts", f"rows {of} count")
            warn_user(f"{rows} as wrong, as the label is none of the classes ({examples})")
        as_audit = AuditResult(outcome.scored, outcome.correct, 0, 0, None, 0, 1, 0, 1)
        shared = overlap(spec.dataset.items, dataset.items)
        judged = stated(self.folder.path, as_audit)
        return {**run, **outcome.row(), "shared": shared, "stated": judged}

    def report(self) -> Path:
        """Write the report again from the run's facts; its path.

        Raises:
            RunError: the run has not finished.
        """
        from stacksl.ledger.ledger import Ledger
        from stacksl.runs.finish.finish import write_pages

        if not (self.folder.path / "facts.json").is_file():
            status = self.status()
            step = status["resume"] or f"stacksl status {self.path}"
            raise RunError(
                f"there is no report in {self.path}: it is written at the end of the run, to which"
                f" `{step}` leads"
            )
        read_facts(self.folder)  # first: where they are damaged, that is said
        expect_derived(self.folder, MODEL, FACTS)
        with Ledger.open(self.folder.database) as ledger:
            return write_pages(self.folder, ledger)

    # Operations ----------------------------------------------------------------------------------

    def resume(
        self,
        progress: Callable[[Progress], None] | None = None,
        *,
        labeler: Labeler | Callable[[Request], Any] | None = None,
    ) -> Run:
        """Continue an interrupted run, to the same result.

        Args:
            progress: called with the progress of the run.
            labeler: the labeler; needed if the run began with a labeler object.

        Raises:
            RunLocked: another process holds the run.
            StackslError: the database or the features are damaged or not the run's own.
        """
        from stacksl.runs.session.language import expect_room
        from stacksl.runs.session.session import Session

        expect_plain(progress)
        if isinstance(labeler, str):
            raise SettingsError(
                "labeler should be the object or the function that answers this run, got the name"
                f" '{labeler}': `change(labeler='{labeler}')` gives the run another labeler"
            )
        if self._finished():
            return self
        with self.folder.locked(inside=True):
            if self._finished():  # by the process that held the lock
                return self
            spec = RunSpec.open(self.folder)
            if spec.settings.adapts:
                expect_room(spec.settings, spec.dataset.items)
            with Session.open(spec, progress, labeler=as_labeler(labeler)) as session:
                session.play(tells=True)
        return self

    def _finished(self) -> bool:
        """Whether the run has finished and all its results are on disk."""
        finished = self.folder.read_state()["state"] == "finished"
        if not finished or not self.folder.has_results():
            return False
        expect_derived(self.folder, MODEL, FACTS)
        return True

    def answer(
        self,
        *files: str | Path,
        correct: Sequence[Correction] | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Received:
        """Read answers from filled-in sheets, and continue until more answers are needed.

        Args:
            files: the sheets.
            correct: the result of `corrections` for these sheets, to replace accepted answers.
            progress: called with the progress of the run.

        Raises:
            RunError: the labels of this run do not come from people, or the corrections are not
                those listed.
            DataError: a file cannot be read; no answer was taken then.
        """
        from stacksl.runs.changes.people import answer, corrections

        expect_plain(progress)
        expect(isinstance(correct, Sequence | None), "correct should be a list", correct)
        folder, paths = self.folder, [expect_path(file, "a sheet") for file in files]
        if not correct:
            return answer(folder, paths, progress)
        with folder.locked(inside=True):
            corrected = len(corrections(folder, paths, correct))
            received = answer(folder, paths, progress)
            repeated = max(0, received.repeated - corrected)  # a correction is read a second time
            return replace(received, repeated=repeated, corrected=corrected)

    def corrections(self, *files: str | Path) -> list[Correction]:
        """The accepted answers to which these sheets have another answer of the same person."""
        from stacksl.runs.changes.people import corrections

        return corrections(self.folder, [expect_path(file, "a sheet") for file in files])

    def people(
        self,
        *,
        away: str | Sequence[str] = (),
        back: str | Sequence[str] = (),
        free: str | bool = False,
        keys: Sequence[str] = (),
        drop: bool = False,
        set_aside: str | Sequence[str] = (),
        keep: str | Sequence[str] = (),
        dry_run: bool = False,
        progress: Callable[[Progress], None] | None = None,
    ) -> int:
        """Free rows that were handed out, and say whose answers count; gives how many rows.

        Freed rows are handed out again. If a program answers the run, `free=True` frees all open
        questions; if that program is a Python object, `resume(labeler=...)` then continues.

        Args:
            away: annotators who get no rows until they are back; their open rows are freed.
            back: annotators who get rows again; a second look that nobody could do goes on.
            free: free the open rows of this annotator, or with True all open rows.
            keys: free only these rows.
            drop: buy other items instead of freed rows, none of which comes back; an audit
                counts its dropped rows as unknown.
            set_aside: annotators whose answers are left out of training, and out of an audit that
                was not shown yet; they get no rows, and their open rows are freed.
            keep: annotators whose answers count again, and who are no longer tested.
            dry_run: only count the rows that would be freed.
            progress: called with the progress of the run.

        Raises:
            RunError: the run is not answered by people, no such row is open, an annotator is
                unknown, or no annotator would be left.
        """
        from stacksl.runs.changes.people import free_rows

        expect_plain(progress, free=isinstance(free, str) or free, drop=drop, dry_run=dry_run)
        given = {"away": away, "back": back, "set_aside": set_aside, "keep": keep, "keys": keys}
        who: dict[str, Any] = {purpose: _several(names) for purpose, names in given.items()}
        freed = free_rows(self.folder, **who, free=free, drop=drop, dry_run=dry_run)
        if not dry_run and "labeler" not in self.folder.read_state():  # else an object answers
            self.resume(progress)
        return freed

    def annotators(self) -> list[Annotator]:
        """The annotators: name, open and answered rows, and whether they are away."""
        from stacksl.runs.changes.people import people

        return people(self.folder)

    def change(
        self,
        *,
        budget: str | float | None = None,
        items: str | Path | Sequence[str | Path] = (),
        owned: str | Path | Sequence[str | Path] = (),
        classes: str | Sequence[str] | Mapping[str, str] = (),
        reopen: bool = False,
        annotators: str | Sequence[str] = (),
        later: bool = False,
        dry_run: bool = False,
        agreed: Outcome | None = None,
        labeler: Labeler | Callable[[Request], Any] | str | None = None,
        stop_when: str | None = None,
        settings: Mapping[str, Any] | None = None,
        drop: bool = False,
        progress: Callable[[Progress], None] | None = None,
    ) -> Outcome:
        """Change the run, in any combination, and continue it; gives the outcome of the change.

        The whole change is checked before anything is written, and recorded in one transaction.

        Args:
            budget: labels in all, a share of the items, or money such as `$400`; `+$300` adds.
            items: files of more items to choose from, like the run's own.
            owned: files of items with labels that you already have: learned, and free.
            classes: names of classes to add, or names with descriptions. Answers of none of the
                classes whose right text is such a name are learned, and free.
            reopen: buy one more label of each other item answered with none of the classes.
            annotators: names to add. They get rows that are handed out from now on.
            later: only record the change; `resume` continues the run.
            dry_run: return the outcome, and write nothing.
            agreed: the outcome of `dry_run` that the user agreed to; no more is bought than that.
            labeler: a name such as `file`: that labeler takes the place of the one before, and is
                asked the open questions; or a labeler object.
            stop_when: another stop rule, such as `accuracy=0.9`.
            settings: `open_questions` of a pool, and of a language model's training from the next
                refit on, such as after one that ran out of memory or diverged.
            drop: withdraw all open questions for good; the budget can then be what was answered.
            progress: called with the progress of the run.

        Raises:
            SettingsError: a value that is wrong, or that budget or items do not allow.
            DataError: a file cannot be read as the run's own was, or has ids that are taken.
            RunError: the run has not asked for a label yet, or does not allow the change.
        """
        from stacksl.runs.changes.change import Change, change_run

        expect_plain(progress, reopen=reopen, later=later, dry_run=dry_run, drop=drop)
        reason = "annotators should be names alone, as a label has one price, whoever answers it"
        expect(not isinstance(annotators, Mapping), reason, annotators)
        names = _several(classes)
        requested = Change(
            None if budget is None else str(budget),
            tuple(str(expect_path(file, "a file").absolute()) for file in _several(items, object)),
            tuple(str(expect_path(file, "a file").absolute()) for file in _several(owned, object)),
            dict.fromkeys(names, "") | dict(classes if isinstance(classes, Mapping) else {}),
            reopen,
            tuple(_several(annotators)),
            labeler if isinstance(labeler, str) else None,
            None if stop_when is None else str(stop_when),
            flattened({} if settings is None else settings),
            bool(drop),
        )
        labeler = None if isinstance(labeler, str) else labeler
        later = later or dry_run
        if not later and requested.labeler is None:
            expect_labeler(self.folder, as_labeler(labeler))
        outcome = change_run(self.folder, requested, agreed, dry_run=dry_run)
        if not later:
            self.resume(progress, labeler=labeler)
        return outcome

    def refit_with_audit(self) -> int:
        """Refit the final model of a finished run on the audit's labels too; gives how many.

        The report keeps the accuracy of the model before, and says so.

        Raises:
            RunError: the run has not finished, or has no audit.
        """
        from stacksl.runs.session.session import train_on_audit

        return train_on_audit(RunSpec.open(self.folder))

    def replay(self) -> dict[str, Any]:
        """Play the record again and compare; gives `rows` played, `rounds`, `labels`.

        `after` is the row after which it was played: 0, unless an item was erased.
        """
        from stacksl.runs.session.session import replay_run

        return replay_run(RunSpec.open(self.folder))


def _several(one_or_more: _Text | Iterable[_Text], kinds: type = str) -> list[_Text]:
    several = isinstance(one_or_more, Iterable) and not isinstance(one_or_more, str | bytes)
    several &= not hasattr(one_or_more, "columns")  # a data frame
    names: list[Any] = list(one_or_more) if several else [one_or_more]  # type: ignore[arg-type]
    for name in names:
        fits = isinstance(name, kinds if several else str | Path)
        expect(fits, "a name, a path or a list of them was expected", name)
    return names
