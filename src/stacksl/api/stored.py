"""A run on disk: its status, model and ledger, and the operations on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stacksl.errors import RunError, StackslError
from stacksl.runs.storage.folder import RunFolder

if TYPE_CHECKING:
    from stacksl.labelers.protocol import Labeler
    from stacksl.ledger.ledger import Ledger
    from stacksl.models.adapted import AdaptedModel
    from stacksl.models.linear import Model
    from stacksl.runs.changes.change import Outcome
    from stacksl.runs.changes.freeing import Annotator
    from stacksl.runs.items.sources import Reading
    from stacksl.runs.loop.progress import Progress
    from stacksl.runs.session.answering import Received

_Text = TypeVar("_Text", str, str | Path)


@dataclass(frozen=True, slots=True)
class Run:
    """A run on disk, by its `path`."""

    path: Path

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """The run at `path`.

        Raises:
            RunError: there is none.
        """
        return cls(RunFolder.open(Path(path)).path)

    @property
    def folder(self) -> RunFolder:
        """The run's folder.

        Raises:
            RunError: it is not a run, or forgetting one of its items was interrupted.
        """
        return RunFolder.open(self.path)

    @property
    def model(self) -> Model | AdaptedModel:
        """The final model.

        Raises:
            RunError: there is none yet, or it is damaged.
            SettingsError: a plugin of the run cannot be imported.
        """
        from stacksl.models.adapted import AdaptedModel, is_adapted
        from stacksl.models.linear import Model
        from stacksl.runs.settings.plugins import load_plugins

        folder = self.folder.model
        load_plugins(self.folder.resolved().get("plugins"))
        return AdaptedModel.load(folder) if is_adapted(folder) else Model.load(folder)

    @property
    def reading(self) -> Reading:
        """How the model reads files: its classes and columns; loads no weights of a language model.

        Raises:
            RunError: there is no model yet.
        """
        from stacksl.lm.export.folder import read_about
        from stacksl.models.adapted import is_adapted

        return read_about(self.folder.model) if is_adapted(self.folder.model) else self.model

    @property
    def ledger(self) -> Ledger:
        """The run's ledger, to read."""
        from stacksl.ledger.ledger import Ledger

        if not self.folder.ledger.exists():
            raise RunError(f"the run {self.path} has no ledger yet: it stopped before round 1")
        return Ledger.open(self.folder.ledger, readonly=True)

    def status(self) -> dict[str, Any]:
        """The status of the run, as `stacksl status --json` prints it."""
        from stacksl.runs.storage.status import status_of

        return status_of(self.folder)

    def predict(
        self, data: Any, progress: Callable[[int, int], None] | None = None
    ) -> Iterator[dict[str, Any]]:
        """One row an item: `id, choice, index, probability, online_choice, score, lower, upper`."""
        from stacksl.runs.items.sources import read_again

        items = data if _path(data) is None else read_again(self.folder, self.reading, data).items
        return self.model.predict(list(getattr(items, "items", items)), progress)

    def evaluate(
        self,
        data: Any,
        answers: Mapping[str, int] | Sequence[int] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> dict[str, Any]:
        """The final model on items with answers: `n, accuracy, macro_f1, interval` and more.

        An unusable row counts as wrong.
        """
        from stacksl.models.evaluation import evaluate
        from stacksl.runs.items.intake import in_memory, like
        from stacksl.runs.items.sources import read_again

        if _path(data) is not None:
            dataset = read_again(self.folder, self.reading, data)
        else:
            dataset = like(in_memory(data, answers), self.reading.classes)
        return {"run": str(self.path), **evaluate(self.model, dataset, progress).row()}

    def report(self, *, text: bool = True, class_names: bool = False) -> Path:
        """Write the report again from the run's facts; its path.

        Args:
            text: False writes the page and the card to forward into the folder `no-text`: without
                prompts, candidates, ids and column names.
            class_names: True keeps the names of classes there.

        Raises:
            RunError: the run has not finished.
        """
        from stacksl.runs.finish.finish import write_pages

        if not (self.path / "facts.json").is_file():
            state = self.folder.read_state()["state"]
            raise RunError(
                f"the report of {self.path} is written when the run has finished, and it is"
                f" {state}: `stacksl resume {self.path}`"
            )
        return write_pages(self.folder, text=text, class_names=class_names)

    def resume(
        self,
        progress: Callable[[Progress], None] | None = None,
        *,
        data: str | Path | None = None,
        labeler: Labeler | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Run:
        """Continue an interrupted run, to the same result.

        Args:
            progress: called with the progress of the run.
            data: the data file, if it was moved.
            labeler: the labeler, where the settings name none; needed for a labeler object.
            settings: settings of a language model's training, changed from here on, after a refit
                that ran out of memory or diverged. The result then differs.

        Raises:
            RunLocked: another process holds the run.
            StackslError: the data, the ledger or the features are not the run's own.
        """
        from stacksl.runs.items.identity import records_of
        from stacksl.runs.session.memory import expect_room
        from stacksl.runs.session.session import Session
        from stacksl.runs.spec import RunSpec

        if self._finished(settings):
            return self
        with self.folder.locked():
            if self._finished(settings):  # by the process that held the lock
                return self
            spec = RunSpec.open(self.folder, None if data is None else str(data))
            wanted = spec.with_training(settings or {})
            if data is not None and self.folder.ledger.exists():
                with self.ledger as ledger:  # before the state is written
                    ledger.check_items(records_of(spec))
            if spec.settings.adapts:
                expect_room(wanted, spec.dataset.items, spec.budget.labels)
            given: dict[str, Any] = {"labeler": labeler, "changes": settings}
            with Session.open(spec, progress or _silent, held=True, **given) as session:
                session.play()
        return self

    def _finished(self, settings: Mapping[str, Any] | None) -> bool:
        """Whether the run has finished and all its results are on disk."""
        from stacksl.runs.spec import PENDING

        pending = PENDING in self.folder.resolved()
        finished = self.folder.read_state()["state"] == "finished" and not pending
        if finished and settings:
            raise RunError(f"the run {self.path} has finished: no setting of it can change")
        return bool(finished) and self.folder.has_results()

    def answer(
        self, *files: str | Path, progress: Callable[[Progress], None] | None = None
    ) -> Received:
        """Read answers from filled-in sheets, and continue until more answers are needed.

        Raises:
            RunError: the labels of this run do not come from people.
            DataError: a file cannot be read; no answer was taken then.
        """
        from stacksl.runs.session.answering import answer

        return answer(self.folder, [Path(file) for file in files], progress or _silent)

    def people(
        self,
        *,
        away: str | Sequence[str] = (),
        back: str | Sequence[str] = (),
        free: str | bool = False,
        keys: Sequence[str] = (),
        drop: bool = False,
        progress: Callable[[Progress], None] | None = None,
    ) -> int:
        """Free rows that were handed out, and mark annotators as away; gives how many rows.

        Freed rows are handed out again.

        Args:
            away: annotators who get no rows until they are back; those they have are freed.
            back: annotators who get rows again, from the next sheets on.
            free: free the rows of this annotator, or with True all that are open.
            keys: free these rows alone.
            drop: buy other items instead of freed rows; rows of the audit are handed out again
                in any case.
            progress: called with the progress of the run.

        Raises:
            RunError: the run is not answered by people, no such row is open, an annotator is
                unknown, or no annotator would be left.
        """
        from stacksl.runs.changes.freeing import free_rows

        absent, present = _several(away), _several(back)
        freed = free_rows(self.folder, away=absent, back=present, free=free, keys=keys, drop=drop)
        if freed or absent:
            self.resume(progress)
        return freed

    def annotators(self) -> list[Annotator]:
        """The annotators: name, open and answered rows, and whether they are away."""
        from stacksl.runs.changes.freeing import people

        return people(self.folder)

    def change(
        self,
        *,
        budget: str | float | None = None,
        items: str | Path | Sequence[str | Path] = (),
        owned: str | Path | Sequence[str | Path] = (),
        classes: str | Sequence[str] | Mapping[str, str] = (),
        reopen: bool = False,
        annotators: str | Sequence[str] | Mapping[str, object] = (),
        later: bool = False,
        dry_run: bool = False,
        agreed: Outcome | None = None,
        labeler: Labeler | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Outcome:
        """Change the run, in any combination, and continue it; gives the outcome of the change.

        The whole change is checked before anything is written, and recorded in one transaction.

        Args:
            budget: labels in all, a share of the items, or money such as `$400`.
            items: files of more items to choose from, like the run's own.
            owned: files of items with labels that are owned already: learnt, and free.
            classes: names of classes to add, or names with descriptions. Answers of none of the
                classes whose right text is such a name are learnt, and free.
            reopen: buy one more label of each other item answered with none of the classes.
            annotators: names to add, or names with the price of an answer. They get rows that are
                handed out from now on.
            later: only record the change; `resume` continues the run.
            dry_run: return the outcome, and write nothing.
            agreed: the outcome of `dry_run` that the user agreed to; no more is bought than that.
            labeler: the labeler, where the settings name none.
            progress: called with the progress of the run.

        Raises:
            SettingsError: a value that is wrong, or that budget, items or prices do not allow.
            DataError: a file cannot be read as the run's own was, or has ids that are taken.
            RunError: the run has not asked for a label yet, or does not allow the change.
        """
        from stacksl.runs.changes.change import Change, change_run, preview
        from stacksl.runs.storage.state import expect_labeler

        wanted = Change(
            None if budget is None else str(budget),
            tuple(map(str, _several(items))),
            tuple(map(str, _several(owned))),
            dict(classes) if isinstance(classes, Mapping) else dict.fromkeys(_several(classes), ""),
            reopen,
            {name: None if price is None else str(price) for name, price in annotators.items()}
            if isinstance(annotators, Mapping)
            else dict.fromkeys(_several(annotators)),
        )
        if dry_run:
            return preview(self.folder, wanted)
        if not later:
            expect_labeler(self.folder, labeler)
        found = change_run(self.folder, wanted, agreed)
        if not later:
            self.resume(progress, labeler=labeler)
        return found

    def refit_with_audit(self) -> int:
        """Refit the final model of a finished run on the audit's labels too; gives how many.

        The accuracy in the report is still that of the model before, and is marked as such.

        Raises:
            RunError: the run has not finished, or has no audit.
        """
        from stacksl.runs.session.views import train_on_audit
        from stacksl.runs.spec import RunSpec

        return train_on_audit(RunSpec.open(self.folder))

    def replay(self) -> dict[str, Any]:
        """Replay the ledger and compare; gives `rows` replayed, `rounds`, `labels`."""
        from stacksl.runs.session.views import replay_run
        from stacksl.runs.spec import RunSpec

        return replay_run(RunSpec.open(self.folder))


def list_runs(folder: str | Path = "runs") -> list[dict[str, Any]]:
    """The status of each run under `folder`, newest first."""
    root = Path(folder)
    if not root.is_dir():
        return []
    found = [path.parent for path in root.glob("*/run.toml")]
    found.sort(key=lambda path: (path / "run.toml").stat().st_mtime, reverse=True)
    return [_status_or_fault(path) for path in found]


def _status_or_fault(path: Path) -> dict[str, Any]:
    """A run's status, or the fault for one that cannot be read."""
    try:
        return Run(path).status()
    except StackslError as fault:
        counts = dict.fromkeys(("rounds", "budget", "asked", "left", "money"))
        return {"run": str(path), "state": "unreadable", **counts, "sentence": str(fault)}


def _silent(progress: Progress) -> None:
    """Ignore progress."""


def _several(given: _Text | Sequence[_Text]) -> list[_Text]:
    """One value, or each of several."""
    return [given] if isinstance(given, str | Path) else list(given)


def _path(data: Any) -> str | None:
    return str(data) if isinstance(data, str | Path) else None
