"""Refits of tiny random models: what is minimized, and by which gradients."""

from dataclasses import replace

import numpy as np
import pytest

from stacksl.core import losses
from stacksl.lm.scoring.likelihood import Likelihood
from stacksl.lm.scoring.normalize import normalized
from stacksl.lm.training.refit import train

from .plain import naive
from .training_cases import FAST, attached, examples_of, moved, recorded, same

torch = pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")


@pytest.fixture
def adapter(make_model):
    return attached(make_model("qwen3"))


def test_a_step_reads_no_number_of_a_device_by_itself(monkeypatch, adapter, items):
    """Losses, KL and the gradient's length come to the host together, behind the last gradient."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Reads(TorchDispatchMode):
        def __torch_dispatch__(self, call, types, args=(), kwargs=None):
            if call is torch.ops.aten._local_scalar_dense.default:
                waits.append(call)
            return call(*args, **(kwargs or {}))

    settings = replace(FAST, clip="scale", clip_level=0.5, epochs=1, batch_size=3)
    examples, waits = examples_of(adapter, items, settings, skips={3}), []
    likelihood = Likelihood(adapter.model)
    recorded(monkeypatch)  # the optimizer's own numbers are on the host
    train(adapter, likelihood, examples, settings, seed=0, key=1)  # checks the path
    with Reads():
        trained = train(adapter, likelihood, examples, settings, seed=0, key=1)
    assert (trained.steps, waits) == (2, [])


@pytest.mark.parametrize("normalization", ["token_mean", "sum", "char_mean", "pmi"])
def test_one_step_has_the_gradient_of_the_games_losses(monkeypatch, adapter, items, normalization):
    """The naive path, and gradients over scores from `core.losses`, carried back by autograd."""
    settings = replace(
        FAST, normalization=normalization, temperature=0.7, batch_size=5, epochs=1, kl_weight=0.4,
        clip="scale", clip_level=0.5,
    )  # fmt: skip
    examples = examples_of(adapter, items, settings, skips={3})
    moved(adapter)
    steps = recorded(monkeypatch)
    trained = train(adapter, Likelihood(adapter.model), examples, settings, seed=0, key=1)

    sums, slopes, pulls = [], [], []
    for each in examples:
        chosen = list(each.candidates)
        scores = naive(adapter.model, [each.item])[0]
        own = naive(adapter.model, [each.alone])[0] if each.alone else None
        kind = {"kind": normalization, "alone": None if own is None else [own]}
        scores = normalized([scores], [each.item], temperature=0.7, **kind)[0][chosen]
        plain = scores.detach().double().numpy()
        slope = np.zeros_like(plain)
        if each.gold is not None:
            loss, raw = losses.cross_entropy(plain, chosen.index(each.gold))
            slope += losses.clip(loss, raw, 0.5, "scale")[1]
        pull, more = losses.kl(plain, np.array(each.reference)[chosen])
        pulls.append(pull)
        slope += 0.4 * more
        sums.append(scores)
        slopes.append(torch.tensor(slope / len(examples), dtype=torch.float32))
    expected = torch.autograd.grad(torch.cat(sums), adapter.parameters(), torch.cat(slopes))
    for got, wanted in zip(steps[0], expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=2e-4, atol=2e-6)
    assert trained.kl == pytest.approx(np.mean(pulls), rel=1e-4)
    assert max(float(each.abs().max()) for each in expected) > 1e-3


def test_sft_has_the_gradient_of_the_gold_tokens(monkeypatch, adapter, items):
    settings = replace(FAST, objective="sft", batch_size=5, epochs=1, temperature=0.01)
    examples = examples_of(adapter, items, settings)
    moved(adapter)
    steps = recorded(monkeypatch)
    train(adapter, Likelihood(adapter.model), examples, settings, seed=0, key=1)
    means = [
        -naive(adapter.model, [each.item])[0][1] / len(each.item.options[1]) for each in examples
    ]
    loss = torch.stack(means).mean()
    for got, wanted in zip(steps[0], torch.autograd.grad(loss, adapter.parameters()), strict=True):
        torch.testing.assert_close(got, wanted, rtol=2e-4, atol=2e-6)


def test_examples_without_a_label_are_left_out_where_nothing_pulls(adapter, items):
    examples = examples_of(adapter, items, FAST, skips={0, 2, 3, 4})
    for objective, weight in (("ce", 0.1), ("ce-hard", 0.1), ("sft", 0.1), ("stacksl", 0.0)):
        settings = replace(FAST, objective=objective, kl_weight=weight, epochs=1)
        trained = train(adapter, Likelihood(adapter.model), examples, settings, seed=0, key=1)
        assert (trained.steps, trained.examples) == (1, 1)
    nothing = [example for example in examples if example.gold is None]
    before = adapter.state()
    trained = train(
        adapter, Likelihood(adapter.model), nothing, replace(FAST, kl_weight=0.0), seed=0, key=1
    )
    assert (trained.steps, trained.examples, trained.loss, trained.kl) == (0, 0, None, None)
    assert same(before, adapter.state())


def test_previous_pulls_nothing(make_model, items):
    adapter = attached(make_model("qwen3"))
    likelihood = Likelihood(adapter.model)
    found = {}
    for name, weight in (("frozen", 0.0), ("previous", 2.0)):
        settings = replace(FAST, reference=name, kl_weight=weight)
        adapter.reset()
        examples = examples_of(adapter, items, settings)
        trained = train(adapter, likelihood, examples, settings, seed=0, key=1)
        found[name] = trained, adapter.state()
    assert found["previous"][0].kl is None
    assert same(found["previous"][1], found["frozen"][1])


def test_clipping_belongs_to_stacksl_alone(adapter, items):
    likelihood = Likelihood(adapter.model)
    for objective, share in (("stacksl", 1.0), ("ce", 0.0)):
        adapter.reset()
        settings = replace(
            FAST, objective=objective, clip="literal", clip_level=1e-6, kl_weight=0.0,
            weight_decay=0.0, epochs=1,
        )  # fmt: skip
        before = adapter.state()
        trained = train(
            adapter, likelihood, examples_of(adapter, items, settings), settings, seed=0, key=1
        )
        assert trained.clipped == share
        assert trained.largest >= trained.loss > 0.01
        cut = (1e-6, 1e-6) if share else (trained.loss, trained.largest)
        assert (trained.loss_clipped, trained.largest_clipped) == pytest.approx(cut)
        assert same(before, adapter.state()) == (objective == "stacksl")


def test_autocast_is_for_float32_next_to_half_precision_alone(make_model, items):
    def cast(model):
        """Whether passes run under autocast; all of them, or none."""
        seen = []
        model.get_input_embeddings().register_forward_hook(
            lambda *_: seen.append(torch.is_autocast_enabled("cpu"))
        )
        Likelihood(model).sums(items)
        assert len(set(seen)) == 1
        return seen[0]

    assert not cast(make_model("qwen3"))
    assert not cast(attached(make_model("qwen3")).model)
    assert not cast(make_model("qwen3").to(torch.bfloat16))
    assert cast(attached(make_model("qwen3").to(torch.bfloat16)).model)
