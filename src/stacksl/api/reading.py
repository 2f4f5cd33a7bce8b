"""What can be read of a run on disk: its status, ledger, model and what that says of items."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from stacksl.data import Dataset
from stacksl.errors import RunError
from stacksl.runs.items.intake import again_in_memory
from stacksl.runs.items.stored import read_like_run
from stacksl.runs.settings.resolve import load_plugins
from stacksl.runs.storage.folder import RunFolder
from stacksl.runs.storage.status import status_of
from stacksl.types import Item

if TYPE_CHECKING:
    from stacksl.api.labelling import Labelled
    from stacksl.ledger.ledger import Ledger
    from stacksl.models.adapted import AdaptedModel
    from stacksl.models.linear import Model


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run on disk, by its `path`: the part of `Run` that changes nothing but its report."""

    path: Path

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """The run at `path`.

        Where the erasing of an item of it was interrupted, that is finished first.

        Raises:
            RunError: there is none.
        """
        folder = RunFolder.open(Path(path))
        if folder.erasing():
            from stacksl.runs.changes.forgetting import finish_erasing

            finish_erasing(folder)
        return cls(folder.path)

    @property
    def folder(self) -> RunFolder:
        """The run's folder.

        Raises:
            RunError: it is not a run.
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

        folder = self.folder.model
        load_plugins(self.folder.resolved().get("plugins"))
        return AdaptedModel.load(folder) if is_adapted(folder) else Model.load(folder)

    @property
    def ledger(self) -> Ledger:
        """The run's ledger, to read."""
        from stacksl.ledger.ledger import Ledger

        return Ledger.open(self.folder.database, readonly=True)

    def status(self) -> dict[str, Any]:
        """The status of the run, as `stacksl status --json` prints it."""
        return status_of(self.folder)

    def predict(
        self, data: Any, progress: Callable[[int, int], None] | None = None, *, features: Any = None
    ) -> Iterator[dict[str, Any]]:
        """One row an item: `id, choice, index, probability, online_choice, score, lower, upper`.

        Args:
            data: a path, a data frame, a data set, or a list of texts or of items.
            progress: called with (done, total).
            features: (n, d), of a run whose features were given as an array.
        """
        items = self.read(data).items
        return self._model_of(items, features).predict(items, progress)

    def read(
        self, data: Any, answers: Any = None, given: Mapping[str, str] | None = None
    ) -> Dataset:
        """What is in a file or in memory, read as the run's data was; loads no weights.

        Args:
            data: as of `predict`; `answers` as of `evaluate`.
            given: `format`, `prompt`, `label` or `id` of a file, where these differ.

        Raises:
            RunError: there is no model yet.
        """
        from stacksl.lm.export.folder import read_about
        from stacksl.models.adapted import is_adapted

        model = self.folder.model
        reading = read_about(model) if is_adapted(model) else self.model
        if isinstance(data, str | Path):
            return read_like_run(self.folder, reading, data, given)
        return again_in_memory(data, answers, reading)

    def _model_of(self, items: Sequence[Item], features: Any) -> Model | AdaptedModel:
        """The final model; with the `features` of the items, if they were given as an array."""
        from stacksl.models.linear import Model

        model = self.model
        if features is None or not isinstance(model, Model):
            return model
        return model.with_rows([item.id for item in items], features)

    def labels(self, *, names: bool = False) -> Labelled:
        """The answers that were bought, one row each in the order of purchase.

        Columns: `labelling.COLUMNS`; `label` is the name of the class or the text of the option,
        empty where the answer is none; the time is in UTC, the price in money. People are
        `annotator 1`, `annotator 2`, ... in the order of the run's setting, by `names` if wanted.
        Until the run has finished, all purchases of its audit are left out and counted.
        """
        from stacksl.api.labelling import COLUMNS, Labelled, bought_answers

        found = bought_answers(self, names=names)
        return Labelled(COLUMNS, [each.row for each in found.answers], found.left_out)

    def evaluate(
        self,
        data: Any,
        answers: Any = None,
        progress: Callable[[int, int], None] | None = None,
        *,
        features: Any = None,
    ) -> dict[str, Any]:
        """The final model on items with answers: `n, accuracy, macro_f1, interval` and more.

        An unusable row counts as wrong. The arguments are those of `predict`, with `answers` as
        `stacksl.run` takes them.
        """
        from stacksl.models.evaluation import evaluate

        dataset = self.read(data, answers)
        model = self._model_of(dataset.items, features)
        return {"run": str(self.path), **evaluate(model, dataset, progress).row()}

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
            status = self.status()
            step = status["resume"] or f"stacksl status {self.path}"
            raise RunError(
                f"the report of {self.path} is written when the run has finished, and it is"
                f" {status['state']}: `{step}`"
            )
        return write_pages(self.folder, text=text, class_names=class_names)
