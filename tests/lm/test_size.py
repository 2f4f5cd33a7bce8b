"""The size of a run against what torch allocates while the same run is made.

Measured by torch's profiler: every allocation and release of the CPU allocator, in their order;
the highest sum is the fullest moment. The model is made inside, so its weights are counted.
"""

from __future__ import annotations

import json
import math
import random
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stacksl.errors import SettingsError
from stacksl.lm import Likelihood, ModelChoices, Packing, TokenItem
from stacksl.lm.loading import Loaded
from stacksl.lm.memory.meta import Memory, bound
from stacksl.lm.memory.size import Size, expect_fit, forecast, free_bytes, plan, require_room
from stacksl.lm.training.adapters import Adapter
from stacksl.lm.training.lora import LoraSettings
from stacksl.lm.training.objectives import Example
from stacksl.lm.training.recipe import TrainSettings
from stacksl.lm.training.refit import train

from ..runs.lm_cases import questions, tiny_model

torch = pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
tf = pytest.importorskip("transformers", reason="transformers is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")

NEAR = 0.15
VOCABULARY = 600
LAYERS = 4
LONGEST = 25  # items of one step, so that the longest ones meet there
DUE = (5, 10)


def config(kind: str = "qwen3", **changes: Any) -> Any:
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
    }
    kinds = {"qwen3": tf.Qwen3Config, "llama": tf.LlamaConfig, "mistral": tf.MistralConfig}
    return kinds[kind](**shape | changes)


def rows(count: int = 40, seed: int = 5) -> list[TokenItem]:
    """Items of 10 to 90 tokens of prompt and 2 to 5 options of 1 to 9 tokens."""
    draw = random.Random(seed)

    def some(size: int) -> tuple[int, ...]:
        return tuple(draw.randrange(VOCABULARY) for _ in range(size))

    found = []
    for number in range(count):
        options = tuple((each, *some(draw.randrange(9))) for each in range(draw.randrange(2, 6)))
        prompt = some(draw.randrange(10, 90))
        found.append(TokenItem(str(number), prompt, options, tuple(map(len, options))))
    return found


def choices(**changes: Any) -> ModelChoices:
    training: dict[str, Any] = {
        "objective": "ce",
        "epochs": 1,
        "batch_size": LONGEST,
        "save_every": 0,
    }
    training |= changes.pop("training", {})
    given: dict[str, Any] = {"model": "tiny", "dtype": "float32", "batch_tokens": 1024}
    return ModelChoices(**given | changes, training=TrainSettings(**training))


def attached(of: Any, chosen: ModelChoices) -> tuple[Adapter, Likelihood]:
    """The model of a configuration with real weights, and what moves."""
    model = tf.AutoModelForCausalLM.from_config(of, dtype=getattr(torch, chosen.dtype))
    model = model.eval().requires_grad_(False)
    loaded = Loaded(model, None, "tiny", "tiny", None, "", None, 512, "cpu", chosen.dtype)
    adapter = Adapter.attach(loaded, chosen.adapt, chosen.lora, seed=0)
    packing = Packing(batch_tokens=chosen.batch_tokens)
    return adapter, Likelihood(adapter.model, path=chosen.path, packing=packing)


def scored(of: Any, items: list[TokenItem], chosen: ModelChoices) -> None:
    _, likelihood = attached(of, chosen)
    for start in range(0, len(items), 32):  # as `Worker` does
        likelihood.sums_and_states(items[start : start + 32])


def trained(of: Any, items: list[TokenItem], chosen: ModelChoices) -> None:
    """Two steps over the longest items: the second has moments and gradients of the first."""
    adapter, likelihood = attached(of, chosen)
    longest = sorted(items, key=lambda item: len(item.prompt) + sum(map(len, item.options)))
    examples = [
        Example(item, None, 0, tuple(range(len(item.options)))) for item in longest[-LONGEST:]
    ]
    settings = replace(chosen.training, epochs=2)
    assert train(adapter, likelihood, examples, settings, seed=0, key=0).steps == 2


def fullest(work: Callable[[], None], folder: Path) -> int:
    """The highest number of bytes that torch's CPU allocator held during `work`."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    trace = folder / "trace.json"
    seen.export_chrome_trace(str(trace))
    events = [
        (event["ts"], event["args"]["Bytes"])
        for event in json.loads(trace.read_text())["traceEvents"]
        if event.get("name") == "[memory]"
    ]
    assert len(events) > 100
    held = most = 0
    for _, size in sorted(events, key=lambda event: event[0]):
        held += size
        most = max(most, held)
    return most


CASES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "lora": (config, {}),
    "checkpointing": (config, {"training": {"checkpointing": True}}),
    "full": (config, {"adapt": "full"}),
    "rank 64, small batches": (config, {"lora": LoraSettings(rank=64), "batch_tokens": 200}),
    "bfloat16": (config, {"dtype": "bfloat16"}),
    "llama, wide": (lambda: config("llama", hidden_size=128, tie_word_embeddings=False), {}),
    "padded": (lambda: config("mistral", sliding_window=16), {}),
    "moving reference": (config, {"training": {"objective": "stacksl", "reference": "ema"}}),
}
QUICK = ("lora", "checkpointing")
MARKED = [
    pytest.param(case, marks=() if case in QUICK else (pytest.mark.slow,), id=case)
    for case in CASES
]


@cache
def planned(case: str) -> Size:
    make, changes = CASES[case]
    return plan(make(), rows(), choices(**changes), DUE)


@pytest.mark.parametrize("case", MARKED)
def test_scoring_is_as_large_as_planned(case: str, tmp_path: Path) -> None:
    make, changes = CASES[case]
    chosen, items = choices(**changes), rows()
    expected = fullest(lambda: scored(make(), items, chosen), tmp_path)
    size = planned(case)
    assert size.scoring.total == pytest.approx(expected, rel=NEAR)


@pytest.mark.parametrize("case", MARKED)
def test_training_is_as_large_as_planned(case: str, tmp_path: Path) -> None:
    make, changes = CASES[case]
    chosen, items = choices(**changes), rows()
    expected = fullest(lambda: trained(make(), items, chosen), tmp_path)
    size = planned(case)
    assert size.training.total == pytest.approx(expected, rel=NEAR)


@pytest.fixture(scope="module")
def size() -> Size:
    return plan(config(), rows(), choices(training={"save_every": 50}), DUE)


def test_parts_are_those_of_the_shapes(size: Size) -> None:
    """Counted by hand: embeddings, layers, norms; LoRA of rank 16 on the seven matrices."""
    attention = 64 * 64 + 2 * 64 * 32 + 64 * 64
    layer = attention + 3 * 64 * 160 + 2 * 64 + 2 * 16
    assert size.parameters == VOCABULARY * 64 + LAYERS * layer + 64
    shapes = [(64, 64), (64, 32), (64, 32), (64, 64), (64, 160), (64, 160), (160, 64)]
    assert size.moving == LAYERS * sum(16 * (a + b) for a, b in shapes)
    assert size.training.weights - 4 * size.parameters in range(1, 200)  # the rotary table
    assert size.training.adapter == 2 * 4 * size.moving  # with the copy it is reset to
    assert size.training.gradients == 4 * size.moving
    assert size.training.optimiser == 2 * 4 * size.moving
    assert size.scoring.gradients == size.scoring.optimiser == 0
    assert size.tokens == sum(len(i.prompt) + sum(map(len, i.options)) for i in rows())


def test_disk_is_that_of_the_tensors(size: Size) -> None:
    options = sum(len(item.options) for item in rows())
    assert size.disk.weights == 4 * size.parameters
    assert size.disk.adapters == 3 * 4 * size.moving  # two refits and the final model
    assert size.disk.checkpoint == 3 * 4 * size.moving
    assert size.disk.features == 2 * options * (64 * 4 + 8)  # two epochs, 64 directions
    assert size.disk.run == size.disk.adapters + size.disk.checkpoint + size.disk.features


def test_smaller_batches_and_checkpointing_need_less(size: Size) -> None:
    whole, again = size.training, planned("checkpointing").training
    small = plan(config(), rows(), choices(batch_tokens=200), DUE).training
    assert small.total < 0.5 * whole.total
    assert again.total < 0.6 * whole.total


def test_no_weight_is_made() -> None:
    """A model of 430 billion parameters: weights of 0.86 terabytes."""
    huge = config(hidden_size=2**17, intermediate_size=2**18, num_attention_heads=2**10)
    found = plan(huge, rows(3), choices(dtype="bfloat16", lora=LoraSettings(rank=1)), DUE)
    assert found.training.weights > 8e11


def test_a_run_that_fits_is_let_through(size: Size) -> None:
    require_room(size, int(size.memory / 0.9) + 1)
    with pytest.raises(SettingsError, match="more than 90 % of the"):
        require_room(size, int(size.memory / 0.9) - 1)


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (config, {"normalisation": "pmi", "lora": LoraSettings(rank=64)}),
        (lambda: config("llama", num_attention_heads=32, num_key_value_heads=32),
         {"adapt": "full", "training": {"save_every": 1}}),
        (lambda: config(vocab_size=20_000),
         {"dtype": "bfloat16", "batch_tokens": 200, "training": {"reference": "ema"}}),
    ],
    ids=["two passes", "full, many heads", "many tokens"],
)  # fmt: skip
def test_the_bound_is_above_the_count(make: Callable[[], Any], changes: dict[str, Any]) -> None:
    chosen, items = choices(**changes), rows()
    found = plan(make(), items, chosen, DUE).memory
    assert found < bound(make(), items, chosen) < 20 * found


def test_nothing_is_counted_where_memory_is_ample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_model(tmp_path / "model")
    chosen, items = replace(choices(), model=str(folder)), questions(8)[0]
    with pytest.raises(SettingsError, match="more than 90 % of the"):
        expect_fit(chosen, items, DUE, 10_000)
    monkeypatch.setattr("stacksl.lm.memory.size.count", None)  # a call would be a TypeError
    expect_fit(chosen, items, DUE, 2**40)
    with pytest.raises(SettingsError, match="no linear layer"):
        expect_fit(replace(chosen, lora=LoraSettings(targets=("x",))), items, DUE, 2**40)


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


@pytest.mark.parametrize(("adapt", "dtype"), [("lora", "bfloat16"), ("full", "float32")])
def test_a_mixture_of_experts_has_a_size(adapt: str, dtype: str) -> None:
    shape = tf.Qwen3MoeConfig(**{**config().to_dict(), "layer_types": None, **EXPERTS})
    found = plan(shape, rows(12), choices(dtype=dtype, adapt=adapt), DUE)
    alike = plan(config(), rows(12), choices(dtype=dtype, adapt=adapt), DUE)
    assert 0.3 < found.training.total / alike.training.total < 3.0


def test_what_cannot_be_estimated_stops_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def odd(*given: Any) -> Any:
        raise RuntimeError("an operator without a shape.\nmore")

    folder = tiny_model(tmp_path / "model")
    chosen, items = replace(choices(), model=str(folder)), questions(8)[0]
    monkeypatch.setattr("stacksl.lm.memory.size.count", odd)
    with pytest.warns(UserWarning, match="not estimated .RuntimeError: an operator without a sh"):
        expect_fit(chosen, items, DUE, 10_000)
    with pytest.raises(SettingsError, match="cannot be estimated .* a run is not stopped by that"):
        forecast(chosen, items, DUE)


def test_a_bound_is_of_packed_rows() -> None:
    assert bound(config("mistral", sliding_window=16), rows(2), choices()) == math.inf


def test_a_refusal_says_what_to_change(size: Size) -> None:
    with pytest.raises(SettingsError) as refused:
        require_room(size, int(0.7 * size.memory))
    assert str(refused.value).endswith(
        "lower batch_tokens from 1024 to 512 and turn checkpointing on"
    )
    tight = replace(size, batch_tokens=512, checkpointing=True)
    with pytest.raises(SettingsError, match="set max_len_prompt, or take a smaller model"):
        require_room(tight, int(0.7 * size.memory))


def test_a_refusal_of_weights_that_do_not_fit(size: Size) -> None:
    with pytest.raises(SettingsError, match="take dtype bfloat16 or a smaller model"):
        require_room(size, 10_000)
    full = replace(size, moving=size.parameters, dtype="bfloat16")
    with pytest.raises(SettingsError, match="take adapt 'lora' or a smaller model"):
        require_room(full, 10_000)


def test_no_items_and_a_path_that_does_not_fit() -> None:
    with pytest.raises(SettingsError, match="got none"):
        plan(config(), [], choices(), DUE)
    with pytest.raises(SettingsError, match="'packed' does not fit"):
        plan(config("mistral", sliding_window=16), rows(2), choices(path="packed"), DUE)


def test_the_sum_is_of_all_parts() -> None:
    assert Memory(1, 2, 4, 8, 16, 32, 64).total == 127


def test_free_memory_is_a_plausible_number() -> None:
    assert 1e6 < free_bytes() < 1e15


class FakeGPUs:
    """Two GPUs, of which one has little memory left."""

    FREE = (80 * 10**9, 10**5)

    @classmethod
    def install(cls, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(cls.FREE))
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
        monkeypatch.setattr(torch.cuda, "mem_get_info", cls.memory)

    @classmethod
    def memory(cls, device: str) -> tuple[int, int]:
        return cls.FREE[int(device.removeprefix("cuda:"))], 80 * 10**9


def test_memory_of_a_gpu_is_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Too little of it is a warning, as running out there ends in a sentence."""
    from stacksl.runs.session.language import expect_room
    from stacksl.runs.settings.resolve import resolve

    folder = str(tiny_model(tmp_path))
    FakeGPUs.install(monkeypatch)
    assert [free_bytes(f"cuda:{n}") for n in range(2)] == list(FakeGPUs.FREE)
    items, _ = questions(12)

    def said(**given: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            expect_room(resolve({"model": folder, **given}).settings, items, 4)
        return [str(each.message) for each in seen if "this run needs" in str(each.message)]

    assert said(device="auto") == []
    assert said(device="cuda:0") == []
    (sentence,) = said(device="cuda:1")
    assert sentence.startswith("on cuda:1 this run needs about ")
    assert "more than 90 % of the 0.1 MB that are free" in sentence
