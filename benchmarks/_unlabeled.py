"""What a language model learns of unlabeled questions: self-training, pretraining on prompts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

from _refits import Row, Task, model_of, refitted

WEIGHTS = (0, 0.25, 0.5, 1)  # of KL(model, teacher), to choose among
WINDOW = 16  # prompts a step of pretraining


def losses_of_weights(
    task: Task, lessons: list[Any], more: Row, seed: int, temperature: float
) -> dict[float, float]:
    """The loss of a third of the labels under models of the others, by the weight of self-training.

    A loss is the mean -log likelihood in nats, at a temperature fitted to the same third. One
    teacher serves all weights. Folds would be fairer, and three times as expensive.
    """
    from stacksl.lm.scoring.normalize import calibrated_loss

    held, most = lessons[2::3], [each for n, each in enumerate(lessons) if n % 3 != 2]
    known = {each.item.id for each in lessons}
    lessons_taught = taught(task, most, more, seed, temperature, known)
    losses = {}
    for weight in WEIGHTS:
        settings, own = (weighted(more, weight), lessons_taught) if weight else (more, most)
        _, model = refitted(own, len(most), settings, seed, temperature)
        scores = model.scores([each.item for each in held], "pmi")
        losses[weight] = calibrated_loss(scores, [each.label for each in held])
    return losses


def weighted(more: Row, weight: float) -> Row:
    """The settings of a refit on what `taught` gives: as many steps as on the labels alone."""
    return {**more, "objective": "stacksl", "clip": "none", "kl_weight": weight, "batch_size": 24}


def taught(
    task: Task, lessons: list[Any], more: Row, seed: int, temperature: float, known: set[str]
) -> list[Any]:
    """The labels and twice as many questions not `known`, with a teacher's scores for all.

    The teacher is trained on four fifths of the labels, its temperature fitted to the other fifth.
    """
    from stacksl.core.rng import generator
    from stacksl.lm.scoring.normalize import fitted_temperature
    from stacksl.lm.settings import Lesson

    count = len(lessons)
    most = [each for n, each in enumerate(lessons) if n % 5]
    _, teacher = refitted(most, count, more, seed, temperature)
    unlabeled = [item for item in task.items if item.id not in known]
    drawn = generator(seed, "self-training").permutation(len(unlabeled))[: 2 * count]
    items = [each.item for each in lessons] + [unlabeled[n] for n in drawn]
    scores, labels = teacher.scores(items, "pmi"), [each.label for each in lessons]
    own = fitted_temperature(scores[:count:5], labels[::5], temperature)
    return [
        Lesson(item, label, tuple(range(len(each))), tuple((each / own).tolist()))
        for item, label, each in zip(items, labels + [None] * len(drawn), scores, strict=True)
    ]


@cache
def pretrained(task: Task, rate: float, seed: int) -> tuple[Task, TemporaryDirectory[str]]:
    """The questions as another base scores them, and its folder: the sample after one more pass.

    The pass is causal language modeling of the prompts to label, with all weights at the learning
    rate `rate`: AdamW, a tenth of the steps as warm-up, then a cosine to 0.
    """
    from stacksl.lm.loading import open_base

    folder = TemporaryDirectory()
    base = open_base("sample", device="cpu")
    base.tokenizer.save_pretrained(folder.name)
    read_on(base.model, base.tokenizer, [item.prompt for item in task.items], rate, seed)
    base.model.save_pretrained(folder.name)
    pool = model_of({"model": folder.name}, 0).scores(task.items, "pmi")
    return replace(task, pool=pool), folder


def read_on(model: Any, tokenizer: Any, texts: list[str], rate: float, seed: int) -> list[float]:
    """Train all weights on one pass of the texts; the loss of each step, in nats a token."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    from stacksl.core.rng import generator
    from stacksl.lm.settings import TrainSettings
    from stacksl.lm.training.refit import Optimizer

    rows = [torch.tensor(tokenizer(text)["input_ids"]) for text in texts]
    order = generator(seed, "pretraining").permutation(len(rows)).tolist()
    parts = [order[first : first + WINDOW] for first in range(0, len(order), WINDOW)]
    moving = list(model.requires_grad_(True).parameters())
    settings = TrainSettings(
        learning_rate=rate, weight_decay=0.0
    )  # its warm-up and norm are as usual
    optimizer, losses = Optimizer(moving, len(parts), settings), []
    for step, part in enumerate(parts):
        wanted = pad_sequence([rows[n] for n in part], batch_first=True, padding_value=-100)
        attended = (wanted >= 0).long()
        with torch.enable_grad():
            passed = model(input_ids=wanted.clamp(min=0), attention_mask=attended, labels=wanted)
            passed.loss.backward()
        optimizer.length()
        optimizer.step(step)
        losses.append(float(passed.loss.detach()))
    return losses
