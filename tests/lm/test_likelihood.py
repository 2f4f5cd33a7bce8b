"""Both paths give the scores and gradients of plain passes, or packed rows are not taken."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from stacksl.errors import FeatureError
from stacksl.lm.prompt.tokens import TokenItem
from stacksl.lm.scoring.likelihood import Likelihood, packs
from stacksl.lm.scoring.packing import BATCH_TOKENS
from stacksl.lm.scoring.paths import packed

from .plain import by, naive

torch = pytest.importorskip("torch")


def scores(model: Any, items: list[TokenItem], path: str, **settings: Any) -> Any:
    if path == "naive":
        return torch.cat(naive(model, items))
    return torch.cat(by(path, model, **settings).sums(items))


def gradients(model: Any, items: list[TokenItem], path: str, **settings: Any) -> list[Any]:
    """Gradients of a loss in which every option weighs something else, and the scores."""
    model.zero_grad()
    values = scores(model, items, path, **settings)
    weights = torch.linspace(-1, 1, len(values), dtype=values.dtype)
    (weights * values).sum().backward()
    grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    assert grads
    return [values.detach(), *grads]


def assert_same(got: list[Any], expected: list[Any], within: float = 1e-5) -> None:
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        scale = max(1.0, float(other.abs().max()))
        assert float((one - other).abs().max()) <= within * scale


@pytest.mark.parametrize(("kind", "lora"), [("qwen3", True), ("llama", False)])
def test_gradients_are_the_naive_ones(
    make_model: Any, with_lora: Any, kind: str, lora: bool, items: list[TokenItem]
) -> None:
    model = with_lora(make_model(kind)) if lora else make_model(kind)
    expected = gradients(model, items, "naive")
    for path in ("packed", "padded"):
        assert_same(gradients(model, items, path), expected)


def sharp(make_model: Any) -> Any:
    """A model in bfloat16 whose logits are so large that rounding costs over 0.02 nats a token."""
    shape = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4}
    model = make_model("qwen3", initializer_range=0.05, **shape).bfloat16()
    with torch.no_grad():
        model.lm_head.weight.mul_(30)
    return model


def drawn(seed: int, count: int = 6) -> list[TokenItem]:
    draw = random.Random(seed)

    def tokens(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw.randrange(1, 101) for _ in range(draw.randrange(least, most)))

    options = [tuple(tokens(2, 8) for _ in range(4)) for _ in range(count)]
    return [TokenItem(str(n), tokens(5, 60), each, (1,) * 4) for n, each in enumerate(options)]


def test_rounding_of_a_sharp_model_is_no_fault_of_a_path(make_model: Any) -> None:
    model, items = sharp(make_model), drawn(2)
    likelihood = Likelihood(model)
    with torch.no_grad():
        got = likelihood.sums_and_states(items)[0]
        assert list(likelihood.used.values()) == ["packed"]
        tokens = torch.tensor([len(o) for item in items for o in item.options])
        gap = (torch.cat(got) - scores(model, items, "naive")).abs() / tokens
    assert float(gap.mean()) > 2e-2, "the model is not sharp enough for this test"


def test_a_wrong_mask_of_a_sharp_model_is_caught(make_model: Any, monkeypatch) -> None:
    def leaking(branch: Any) -> Any:  # an option sees those before it
        rows, size = branch.shape
        return np.broadcast_to(np.tri(size, dtype=np.bool_), (rows, size, size)).copy()

    monkeypatch.setattr("stacksl.lm.scoring.packing._mask", leaking)
    likelihood = Likelihood(sharp(make_model))
    with torch.no_grad(), pytest.warns(UserWarning, match="'packed' does not hold .* nats a token"):
        likelihood.sums(drawn(0))


def test_eager_attention_is_set_to_sdpa(make_model: Any, items: list[TokenItem]) -> None:
    model = make_model("qwen3", attn_implementation="eager")
    likelihood = Likelihood(model)
    assert model.config._attn_implementation == "sdpa"
    with torch.no_grad():
        values = torch.cat(likelihood.sums(items))
        assert_same([values], [scores(make_model("qwen3"), items, "naive")])


@pytest.mark.parametrize("kind", ["mistral", "gemma2", "gpt_oss"])
def test_what_fits_a_sliding_window_is_packed(
    make_model: Any, kind: str, items: list[TokenItem], monkeypatch: pytest.MonkeyPatch
) -> None:
    import stacksl.lm.scoring.likelihood as module

    packed, right = list[str](), module.packed

    def noted(model: Any, items: list[TokenItem], **more: Any) -> Any:
        packed.extend(item.id for item in items)
        return right(model, items, **more)

    monkeypatch.setattr(module, "packed", noted)
    model = make_model(kind, sliding_window=30)
    likelihood = Likelihood(model)
    got = torch.cat(likelihood.sums(items)).detach()
    assert_same([got], [scores(model, items, "naive").detach()], 1.5e-5)
    assert set(packed) == {item.id for item in items} - {"item 3"}  # of 33 tokens and 6
    model.config.sliding_window = None
    if kind != "mistral":
        assert not packs(model)


def test_a_model_with_a_recurrent_state_is_not_packed(make_model: Any) -> None:
    model = make_model("gpt2")  # names no types of layers, as Jamba in transformers 5.0
    assert packs(model)
    model._is_stateful = True
    assert not packs(model)


def test_a_path_is_checked_on_few_options_and_once(make_model: Any) -> None:
    def passes(likelihood: Likelihood, item: TokenItem) -> int:
        seen = []
        handle = model.register_forward_hook(lambda *_: seen.append(1))
        likelihood.sums([item] * 3)
        handle.remove()
        return len(seen)

    model = make_model("qwen3", initializer_range=0.05).bfloat16()
    many = TokenItem("many", (5, 6), tuple((n, n + 1) for n in range(1, 90)), (1,) * 89)
    first = Likelihood(model)
    assert passes(first, many) == 64 + 1 + 1 + 1  # an option each, packed, padded; packed
    again = Likelihood(model, verdict=first.verdict)
    assert passes(again, many) == 1
    assert again.verdict == first.verdict
    other = Likelihood(model, verdict=first.verdict.replace("torch ", "torch 1"))
    assert passes(other, many) > 64


@pytest.mark.parametrize(("kind", "path"), [("gpt2", "packed"), ("bloom", "padded")])
@pytest.mark.filterwarnings("ignore")  # whether a cache can be repeated is the model's own affair
def test_absolute_positions_are_packed_and_none_or_no_sdpa_are_not(
    make_model: Any, items: list[TokenItem], kind: str, path: str
) -> None:
    model = make_model(kind)
    likelihood = Likelihood(model)
    with torch.no_grad():
        assert_same([torch.cat(likelihood.sums(items))], [scores(model, items, "naive")])
    assert likelihood.used == {"sums": path}


@pytest.mark.parametrize("breaks", [False, True])
def test_a_path_that_is_wrong_or_breaks_is_left_with_a_warning(
    make_model: Any, items: list[TokenItem], monkeypatch: pytest.MonkeyPatch, breaks: bool
) -> None:
    def wrong(*given: Any, **more: Any) -> Any:
        if breaks:
            raise RuntimeError("no kernel")
        return [(value + 0.01, states) for value, states in packed(*given, **more)]

    monkeypatch.setattr("stacksl.lm.scoring.likelihood.packed", wrong)
    model = make_model("qwen3")
    likelihood = Likelihood(model)
    why = "no kernel" if breaks else "nats a token off"
    with torch.no_grad():
        with pytest.warns(UserWarning, match=f"does not hold .*{why}.* 'padded' is taken"):
            got = torch.cat(likelihood.sums(items))
        assert_same([got], [scores(model, items, "naive")])
    assert likelihood.used == {"sums": "padded"}


def test_the_check_leaves_every_module_in_its_mode(make_model: Any, items: list[TokenItem]) -> None:
    model = make_model("qwen3", attention_dropout=0.5).train()
    model.model.layers[0].eval()
    before = [module.training for module in model.modules()]
    Likelihood(model).sums(items)  # under dropout two passes differ: the check must not
    assert [module.training for module in model.modules()] == before


def test_numbers_that_are_not_finite_are_refused(make_model: Any, items: list[TokenItem]) -> None:
    model = make_model("qwen3")
    with torch.no_grad():
        model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(FeatureError, match="not finite"):
        Likelihood(model).sums(items)


def without_room(model: Any, rows: int, error: Exception) -> Any:
    """Let passes of more than so many rows fail."""

    def check(module: Any, given: Any) -> None:
        if given[0].shape[0] > rows:
            raise error

    return model.get_input_embeddings().register_forward_pre_hook(check)


@pytest.mark.parametrize(("path", "states"), [("packed", True), ("padded", False)])
def test_a_batch_without_room_is_halved(
    make_model: Any, items: list[TokenItem], path: str, states: bool
) -> None:
    """Scores and states are those of the whole batch, and later batches are smaller."""
    model = make_model("qwen3")
    likelihood = by(path, model, batch_tokens=256)

    def read() -> list[Any]:
        with torch.no_grad():
            if not states:
                return [*likelihood.sums(items)]
            return [each for both in likelihood.sums_and_states(items) for each in both]

    expected = read()
    most = max(len(item.options) for item in items) if path == "padded" else 1
    errors = (torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory"))
    for error in errors:
        likelihood.batch_tokens = 256
        handle = without_room(model, most, error)
        assert_same(read(), expected)
        assert likelihood.batch_tokens < 256
        handle.remove()
        handle = without_room(model, 0, error)
        with pytest.raises(type(error)):
            read()
        handle.remove()
    assert likelihood.used == {"states" if states else "sums": path}


def test_other_faults_are_not_halved(make_model: Any, items: list[TokenItem]) -> None:
    likelihood = Likelihood(make_model("qwen3"))
    with torch.no_grad():
        likelihood.sums(items)
        without_room(likelihood.model, 1, RuntimeError("no kernel"))
        with pytest.raises(RuntimeError, match="no kernel"):
            likelihood.sums(items)
    assert likelihood.batch_tokens == BATCH_TOKENS


def calls_of(model: Any, items: list[TokenItem], read: Any) -> tuple[list[str], Any]:
    """The names of torch's kernels in a pass and its gradients, and the scores of the pass."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None):
            seen.append(call.name().removeprefix("aten::"))
            return call(*args, **(kwargs or {}))

    seen: list[str] = []
    with Calls():
        values = torch.cat([sums for sums, _ in read(model, items)])
        values.sum().backward()
    return seen, values


@pytest.mark.parametrize("half", [False, True], ids=["float32", "autocast"])
def test_a_packed_pass_takes_the_fused_attention_and_reads_no_number(
    make_model: Any, with_lora: Any, items: list[TokenItem], half: bool
) -> None:
    """With its mask too, so that no matrix of attention weights is kept for the gradients."""
    model = with_lora(make_model("qwen3"))
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        seen, values = calls_of(model, items, packed)
    layers = model.config.num_hidden_layers
    kernel = "_scaled_dot_product_flash_attention_for_cpu"
    assert (seen.count(kernel), seen.count(f"{kernel}_backward")) == (layers, layers)
    assert not {"_softmax", "_safe_softmax", "_local_scalar_dense"} & set(seen)
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    assert {each.dtype for each in (values, *gradients)} == {torch.float32}
    model.set_attn_implementation("eager")
    assert "_softmax" in calls_of(model, items, packed)[0]
