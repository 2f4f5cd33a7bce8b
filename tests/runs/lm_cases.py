"""Small runs that adapt a language model: a folder of random weights, items, settings."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stacksl import Item
from stacksl.api import Run, run
from stacksl.errors import LabelerError
from stacksl.features.store import load_block
from stacksl.labelers.registry import OracleLabeler

from ..ledgers import rows_of

for _name in ("torch", "peft"):
    pytest.importorskip(_name, reason=f"{_name} is not installed (the extra lm)")

Corpus = tuple[list[Item], dict[str, int]]
COUNT, BUDGET = 40, 12

SHAPE = {
    "vocab_size": 320,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
    "initializer_range": 0.3,  # options differ by nats, so that a wrong one shows
}
QUICK: dict[str, Any] = {
    "lm.answer_format": "option",
    "lm.normalization": "token_mean",
    "lm.objective": "stacksl",  # the one with a reference
    "lm.lora_rank": 2,
    "lm.state_dim": 8,
    "lm.epochs": 2,
    "lm.batch_size": 4,
    "update.learning_rate": 1e-2,  # of a model this small: choices must change
    "lm.device": "cpu",
    "read.max_candidates": 10,
}
"""A run of seconds whose refits are seen in the predictions."""

SHORT = {"budget": 6, "lm.refit_at": "0.5,1", "lm.epochs": 1}

WORDS = {"bread": "flour dough oven", "sea": "wave salt tide", "night": "star moon owl"}


def tiny_model(folder: Path, seed: int = 7, **changes: Any) -> Path:
    """A folder with a random model of Qwen3 shape and a tokenizer of bytes."""
    import tokenizers as tk
    import torch
    import transformers as tf

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = tf.Qwen3ForCausalLM(tf.Qwen3Config(**SHAPE | changes))
    model.save_pretrained(folder)
    made = tk.Tokenizer(tk.models.BPE())
    made.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tk.decoders.ByteLevel()
    trainer = tk.trainers.BpeTrainer(
        vocab_size=SHAPE["vocab_size"],
        special_tokens=["<end>"],
        initial_alphabet=tk.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([" ".join(WORDS.values()), "Answer: a b c"], trainer)
    tf.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>").save_pretrained(folder)
    return folder


def questions(count: int, seed: int = 0) -> Corpus:
    """Two to four options of their own, some of one token; the right one shares the topic."""
    draw = random.Random(seed)
    items, answers = [], {}
    for n in range(count):
        topic = draw.choice(list(WORDS))
        size = draw.randrange(2, 5)
        gold = draw.randrange(size)
        others = [word for t in WORDS if t != topic for word in WORDS[t].split()]
        options = draw.sample(others, size)
        options[gold] = draw.choice(WORDS[topic].split())
        if n % 4 == 0:  # one token each
            letters = "acb"[:size]
            options, gold = list(letters), gold % len(letters)
        items.append(Item(f"q{n}", f"{draw.choice(WORDS[topic].split())} {n}", tuple(options)))
        answers[f"q{n}"] = gold
    return items, answers


def sentences(count: int, seed: int = 0) -> Corpus:
    """Texts of three topics, which are the classes."""
    draw, names = random.Random(seed), tuple(WORDS)
    items, answers = [], {}
    for n in range(count):
        topic = draw.choice(names)
        text = " ".join(draw.choice(WORDS[topic].split()) for _ in range(2))
        items.append(Item(f"s{n}", f"{text} {n}", names))
        answers[f"s{n}"] = names.index(topic)
    return items, answers


def write_corpus(path: Path, corpus: Corpus) -> Path:
    """A file of items with their answers."""
    lines = [
        {"id": i.id, "prompt": i.prompt, "candidates": i.candidates, "answer": corpus[1][i.id]}
        for i in corpus[0]
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


class Refusing(OracleLabeler):
    """Answers `good` purchases, then will not any more."""

    def __init__(self, corpus: Corpus, good: int) -> None:
        super().__init__(corpus[1], {item.id: len(item.candidates) for item in corpus[0]})
        self._good = good

    def ask(self, purchases: Any) -> None:
        self._good -= len(purchases)
        if self._good < 0:
            raise LabelerError("the labeler has gone home: ask again tomorrow")
        super().ask(purchases)


def adapt(model: Path, corpus: Corpus, out: Path, labeler: Any = None, **settings: Any) -> Run:
    given = {"budget": BUDGET, **QUICK, **settings}
    return run(
        *corpus, out=out, **{"lm.model": str(model), "lm.adapt": "lora"}, labeler=labeler, **given
    )


def blocks(made: Run, corpus: Corpus) -> Iterator[Any]:
    """The features by epoch, the initial model's first."""
    ids = [item.id for item in corpus[0]]
    yield load_block(made.folder.features, None, ids)
    for folder in sorted(made.folder.features.glob("epoch-*")):
        yield load_block(folder, None, ids)


def last_weights(made: Run) -> str:
    return str(rows_of(made, "refit")[-1].payload["weights"])


def told_labels(corpus: Corpus) -> OracleLabeler:
    return OracleLabeler(corpus[1], {item.id: len(item.candidates) for item in corpus[0]})
