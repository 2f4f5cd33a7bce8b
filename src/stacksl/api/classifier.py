"""A scikit-learn classifier that may look at a few of its training labels only."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from stacksl.api.planning import run
from stacksl.api.stored import Run
from stacksl.core.blocks import Array
from stacksl.models.linear import Model
from stacksl.types import Item


class BudgetedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier on features, trained with at most `budget` labels of `y`.

    `fit(X, y)` plays a run over the rows of X as a pool: a label of y is read when it is bought.
    Only the set of classes is taken from all of y. Columns are standardised first, on X alone.

    Args:
        budget: a fraction below 1, a count from 2, or `"all"`.
        gate: what ranks the pool, such as `margin` or `random`.
        folder: keeps the run, with ledger and report; in a temporary folder where it is None.
        random_state: seeds the run.

    Attributes:
        classes_: (K,) the classes.
        n_features_in_: the columns of X.
        bought_: (n,) the rows of X whose labels were bought, in the order of purchase.
    """

    def __init__(
        self,
        budget: float | str = 0.1,
        *,
        gate: str = "margin",
        folder: str | None = None,
        random_state: Any = None,
    ) -> None:
        self.budget = budget
        self.gate = gate
        self.folder = folder
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Buy labels and fit.

        Args:
            X: (n, d) features.
            y: (n,) labels, of two or more classes.

        Raises:
            ValueError: X or y cannot be used; see scikit-learn.
            StackslError: a wrong budget or gate.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("expected y to have two or more classes, got one class")
        self._scaler = StandardScaler().fit(X)
        names = [f"class {k}" for k in range(len(self.classes_))]
        texts = [f"row {n}" for n in range(len(X))]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with TemporaryDirectory() as temporary:
            played = run(
                texts, [int(k) for k in index], classes=names, features=self._scaler.transform(X),
                out=self.folder or Path(temporary) / "run",
                budget=self.budget, gate=self.gate, seed=seed, mode="pool", audit="0",
            )  # fmt: skip
            self._model = _linear(played)
            with played.ledger as ledger:
                bought = [int(item.removeprefix("row-")) - 1 for item in ledger.bought("train")]
        self.bought_: NDArray[np.int64] = np.array(bought, dtype=np.int64)
        return self

    def predict_proba(self, X: Any) -> Array:
        """(n, K) the probability of each of `classes_`."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        ids = [f"new {n}" for n in range(len(X))]
        model = self._model.with_rows(ids, self._scaler.transform(X))
        items = [Item(each, each, model.classes or ()) for each in ids]
        return np.stack(model.policies(items))

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,) the most probable class."""
        best = self.predict_proba(X).argmax(axis=1)
        chosen: NDArray[Any] = self.classes_[best]
        return chosen


def _linear(played: Run) -> Model:
    model = played.model
    assert isinstance(model, Model)
    return model
