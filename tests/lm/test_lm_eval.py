"""Our log-likelihoods are lm-eval's, on a real pretrained model, item by item."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from stacksl.lm import Likelihood, Limits, PromptFormat, Tokenizing, normalized, template
from stacksl.types import Item

torch = pytest.importorskip("torch", reason="torch is not installed (the extra lm)")

PROMPTS = [
    "Once upon a time there was a little girl named Lily. She liked to",
    "Tom and his dog went to the park. Tom threw the ball and the dog",
    "The sun was very hot. Mom gave the boy some water because he was ",  # space at its end
    "",
    "One day a big bear came out of the woods.\nThe rabbit was",
]
OPTIONS = [
    ("run and play with her friends.", "play.", "the quarterly tax return", "sing"),
    ("happy", "very sad and scared", "a", "naïve 東京 🙂", "ran after it. They had fun"),
    ("No", "yes, she said. Then they all went home"),
    ("thirsty", "tired", "asleep in the old red car by the tree"),
]


@pytest.fixture(scope="module")
def lm_eval_model(stories: Path) -> Any:
    """lm-eval's own wrapper around the model."""
    with warnings.catch_warnings():  # its imports, and those of what it imports, are its own
        warnings.simplefilter("ignore")
        pytest.importorskip("lm_eval", reason="lm-eval is not installed (the extra lm-eval)")
        from lm_eval.models.huggingface import HFLM

        return HFLM(pretrained=str(stories), device="cpu", dtype="float32", batch_size=4)


def theirs(model: Any, pairs: list[tuple[str, str]]) -> list[float]:
    from lm_eval.api.instance import Instance

    requests = [
        Instance(request_type="loglikelihood", doc={}, arguments=pair, idx=number)
        for number, pair in enumerate(pairs)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [sums for sums, _ in model.loglikelihood(requests, disable_tqdm=True)]


def test_sums_are_those_of_lm_eval(lm_eval_model: Any) -> None:
    items = [
        Item(f"{number}-{which}", prompt, options)
        for number, prompt in enumerate(PROMPTS)
        for which, options in enumerate(OPTIONS)
    ]
    assert len(items) == 20
    form = PromptFormat("{prompt}")
    prompts = [form.render(item) for item in items]
    made = Tokenizing(lm_eval_model.tokenizer, Limits(positions=512))
    rows = made.items(prompts)
    expected = theirs(
        lm_eval_model, [(each.text, follow) for each in prompts for follow in each.continuations]
    )
    likelihood = Likelihood(lm_eval_model.model)
    with torch.no_grad():
        ours = torch.cat(likelihood.sums(rows)).tolist()
    assert likelihood.used == {"sums": "packed"}
    assert ours == pytest.approx(expected, rel=1e-6, abs=5e-5)
    assert max(expected) - min(expected) > 50  # nats: agreement is not for want of differences


def test_letters_and_the_mutual_information_are_those_of_lm_eval(lm_eval_model: Any) -> None:
    items = [Item(str(n), PROMPTS[n], OPTIONS[n % 4]) for n in (0, 1, 4)]
    made = Tokenizing(lm_eval_model.tokenizer, Limits(positions=512))
    likelihood = Likelihood(lm_eval_model.model)
    for form, kind in (
        (PromptFormat(template(None, "letter"), "letter"), "sum"),
        (PromptFormat(pmi_context="empty"), "pmi"),
    ):
        prompts = [form.render(item) for item in items]
        rows, alone = made.items(prompts), made.items([form.render_alone(i) for i in items])
        pairs = [(p.text, follow) for p in prompts for follow in p.continuations]
        expected = theirs(lm_eval_model, pairs)
        if kind == "pmi":
            bare = theirs(lm_eval_model, [("", follow) for _, follow in pairs])
            expected = [a - b for a, b in zip(expected, bare, strict=True)]
        with torch.no_grad():
            sums, own = likelihood.sums(rows), likelihood.sums(alone)
        ours = torch.cat(normalized(sums, rows, kind, alone=own))  # type: ignore[arg-type]
        assert ours.tolist() == pytest.approx(expected, rel=1e-6, abs=5e-5)
