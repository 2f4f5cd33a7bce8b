"""Small items made in Python, finished runs of them, and copies that a test may spoil."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl import Item
from stacksl.api import Run, run
from stacksl.core.blocks import Block, SharedBlock
from stacksl.core.gates.registry import make_gate
from stacksl.core.learner import Learner
from stacksl.core.scorers import make_scorer
from stacksl.labelers.protocol import Labeler
from stacksl.labelers.registry import OracleLabeler
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import ItemRecord
from stacksl.runs.items.corpus import Corpus as Items
from stacksl.runs.loop.choosers import Pool, Stream
from stacksl.runs.loop.game import Examples, Game, PurchaseLimits, play
from stacksl.runs.loop.linear_trainer import LinearTrainer
from stacksl.runs.storage.folder import RunFolder
from stacksl.types import Decision

CLASSES = ("bread", "sea", "night")
WORDS = {"bread": "flour dough oven loaf", "sea": "wave salt tide ship", "night": "star moon owl"}
Corpus = tuple[list[Item], dict[str, int]]


def sentence(rng: random.Random, topic: str) -> str:
    return " ".join(rng.choice(WORDS[topic].split()) for _ in range(4))


def class_items(count: int, seed: int = 0) -> Corpus:
    """Sentences of three topics, with their answers."""
    rng = random.Random(seed)
    topics = [rng.choice(CLASSES) for _ in range(count)]
    items = [Item(f"i{n}", f"{sentence(rng, t)} {n}", CLASSES) for n, t in enumerate(topics)]
    return items, {item.id: CLASSES.index(t) for item, t in zip(items, topics, strict=True)}


def pair_items(count: int, seed: int = 0) -> Corpus:
    """Questions with two to four options of their own, with their answers."""
    rng = random.Random(seed)
    items, answers = [], {}
    for n in range(count):
        topics = [rng.choice(CLASSES) for _ in range(rng.randrange(2, 5))]
        options = tuple(f"{sentence(rng, t)} o{k}" for k, t in enumerate(topics))
        answers[f"p{n}"] = rng.randrange(len(options))
        items.append(Item(f"p{n}", f"{sentence(rng, topics[answers[f'p{n}']])} {n}", options))
    return items, answers


@dataclass
class Finished:
    """A finished run with what it was made from."""

    run: Run
    items: list[Item]
    answers: dict[str, int]
    test: Corpus


def finished(folder: Path, corpus: Corpus, test: Corpus, budget: int) -> Finished:
    done = run(*corpus, budget=budget, test=test, out=folder / "run", checkpoint_every=10)
    return Finished(done, *corpus, test)


@pytest.fixture(scope="package")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    test = class_items(30, seed=9)
    return finished(tmp_path_factory.mktemp("classes"), class_items(60), test, budget=12)


@pytest.fixture(scope="package")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    test = pair_items(24, seed=9)
    return finished(tmp_path_factory.mktemp("pairs"), pair_items(50), test, budget=10)


@pytest.fixture(scope="package")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model of random weights, which no test changes."""
    from .lm_cases import tiny_model

    return tiny_model(tmp_path_factory.mktemp("lm") / "model")


@pytest.fixture(scope="package")
def model(original: Path) -> Path:
    """The model that a run adapts."""
    return original


@pytest.fixture(scope="package")
def corpus() -> Corpus:
    """The questions of the runs that adapt it."""
    from .lm_cases import COUNT, questions

    return questions(COUNT)


@pytest.fixture
def spoil(tmp_path: Path) -> Callable[[Finished], Run]:
    """A copy of a finished run that looks cut off just before its end, to be spoiled."""

    def copy(finished: Finished) -> Run:
        path = tmp_path / "run"
        shutil.copytree(finished.run.path, path)
        RunFolder(path).write_state("running", created="then")
        return Run(path)

    return copy


def game_of(
    folder: Path,
    corpus: Corpus,
    *,
    budget: int,
    gate: str = "margin",
    labeler: Labeler | None = None,
    top_k: int | None = None,
    names: Any = None,
    ranks: bool = False,
    seed: int = 0,
    batch: int = 25,
    **parameters: Any,
) -> Game:
    """A game over class items with random features: the loop without files or text.

    With `ranks` its head is refitted on the way, as a pool needs it.
    """
    items, answers = corpus
    rng = np.random.default_rng(3)
    h = rng.normal(size=(len(items), 8)) + 2.0 * np.eye(8)[[answers[i.id] for i in items]]
    block: Block = SharedBlock((h / np.linalg.norm(h, axis=1, keepdims=True)), len(CLASSES))
    learner = Learner(
        make_scorer("ridge", dim=8, classes=len(CLASSES)),
        make_gate(gate, **parameters),
        budget=budget,
        horizon=len(items),
        top_k=top_k,
    )
    ledger = Ledger.create(
        folder / "run.db",
        run="test",
        budget=budget,
        items=[ItemRecord(i.id, i.prompt, len(i.candidates)) for i in items],
    )
    examples = Examples(Items.of(items), block)
    return Game(
        ledger=ledger,
        learner=learner,
        labeler=labeler or OracleLabeler(answers, {i.id: len(i.candidates) for i in items}),
        examples=examples,
        trainer=LinearTrainer(examples, learner, ledger, names, seed, on_the_way=ranks),
        batches=PurchaseLimits(batch),
    )


def streamed(game: Game, order: Sequence[int] | None = None) -> Iterator[list[Decision]]:
    """The rounds of a stream, in the `order` of the file unless another is given."""
    game.corpus.order = range(len(game.corpus.ids)) if order is None else order
    return play(game, Stream())


def pooled(
    game: Game, order: Sequence[int] | None = None, seed: int = 0, *, coverage: bool | None = None
) -> Iterator[list[Decision]]:
    """The batches of a pool, by coverage unless the game has another gate than usual."""
    coverage = game.learner.gate.name == "margin" if coverage is None else coverage
    game.corpus.order = range(len(game.corpus.ids)) if order is None else order
    return play(game, Pool(seed, coverage=coverage))
