"""Strategies of this package: a pool played as `stacksl run --mode pool` plays it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from stacksl.core.blocks import SharedBlock
from stacksl.core.gates.registry import COVERAGE
from stacksl.labelers.registry import OracleLabeler
from stacksl.ledger.ledger import Ledger
from stacksl.ledger.purchases import ItemRecord
from stacksl.runs.items.corpus import Corpus
from stacksl.runs.loop import choosers
from stacksl.runs.loop.game import Examples, Game, PurchaseLimits, play
from stacksl.runs.loop.linear_trainer import LinearTrainer
from stacksl.runs.session.build_learner import build_learner
from stacksl.types import Item
from stacksl_lab.pools.split import Pool


def bought_rows(pool: Pool, gate: str, count: int) -> list[int]:
    """The rows that a run with this `gate` buys, `count` of them, in their order."""
    with tempfile.TemporaryDirectory() as folder:
        game = game_of(pool, gate, count, Path(folder))
        for _ in play(game, choosers.Pool(pool.settings.seed, coverage=gate == COVERAGE)):
            pass
        game.ledger.close()
    return [row for row, _, _ in game.examples.bought]


def game_of(pool: Pool, gate: str, labels: int, folder: Path) -> Game:
    """The game over the rows of a pool, in their order, with the answers at hand."""
    block, rows = pool.block, range(len(pool.gold))
    settings = pool.settings.replaced({"mode": "pool", "gate.name": gate})
    learner = build_learner(settings, block, rows, labels)
    ids = [str(row) for row in rows]
    classes = block.classes if isinstance(block, SharedBlock) else None
    sizes = {n: classes or block[row].size for n, row in zip(ids, rows, strict=True)}
    answers = {name: int(gold) for name, gold in zip(ids, pool.gold, strict=True)}
    records = [ItemRecord(name, name, sizes[name]) for name in ids]
    ledger = Ledger.create(folder / "run.db", run="compare", budget=labels, items=records)
    examples = Examples(Corpus.of([Item(name, "", ()) for name in ids]), block)
    return Game(
        ledger=ledger,
        learner=learner,
        labeler=OracleLabeler(answers, sizes),
        examples=examples,
        trainer=LinearTrainer(examples, learner, ledger, pool.names, settings.seed),
        batches=PurchaseLimits(settings.open_questions),
    )
