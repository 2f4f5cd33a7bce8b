"""A run on disk: what can be asked of it, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stacksl.errors import RunError, StackslError
from stacksl.runs.folder import RunFolder

if TYPE_CHECKING:
    from stacksl.labels.labelers import Labeler
    from stacksl.labels.ledger import Ledger
    from stacksl.runs.adapted import AdaptedModel
    from stacksl.runs.adding import Prospect
    from stacksl.runs.answering import Received
    from stacksl.runs.model import Model
    from stacksl.runs.progress import Progress
    from stacksl.runs.sources import Reading

__all__ = ["Run", "list_runs"]


@dataclass(frozen=True, slots=True)
class Run:
    """A run on disk, by its `path`."""

    path: Path

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """The run at `path`.

        Raises:
            RunError: if there is none.
        """
        return cls(RunFolder.open(Path(path)).path)

    @property
    def folder(self) -> RunFolder:
        """The run's folder.

        Raises:
            RunError: if it is none, or one of its items is forgotten by halves.
        """
        return RunFolder.open(self.path)

    @property
    def model(self) -> Model | AdaptedModel:
        """The model that came out."""
        from stacksl.runs.adapted import AdaptedModel, is_adapted
        from stacksl.runs.model import Model

        folder = self.folder.model
        return AdaptedModel.load(folder) if is_adapted(folder) else Model.load(folder)

    @property
    def reading(self) -> Reading:
        """How the model reads files: its classes and columns; loads no weights of a language model.

        Raises:
            RunError: there is no model yet.
        """
        from stacksl.lm.handover import read_about
        from stacksl.runs.adapted import is_adapted

        return read_about(self.folder.model) if is_adapted(self.folder.model) else self.model

    @property
    def ledger(self) -> Ledger:
        """The run's ledger, to read."""
        from stacksl.labels.ledger import Ledger

        if not self.folder.ledger.exists():
            raise RunError(f"the run {self.path} has no ledger yet: it stopped before round 1")
        return Ledger.open(self.folder.ledger, readonly=True)

    def status(self) -> dict[str, Any]:
        """Where the run stands: the contract of `stacksl status --json`."""
        from stacksl.runs.status import status_of

        return status_of(self.folder)

    def predict(
        self, data: Any, progress: Callable[[int, int], None] | None = None
    ) -> Iterator[dict[str, Any]]:
        """One row an item: `id, choice, index, probability, online_choice, score, lower, upper`."""
        from stacksl.runs.sources import read_again

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
        from stacksl.runs.evaluation import evaluate
        from stacksl.runs.intake import in_memory, like
        from stacksl.runs.sources import read_again

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
            RunError: if the run has not finished.
        """
        from stacksl.runs.finish import write_pages

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
        """Go on from where the run was cut off, to the same end.

        Args:
            progress: told how far the run is.
            data: where the data file lies now, if it was moved.
            labeler: who answers, where the settings name none; needed where an object of yours did.
            settings: of a language model's training, changed from here on: after a refit that ran
                out of memory or diverged. The end is then another one.

        Raises:
            RunLocked: another process holds the run.
            StackslError: the data, the ledger or the features are not the run's own.
        """
        from stacksl.runs.execution import execute
        from stacksl.runs.job import Job
        from stacksl.runs.room import expect_room

        if self._finished(settings):
            return self
        with self.folder.locked():
            if self._finished(settings):  # by whom the run was waited for
                return self
            job = Job.open(self.folder, None if data is None else str(data))
            if job.settings.adapts:
                wanted = job.with_training(settings or {})
                expect_room(wanted, job.dataset.items, job.budget.labels)
            execute(job, progress or _silent, labeler, changes=settings, held=True)
        return self

    def _finished(self, settings: Mapping[str, Any] | None) -> bool:
        """Whether the run is at its end and its results, if deleted, need not be made again."""
        finished = self.folder.read_state()["state"] == "finished"
        if finished and settings:
            raise RunError(f"the run {self.path} has finished: no setting of it can change")
        return bool(finished) and self.folder.has_results()

    def answer(
        self, *files: str | Path, progress: Callable[[Progress], None] | None = None
    ) -> Received:
        """Take answers from sheets that people filled in, and go on until the run waits again.

        Raises:
            RunError: the labels of this run do not come from people.
            DataError: a file cannot be read; nothing of any was taken then.
        """
        from stacksl.runs.answering import answer

        return answer(self.folder, [Path(file) for file in files], progress or _silent)

    def release(
        self,
        *,
        annotator: str | None = None,
        keys: Sequence[str] = (),
        drop: bool = False,
        away: bool = False,
        progress: Callable[[Progress], None] | None = None,
    ) -> int:
        """Free rows that were handed out, and hand them out anew; how many.

        Args:
            annotator: only the rows of this one.
            keys: only these rows.
            drop: buy other items instead; rows of the audit are handed out again all the same.
            away: give the annotator no new rows either, until `welcome`.
            progress: told how far the run is.

        Raises:
            RunError: no row that waits is meant.
        """
        from stacksl.runs.answering import release

        freed = release(self.folder, annotator=annotator, keys=keys, drop=drop, away=away)
        self.resume(progress)
        return freed

    def welcome(self, annotator: str) -> None:
        """Let an annotator who was away have rows again, from the next sheets on.

        Raises:
            RunError: the run knows no such annotator.
        """
        from stacksl.runs.answering import welcome

        welcome(self.folder, annotator)

    def change_budget(self, budget: str | float) -> int:
        """Give the run another budget, taken up when it is resumed; the labels in all.

        Raises:
            SettingsError: it is no budget, or below what is spent already.
        """
        from stacksl.runs.changing import change_budget

        return change_budget(self.folder, str(budget)).labels

    def extend(self, path: str | Path, *, owned: bool = False) -> int:
        """Give the run more items to choose from, taken up when it is resumed; how many.

        Args:
            path: a file like the run's own.
            owned: its labels are held already: they are learnt, and cost nothing.

        Raises:
            DataError: the file cannot be read as the run's own was, or brings ids that are taken.
        """
        from stacksl.runs.changing import add_file

        return add_file(self.folder, path, "owned" if owned else "pool")

    def add_class(
        self,
        name: str,
        *,
        description: str = "",
        reopen: Collection[str] | bool = False,
        progress: Callable[[Progress], None] | None = None,
    ) -> Prospect:
        """Add a class to a run that has begun, and go on with it; what became of earlier answers.

        Args:
            name: of the class. Answers of none of these whose right text is it are learnt, free.
            description: what it means, where that helps.
            reopen: buy one more label of each other item that was answered with none of these, or
                of those that are given.
            progress: told how far the run is.

        Raises:
            RunError: the run has no fixed classes, or trains a language model.
            SettingsError: there is such a class, or the budget has too few labels left to reopen.
        """
        from stacksl.runs.adding import add_class

        told = progress or _silent
        return add_class(self.folder, name, told, description=description, reopen=reopen)

    def ask_again(
        self,
        *,
        agreed: Collection[str] | bool = True,
        progress: Callable[[Progress], None] | None = None,
    ) -> Prospect:
        """Buy one more label of each item answered with none before the last class was added.

        Args:
            agreed: of these items alone, where they are given.
            progress: told how far the run is.

        Raises:
            RunError: there is nothing to ask for once more.
            SettingsError: the budget has too few labels left.
        """
        from stacksl.runs.adding import ask_again

        return ask_again(self.folder, progress or _silent, agreed)

    def refit_with_audit(self) -> int:
        """Let the audit's labels join the final model of a finished run; how many.

        What the report says of its accuracy stays that of the model before, and says so.

        Raises:
            RunError: the run has not finished, or has no audit.
        """
        from stacksl.runs.execution import train_on_audit
        from stacksl.runs.job import Job

        return train_on_audit(Job.open(self.folder))

    def replay(self) -> dict[str, Any]:
        """Play the ledger again and compare; `rows` replayed, `rounds`, `labels`."""
        from stacksl.runs.execution import replay_run
        from stacksl.runs.job import Job

        return replay_run(Job.open(self.folder))


def list_runs(folder: str | Path = "runs") -> list[dict[str, Any]]:
    """The status of each run under `folder`, newest first."""
    root = Path(folder)
    if not root.is_dir():
        return []
    found = [path.parent for path in root.glob("*/run.toml")]
    found.sort(key=lambda path: (path / "run.toml").stat().st_mtime, reverse=True)
    return [_status_or_fault(path) for path in found]


def _status_or_fault(path: Path) -> dict[str, Any]:
    """A run's status; one that cannot be read hides none of the others."""
    try:
        return Run(path).status()
    except StackslError as fault:
        counts = dict.fromkeys(("rounds", "budget", "asked", "left", "money"))
        return {"run": str(path), "state": "unreadable", **counts, "sentence": str(fault)}


def _silent(progress: Progress) -> None:
    """Tell nobody."""


def _path(data: Any) -> str | None:
    return str(data) if isinstance(data, str | Path) else None
