"""Adapters to the strategies of scikit-activeml and small-text, each with its library's defaults.

A strategy sees the features of the pool's rows and the labels it bought. What needs a model has a
logistic regression on those labels (C = 20, the C of our heads below 60 labels), and buys the rows
of `random` until two classes are bought. Of items with options of their own the row is the mean of
its options' rows, which serves strategies without a model alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stacksl.core.blocks import Array, SharedBlock
from stacksl.core.heads.logistic import DEFAULT
from stacksl_lab.pools.split import Pool, Rows

MODULES = {"scikit-activeml": "skactiveml.pool", "small-text": "small_text"}
"""The module of a package that has its strategies."""

INSTALL = {
    "scikit-activeml": "pip install 'stacksl[bench]'",
    "small-text": "pip install small-text in an environment of its own, as it brings a package"
    " named `tests`",
}
"""How to get a package. small-text is in no extra: its `tests` would hide those of a checkout."""

_MEMBERS = 10  # models of an ensemble


@dataclass(frozen=True, slots=True)
class Peer:
    """A strategy of another package.

    Attributes:
        package: which, as pip names it.
        kind: the name of its class.
        model: the argument that takes a model, for scikit-activeml; "" where it needs none.
        options: of its class; "classes" stands for the number of classes.
    """

    package: str
    kind: str
    model: Literal["", "clf", "estimator", "ensemble"] = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def installed(self) -> bool:
        """Whether the package is there."""
        return find_spec(MODULES[self.package].partition(".")[0]) is not None

    @property
    def version(self) -> str:
        """The installed version of the package."""
        return metadata.version(self.package)

    def bought_rows(self, pool: Pool, count: int) -> list[int]:
        """The rows that it buys, `count` of them, batch by batch."""
        rows = _rows(pool)
        ask = _Activeml(self, pool, rows) if self.package == "scikit-activeml" else None
        chosen: list[int] = []
        with _seeded(pool.settings.seed):
            while len(chosen) < count:
                n = min(pool.settings.open_questions, count - len(chosen))
                if self.model and len(np.unique(pool.gold[chosen])) < 2:
                    taken = set(chosen)
                    chosen += [row for row in pool.order if row not in taken][:n]
                elif ask is not None:
                    chosen += ask(chosen, n)
                else:
                    chosen += _small_text(self, pool, rows, chosen, n)
        return chosen


_ACTIVEML, _SMALL = "scikit-activeml", "small-text"
PEERS: Mapping[str, Peer] = {
    "typiclust": Peer(_ACTIVEML, "TypiClust"),
    "probcover": Peer(_ACTIVEML, "ProbCover", options={"n_classes": "classes"}),
    "maxherding": Peer(_ACTIVEML, "MaxHerding"),
    "coreset": Peer(_ACTIVEML, "CoreSet"),
    "badge": Peer(_ACTIVEML, "Badge", "clf"),
    "bald": Peer(_ACTIVEML, "GreedyBALD", "ensemble"),
    "clue": Peer(_ACTIVEML, "Clue", "estimator"),
    "dropquery": Peer(_ACTIVEML, "DropQuery", "clf"),
    "entropy": Peer(_ACTIVEML, "UncertaintySampling", "clf", {"method": "entropy"}),
    "falcun": Peer(_ACTIVEML, "Falcun", "clf"),
    "breaking-ties": Peer(_SMALL, "BreakingTies", "clf"),
    "contrastive": Peer(_SMALL, "ContrastiveActiveLearning", "clf", {"pbar": None}),
    "embedding-kmeans": Peer(_SMALL, "EmbeddingKMeans"),
    "lightweight-coreset": Peer(_SMALL, "LightweightCoreset"),
}
"""The strategies by the names that `stacksl-lab compare` takes."""


def _rows(pool: Pool) -> Array:
    """A row for each item, (n, d)."""
    block = pool.block
    if isinstance(block, SharedBlock):
        return np.asarray(block.h, dtype=np.float64)
    return np.array([item.phi.mean(axis=0) for item in block])


def _classes(pool: Pool) -> int:
    block = pool.block
    return block.classes if isinstance(block, SharedBlock) else int(pool.gold.max()) + 1


class _Activeml:
    """A strategy of scikit-activeml: unlabeled rows have the label NaN."""

    def __init__(self, peer: Peer, pool: Pool, rows: Array) -> None:
        self.pool, self.rows, self.peer = pool, rows, peer
        options = {n: _classes(pool) if v == "classes" else v for n, v in peer.options.items()}
        kind = getattr(import_module(MODULES[_ACTIVEML]), peer.kind)
        self.strategy = kind(random_state=pool.settings.seed, **options)

    def __call__(self, chosen: Sequence[int], count: int) -> list[int]:
        """The next `count` rows."""
        labels = np.full(len(self.rows), np.nan)
        labels[list(chosen)] = self.pool.gold[list(chosen)]
        model = {self.peer.model: self._model()} if self.peer.model else {}
        rows = self.strategy.query(X=self.rows, y=labels, batch_size=count, **model)
        return [int(row) for row in rows]

    def _model(self) -> Any:
        from sklearn.ensemble import BaggingClassifier

        wrapped = import_module("skactiveml.classifier").SklearnClassifier
        plain = _logistic()
        if self.peer.model == "ensemble":
            plain = BaggingClassifier(plain, _MEMBERS, random_state=self.pool.settings.seed)
        keywords = {"random_state": self.pool.settings.seed}
        return wrapped(plain, classes=np.arange(_classes(self.pool)), **keywords)


def _small_text(
    peer: Peer, pool: Pool, rows: Array, chosen: Sequence[int], count: int
) -> list[int]:
    """The next `count` rows of a strategy of small-text."""
    library = import_module(MODULES[_SMALL])
    labeled = np.array(chosen, dtype=np.int64)
    unlabeled = np.setdiff1d(np.arange(len(rows)), labeled)
    model = _Probabilities(rows, labeled, pool.gold, _classes(pool)) if peer.model else None
    without_model = {"embeddings": rows[np.concatenate([unlabeled, labeled])], "pbar": None}
    extra = {} if peer.model else without_model
    items = library.SklearnDataset(rows, np.arange(len(rows)))
    strategy = getattr(library, peer.kind)(**peer.options)
    queried = strategy.query(model, items, unlabeled, labeled, pool.gold[labeled], n=count, **extra)
    return [int(row) for row in queried]


class _Probabilities:
    """A classifier as small-text calls it, on the rows of a data set."""

    def __init__(self, rows: Array, labeled: Rows, gold: Rows, classes: int) -> None:
        self.fitted = _logistic().fit(rows[labeled], gold[labeled])
        self.classes = classes

    def predict_proba(self, items: Any) -> Array:
        """(n, K); 0 for a class that was not bought."""
        probabilities = np.zeros((len(items.x), self.classes))
        probabilities[:, self.fitted.classes_] = self.fitted.predict_proba(items.x)
        return probabilities

    def embed(
        self, items: Any, return_proba: bool = False, pbar: object = None
    ) -> NDArray[Any] | tuple[NDArray[Any], Array]:
        """The rows themselves, with probabilities where wanted."""
        return (items.x, self.predict_proba(items)) if return_proba else items.x


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=DEFAULT, max_iter=1_000)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """With NumPy's global generator seeded, which small-text draws from, and without warnings."""
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        np.random.set_state(before)
