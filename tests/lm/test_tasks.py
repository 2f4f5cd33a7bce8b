"""Tasks of lm-eval: their files, and lm-eval itself choosing what we choose, item by item."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stacksl.lm.export.folder import Provenance, model_arguments, write_model
from stacksl.lm.export.tasks import METRICS, command, write_task
from stacksl.lm.prompt.format import PromptFormat
from stacksl.lm.prompt.tokens import Tokenizing
from stacksl.lm.scoring.likelihood import Likelihood
from stacksl.lm.scoring.normalize import NORMALIZATIONS, Normalization, normalized
from stacksl.types import Item

from ..report.adapted_cases import adapted

CHAT = (
    "{% for message in messages %}<u>{{ message['content'] }}</u>{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)
ASKED = [
    ("Once upon a time there was a", ["girl", "little dog named Tim", "big red car", "the"]),
    ("The cat sat on the ", ["mat", "roof of the house", "moon"]),  # space at the end
    ("Lily was sad. She wanted to", ["play with her mom and dad", "go", "eat naïve café"]),
    ("Tim saw a bird.\nThe bird said:", ["Hello, Tim!", "No.", "東京", "I can fly high", "yes"]),
    ("{{ 3 * 4 }} is {prompt} and 12", ["12", "{braces}", "{% raw %}"]),  # templates mean nothing
    ("They went home and", ["were happy", "slept", "ate a sandwich with jam"]),
    ("Mom gave him a", ["hug", "very big and very soft hug", "ball"]),
    ("One day, the sun was", ["hot", "shining in the blue sky", "not there"]),
]
ITEMS = [Item(f"q{n}", text, tuple(options)) for n, (text, options) in enumerate(ASKED)]
NAME = "stacksl_toy_set_v1"
ANSWERS = {item.id: n % len(item.candidates) for n, item in enumerate(ITEMS)}


def task_folder(
    tmp_path: Path,
    tokenizer: Any,
    form: PromptFormat | None = None,
    kind: Normalization = "token_mean",
) -> Path:
    """The folder of the task `NAME`."""
    folder = tmp_path / "task"
    form = form or PromptFormat()
    assert write_task(folder, "toy set.v1", ITEMS, ANSWERS, form, tokenizer, kind) == NAME
    return folder


def rows_of(task: Path) -> list[dict[str, Any]]:
    text = (task / "items.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def test_the_files_of_a_task(tmp_path: Path, tokenizer: Any) -> None:
    task = task_folder(tmp_path, tokenizer)
    files = {path.name for path in task.iterdir()}
    assert files == {"metrics.py", "items.jsonl", f"{NAME}.yaml"}
    rows = rows_of(task)
    assert [row["id"] for row in rows] == [item.id for item in ITEMS]
    assert rows[1]["prompt"] == "The cat sat on the \nAnswer:"
    assert rows[4]["choices"] == ["12", "{braces}", "{% raw %}"]
    assert [row["answer"] for row in rows] == list(ANSWERS.values())
    assert 'target_delimiter: " "' in (task / f"{NAME}.yaml").read_text()
    everything = "".join(path.read_text(encoding="utf-8") for path in task.iterdir())
    assert str(tmp_path) not in everything, "the folder may be moved"


def test_tokens_are_those_of_the_option_with_its_delimiter(tmp_path: Path, tokenizer: Any) -> None:
    task = task_folder(tmp_path, tokenizer, PromptFormat("{prompt}\n"))
    prompt, choice = rows_of(task)[0]["prompt"].rstrip(), rows_of(task)[0]["choices"][1]
    whole = tokenizer(f"{prompt}\n {choice}")["input_ids"]  # the line end goes to the option
    assert rows_of(task)[0]["divisors"][1] == len(whole) - len(tokenizer(prompt)["input_ids"])


def test_the_shipped_functions_take_the_first_of_equal_scores_and_the_premise_off() -> None:
    space: dict[str, Any] = {}
    exec(METRICS, space)

    def right(answer: int, premise: list[float]) -> float:
        doc = {"id": "q", "premise": False, "divisors": [1, 2, 2], "answer": answer}
        rows = [space["score"](doc, [(total, False) for total in (-3.0, -4.0, -4.0)])]
        if premise:
            lone = {**doc, "premise": True, "divisors": [1, 1, 1]}
            rows.append(space["score"](lone, [(total, False) for total in premise]))
        return float(space["accuracy"]([row["accuracy"] for row in rows]))

    assert [right(answer, []) for answer in range(3)] == [0.0, 1.0, 0.0]
    assert [right(answer, [-9.0, -1.0, -1.0]) for answer in range(3)] == [1.0, 0.0, 0.0]


def test_the_command_survives_a_shell_and_odd_paths() -> None:
    plain = shlex.split(command({"pretrained": "a/b-c", "add_bos_token": False}, NAME, "a task"))
    assert plain[4] == "pretrained=a/b-c,add_bos_token=False"
    odd = {"pretrained": "my models/a,b", "dtype": "float32"}
    assert json.loads(shlex.split(command(odd, NAME, "a task"))[4]) == odd
    assert plain[-2:] == ["--include_path", "a task"]


def scores_of(model: Any, tokenizer: Any, form: PromptFormat) -> dict[str, list[np.ndarray]]:
    """Our scores of every item, by each normalization."""
    import torch

    rows = Tokenizing(tokenizer).items([form.render(item) for item in ITEMS])
    lone = Tokenizing(tokenizer).items([form.render_alone(item) for item in ITEMS])
    with torch.no_grad():
        sums, alone = (Likelihood(model).sums(each) for each in (rows, lone))
    return {
        kind: [row.numpy() for row in normalized(sums, rows, kind, alone=alone)]
        for kind in NORMALIZATIONS
    }


def harness(task: Path, arguments: dict[str, Any]) -> tuple[float, list[Any]]:
    """What lm-eval prints, and its samples."""
    lm_eval = pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    from lm_eval.tasks import TaskManager

    told = lm_eval.simple_evaluate(
        model="hf",
        model_args={"dtype": "float32", **arguments},
        tasks=[NAME],
        task_manager=TaskManager(include_path=str(task), include_defaults=False),
        device="cpu",
        batch_size=4,
        log_samples=True,
        bootstrap_iters=0,
    )
    samples = sorted(told["samples"][NAME], key=lambda row: row["doc_id"])
    return told["results"][NAME]["accuracy,none"], samples


@pytest.fixture(
    params=[
        "stories",
        pytest.param("stories, chat", marks=pytest.mark.slow),
        "qwen3 with LoRA, letters",
    ]
)
def case(
    request: pytest.FixtureRequest, tmp_path: Path, tokenizer: Any, make_model: Callable[..., Any]
) -> tuple[Any, Any, PromptFormat, dict[str, Any]]:
    """A model, its tokenizer, how items are put to it, and lm-eval's arguments for it."""
    tf = pytest.importorskip("transformers", reason="transformers is not installed (the extra lm)")
    if request.param.startswith("stories"):
        folder = request.getfixturevalue("stories")
        own = tf.AutoTokenizer.from_pretrained(folder)
        model = tf.AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
        if "chat" not in request.param:
            return model, own, PromptFormat(pmi_context="last_line"), {"pretrained": str(folder)}
        own.chat_template = CHAT  # it writes no <s>, which this tokenizer would add
        given = {"pretrained": str(folder), "add_bos_token": False}
        return model, own, PromptFormat(chat=own), given
    base = tmp_path / "base"
    make_model("qwen3", vocab_size=len(tokenizer)).save_pretrained(base)
    tokenizer.save_pretrained(base)
    return handed_over(base, tmp_path / "model")


def handed_over(base: Path, folder: Path) -> tuple[Any, Any, PromptFormat, dict[str, Any]]:
    """A moved adapter on the model in `base`, handed over into `folder`."""
    pytest.importorskip("peft", reason="peft is not installed (the extra lm)")
    import torch

    from stacksl.lm.loading import open_base
    from stacksl.lm.settings import LoraSettings
    from stacksl.lm.training.adapters import Adapter

    loaded = open_base(str(base), device="cpu", dtype="float32")
    adapter = Adapter(loaded, LoraSettings(rank=4), seed=1)
    torch.manual_seed(3)
    with torch.no_grad():
        for each in adapter.parameters():
            each += 0.1 * torch.randn_like(each)
    about = Provenance(
        name=str(base), source=loaded.source, fingerprint=loaded.fingerprint, stamp="",
        answer_format="letter", template="{prompt}\n{options}\nAnswer:", normalization="sum",
        temperature=1.0, dtype=loaded.dtype, pmi_context="empty",
    )  # fmt: skip
    write_model(folder, adapter, about, adapted())
    form = about.form(loaded.tokenizer)
    return adapter.model, loaded.tokenizer, form, dict(model_arguments(about, str(folder)))


@pytest.mark.filterwarnings("ignore")
def test_lm_eval_chooses_what_we_choose_item_by_item(
    case: tuple[Any, Any, PromptFormat, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    model, own, form, arguments = case
    ours = scores_of(model, own, form)
    # letters are of one token and one character, so that their means are their sums
    for kind in ("sum", "pmi") if form.answer_format == "letter" else NORMALIZATIONS:
        task = task_folder(tmp_path, own, form, kind)
        elsewhere = tmp_path / kind
        elsewhere.mkdir()
        moved = task.rename(elsewhere / "moved")
        monkeypatch.chdir(elsewhere)

        printed, samples = harness(moved, arguments)
        chosen = [int(np.argmax(scores)) for scores in ours[kind]]
        right = [choice == ANSWERS[item.id] for choice, item in zip(chosen, ITEMS, strict=True)]
        assert printed == np.mean(right), kind
        rows = [sample["accuracy"] for sample in samples]
        alone = {name: np.array(scores) for name, premise, scores, _ in rows if premise}
        assert len(alone) == (len(ITEMS) if kind == "pmi" else 0)
        for n, (name, _, scores, _) in enumerate(row for row in rows if not row[1]):
            theirs = np.array(scores) - alone.get(name, 0.0)
            np.testing.assert_allclose(ours[kind][n], theirs, atol=1e-4, err_msg=f"{kind} {n}")
            assert chosen[n] == int(np.argmax(theirs)), (kind, name)
