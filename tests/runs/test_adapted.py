"""The language model that a run leaves: what is told of it, read back, evaluated, moved."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.api import Run, run
from stacksl.errors import LabelerError, RunError, StackslError
from stacksl.models.adapted import AdaptedModel
from stacksl.models.metrics import macro_f1, wilson
from stacksl.report import Facts

from ..saved_arrays import set_of
from .lm_cases import QUICK, Corpus, Refusing, questions, tiny_model, told_labels
from .people_cases import copy_of, facts_of

torch = pytest.importorskip("torch")

SHORT = {**QUICK, "budget": 6, "lm.refit_at": "1"}
ITEMS, ANSWERS = questions(30)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `base`, and `run`, an undisturbed run that adapted it."""
    folder = tmp_path_factory.mktemp("adapted")
    license = "---\nlicense: apache-2.0\n---\n"
    (tiny_model(folder / "base") / "README.md").write_text(license, encoding="utf-8")
    given = {**QUICK, "lm.model": str(folder / "base"), "lm.refit_at": "0.5,1"}
    given |= {"budget": 16, "audit": 10, "lm.max_len_prompt": 40, "test": questions(12, seed=1)}
    run(ITEMS, ANSWERS, out=folder / "run", **given)
    return folder


@pytest.fixture(scope="module")
def facts(place: Path) -> Facts:
    return facts_of(Run.open(place / "run"))


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return questions(12, seed=1)


@pytest.fixture
def moved(place: Path) -> Any:
    """The base folder under another name until the test is over."""
    (place / "base").rename(place / "elsewhere")
    yield place
    shutil.rmtree(place / "base", ignore_errors=True)
    (place / "elsewhere").rename(place / "base")


def test_the_facts_are_those_of_the_run(facts: Facts) -> None:
    model = facts.language
    assert model is not None
    assert (model.base, model.license) == ("base", "apache-2.0")
    about = {row.name: row.value for row in model.about}
    assert (about["Answer format"], about["Tokens of a prompt, at most"]) == ("option", "40")
    assert about["Device and dtype"] == "cpu, float32"
    assert about["Processes and threads"] == "1, 1 each"
    assert about["Trained by a refit"].endswith(" (a LoRA adapter)")
    assert [row.labels for row in model.refits] == [3, 6]
    assert all(row.seconds > 0 for row in model.refits)
    assert "refit 2, trained from the initial adapter on all 6" in facts.refit.sentence
    assert [point.labels for point in facts.curve] == [0, 3, 6], "the base, then each refit"
    assert facts.curve[-1].accuracy == facts.test.accuracy


def test_predictions_have_a_choice_and_its_probability(place: Path, corpus: Corpus) -> None:
    rows = [*Run.open(place / "run").predict(corpus[0])]
    policies = AdaptedModel.load(place / "run" / "model").policies(corpus[0])
    for row, item, policy in zip(rows, corpus[0], policies, strict=True):
        assert [*row] == ["id", "choice", "index", "probability", "probabilities"]
        assert row["probabilities"] == pytest.approx(policy.tolist(), abs=1e-6)
        assert (row["id"], row["choice"]) == (item.id, item.candidates[row["index"]])
        assert row["index"] == int(np.argmax(policy))
        assert row["probability"] == pytest.approx(policy[row["index"]], abs=1e-6)
        assert policy.sum() == pytest.approx(1.0, abs=1e-9)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft's own
def test_peft_alone_reads_the_adapter(place: Path, corpus: Corpus) -> None:
    """Its log-likelihoods, without a line of ours, are the scores by `sum`."""
    import peft
    import transformers as tf

    network = peft.AutoPeftModelForCausalLM.from_pretrained(place / "run" / "model").eval()
    tokenizer = tf.AutoTokenizer.from_pretrained(place / "base")
    every = AdaptedModel.load(place / "run" / "model").model.scores(corpus[0], "sum")
    for item, scores in zip(corpus[0][:5], every, strict=False):
        prompt = tokenizer(f"{item.prompt}\nAnswer:")["input_ids"]
        for option, score in zip(item.candidates, scores, strict=True):
            tail = tokenizer(f" {option}")["input_ids"]
            with torch.no_grad():
                logits = network(torch.tensor([prompt + tail])).logits[0, len(prompt) - 1 : -1]
            steps = logits.log_softmax(-1)[torch.arange(len(tail)), torch.tensor(tail)]
            assert score == pytest.approx(float(steps.sum()), abs=1e-4)


def test_evaluation_is_by_the_run_s_own_normalization(place: Path, corpus: Corpus) -> None:
    made = Run.open(place / "run")
    told = made.evaluate(*corpus)
    scores = AdaptedModel.load(place / "run" / "model").model.scores(corpus[0], "token_mean")
    gold = [corpus[1][item.id] for item in corpus[0]]
    chosen = [int(np.argmax(each)) for each in scores]
    right = sum(a == b for a, b in zip(chosen, gold, strict=True))
    measures = {
        "accuracy": right / 12,
        "macro_f1": macro_f1(gold, chosen),
        "interval": [*wilson(right, 12)],
    }
    assert {name: told[name] for name in measures} == measures
    assert told["correct"] == sum(
        row["index"] == corpus[1][row["id"]] for row in made.predict(corpus[0])
    )
    test = facts_of(made).test
    assert (test.accuracy, test.macro_f1) == (told["accuracy"], told["macro_f1"])
    assert [test.low, test.high] == told["interval"]


def test_a_base_that_was_moved_or_changed_is_told(moved: Path, corpus: Corpus) -> None:
    made = Run.open(moved / "run")
    with pytest.raises(StackslError, match="is not a folder that exists: put it back"):
        made.predict(corpus[0])
    tiny_model(moved / "base", seed=8)
    with pytest.raises(RunError, match=r"was trained on the weights \w{12}, but .* restore"):
        made.predict(corpus[0])
    shutil.rmtree(moved / "base")
    shutil.copytree(moved / "elsewhere", moved / "base")
    assert len([*made.predict(corpus[0])]) == 12


@pytest.fixture(scope="module")
def unfinished(place: Path) -> Run:
    """A run whose labeler left; each test copies it."""
    given = {**SHORT, "lm.model": str(place / "base"), "lm.adapt": "lora"}
    with pytest.raises(LabelerError):
        run(*questions(20), out=place / "left", labeler=Refusing(questions(20), 2), **given)
    return Run.open(place / "left")


@pytest.mark.parametrize("possible", [True, False])
def test_a_resumed_run_takes_the_recorded_number_of_threads_or_says_so(
    unfinished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, possible: bool
) -> None:
    made = copy_of(unfinished, tmp_path)
    assert "lm_threads" in made.folder.resolved()
    set_of(made.path, "lm_threads", 3)
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: [1, *asked * possible][-1])
    made.resume(labeler=told_labels(questions(20)))
    assert asked == [3]
    told = [each for each in made.status()["warnings"] if "torch" in each]
    words = "this run began with torch's threads at 3 and continues with 1"
    assert [each.startswith(words) for each in told] == [True] * (not possible)
    assert made.folder.resolved()["lm_threads"] == 3, "what was stays on record"
