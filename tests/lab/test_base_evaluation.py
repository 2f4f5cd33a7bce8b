"""The base model as it is: what stands in the prompt, and the numbers against a plain forward."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from stacksl.data import Dataset
from stacksl.lm.prompt.format import PromptFormat, template
from stacksl.types import Item
from stacksl_lab.language.base_evaluation import evaluate_base, with_examples

ROOT = Path(__file__).resolve().parents[2]
ITEMS = tuple(
    Item(f"q{n}", f"Once upon a time there was a {who}. The {who} liked to", options)
    for n, (who, options) in enumerate(
        [
            ("dog", ("play with the ball.", "table run of.")),
            ("girl", ("ball the not and.", "play in the park.")),
            ("cat", ("sleep on the bed.", "of bed the no.")),
            ("boy", ("was was a is.", "run and jump.")),
        ]
    )
)
TEST = Dataset("stories", "memory", ITEMS, {"q0": 0, "q1": 1, "q2": 0, "q3": 0})
EXAMPLES = ((Item("e0", "Two and two are", ("three", "four")), 1),)


@pytest.fixture(scope="module")
def model() -> str:
    named = os.environ.get("STACKSL_DATA")
    shared = Path(named).parent if named else ROOT.parent / "shared"
    folder = shared / "models" / "stories260K"
    if not folder.is_dir():
        pytest.skip(f"the small pretrained model is not at {folder} (set STACKSL_DATA)")
    return str(folder)


def test_examples_stand_in_front_answered() -> None:
    letters = PromptFormat(template(None, "letter"), "letter")
    prompt = with_examples(letters, Item("i", "Which?", ("this", "that")), EXAMPLES)
    assert prompt.text == (
        "Question: Two and two are\nA. three\nB. four\nAnswer: B\n\n"
        "Question: Which?\nA. this\nB. that\nAnswer:"
    )
    assert prompt.continuations == (" A", " B")
    options = with_examples(PromptFormat(), Item("i", "Which?", ("this", "that")), EXAMPLES)
    assert options.text == "Two and two are\nAnswer: four\n\nWhich?\nAnswer:"
    assert with_examples(PromptFormat(), ITEMS[0], ()).text == PromptFormat().render(ITEMS[0]).text


def by_hand(model: str, item: Item) -> int:
    """The option of the highest mean log-probability a token, by one forward pass an option."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    means = []
    for option in item.candidates:
        before = len(tokenizer(item.prompt)["input_ids"])
        ids = torch.tensor([tokenizer(f"{item.prompt} {option}")["input_ids"]])
        with torch.no_grad():
            logs = network(ids).logits[0].log_softmax(-1)
        taken = [float(logs[t - 1, ids[0, t]]) for t in range(before, ids.shape[1])]
        means.append(sum(taken) / len(taken))
    return max(range(len(means)), key=means.__getitem__)


def test_accuracy_is_that_of_a_plain_forward(model: str) -> None:
    settings: dict[str, Any] = {"model": model, "template": "plain"}
    result = evaluate_base(TEST, (), settings)
    guessed = [by_hand(model, item) for item in ITEMS]
    right = sum(TEST.answers[i.id] == g for i, g in zip(ITEMS, guessed, strict=True))
    assert (result.accuracy, result.n, result.asked) == (right / 4, 4, 0)
    assert 0 < right < 4, "the answer of the last item is the nonsense"


def test_examples_that_do_not_fit_say_so(model: str) -> None:
    long = ((Item("e", "word " * 600, ("a", "b")), 0),)
    result = evaluate_base(TEST, long, {"model": model})
    assert result.accuracy is None
    assert "1-shot prompts do not fit: 4 of 4 exceed the 512 tokens" in result.reason
