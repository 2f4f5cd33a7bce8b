"""Refits of tiny random models: what is minimised, by which gradients, and going on."""

import math
from dataclasses import replace

import numpy as np
import pytest

from stacksl.errors import RunError, SettingsError
from stacksl.game import losses
from stacksl.lm import Likelihood, LoraSettings, Packing, normalised
from stacksl.lm.course import Course
from stacksl.lm.descent import Descent, rate
from stacksl.lm.paths import naive
from stacksl.lm.tokens import TokenItem
from stacksl.lm.training import Example, TrainSettings, train

torch = pytest.importorskip("torch", reason="torch is not installed (the extra lm)")
pytest.importorskip("peft", reason="peft is not installed (the extra lm)")

FAST = TrainSettings(learning_rate=2e-2, epochs=4, batch_size=2, clip="none")


def attached(model, kind="lora", dropout=0.0, seed=0):
    from stacksl.lm.adapters import Adapter
    from stacksl.lm.loading import Loaded

    loaded = Loaded(
        model=model,
        tokenizer=None,
        name="tiny",
        source="tiny",
        revision=None,
        fingerprint="0",
        licence=None,
        positions=256,
        device="cpu",
        dtype=str(model.dtype).removeprefix("torch."),
    )
    return Adapter.attach(loaded, kind, LoraSettings(rank=4, alpha=8.0, dropout=dropout), seed=seed)


@pytest.fixture
def adapter(make_model):
    return attached(make_model("qwen3"))


def moved(adapter, size=0.05):
    """The adapter away from its start, where B = 0 hides half of the gradients."""
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in adapter.parameters():
            parameter += size * torch.randn(parameter.shape, generator=draw)
    return adapter


def base_scores(adapter, items, alone, settings):
    """Scores of the adapter as it is, which is the base as long as it is not trained."""
    likelihood = Likelihood(adapter.model)
    with torch.no_grad():
        sums = likelihood.sums(items)
        own = likelihood.sums(alone) if settings.normalisation == "pmi" else None
    scores = normalised(
        sums, items, settings.normalisation, alone=own, temperature=settings.temperature
    )
    return [tuple(row.tolist()) for row in scores]


def made(adapter, items, settings, skips=()):
    """Examples with gold 1 over half or more of the options; those in `skips` have none."""
    alone = [TokenItem(item.id, (1,), item.options, item.lengths) for item in items]
    found = []
    for number, scores in enumerate(base_scores(adapter, items, alone, settings)):
        candidates = (1, 0) if number % 2 else tuple(range(len(items[number].options)))
        gold = None if number in skips else 1
        own = alone[number] if settings.normalisation == "pmi" else None
        found.append(Example(items[number], own, gold, candidates, scores))
    return found


def recorded(monkeypatch):
    """The gradients of every step, which then moves nothing."""
    steps = []

    def step(self, number):
        steps.append([gradient.clone() for gradient in self.gradients()])
        self.drop()

    monkeypatch.setattr(Descent, "step", step)
    return steps


def same(left, right):
    return left.keys() == right.keys() and all(
        torch.equal(left[name], right[name]) for name in left
    )


@pytest.mark.parametrize("objective", ["sft", "ce", "ce-hard", "stacksl"])
def test_the_loss_falls(objective, adapter, items):
    settings = replace(FAST, objective=objective, epochs=1)
    examples = made(adapter, items, settings)
    likelihood = Likelihood(adapter.model)
    first = train(adapter, likelihood, examples, settings, seed=0, key=1)
    adapter.reset()
    last = train(adapter, likelihood, examples, replace(settings, epochs=8), seed=0, key=1)
    assert last.loss < 0.5 * first.loss
    assert (first.steps, last.steps, last.examples) == (3, 24, 5)
    assert last.tokens == 8 * first.tokens > 0
    assert not adapter.model.training
    assert (last.kl is None) == (objective == "sft")
    assert last.clipped == 0.0


@pytest.mark.parametrize("normalisation", ["token_mean", "sum", "char_mean", "pmi"])
def test_one_step_has_the_gradient_of_the_games_losses(monkeypatch, adapter, items, normalisation):
    """The naive path, and gradients over scores from `game.losses`, carried back by autograd."""
    settings = replace(
        FAST, normalisation=normalisation, temperature=0.7, batch_size=5, epochs=1, kl_weight=0.4,
        clip="scale", clip_level=0.5,
    )  # fmt: skip
    examples = made(adapter, items, settings, skips={3})
    moved(adapter)
    steps = recorded(monkeypatch)
    trained = train(adapter, Likelihood(adapter.model), examples, settings, seed=0, key=1)

    sums, slopes, pulls = [], [], []
    for each in examples:
        chosen = list(each.candidates)
        scores = naive(adapter.model, [[each.item]])[0]
        own = naive(adapter.model, [[each.alone]])[0] if each.alone else None
        kind = {"kind": normalisation, "alone": None if own is None else [own]}
        scores = normalised([scores], [each.item], temperature=0.7, **kind)[0][chosen]
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
    examples = made(adapter, items, settings)
    moved(adapter)
    steps = recorded(monkeypatch)
    train(adapter, Likelihood(adapter.model), examples, settings, seed=0, key=1)
    means = [
        -naive(adapter.model, [[each.item]])[0][1] / len(each.item.options[1]) for each in examples
    ]
    loss = torch.stack(means).mean()
    for got, wanted in zip(steps[0], torch.autograd.grad(loss, adapter.parameters()), strict=True):
        torch.testing.assert_close(got, wanted, rtol=2e-4, atol=2e-6)


def test_the_frozen_reference_pulls_nothing_at_the_start(monkeypatch, adapter, items):
    settings = replace(FAST, batch_size=5, epochs=1, kl_weight=10.0)
    examples = made(adapter, items, settings, skips=range(5))
    steps = recorded(monkeypatch)
    trained = train(adapter, Likelihood(adapter.model), examples, settings, seed=0, key=1)
    assert trained.kl == pytest.approx(0.0, abs=1e-6)
    assert trained.loss is None
    for gradient in steps[0]:
        assert float(gradient.abs().max()) < 1e-4


def test_kl_only_examples_draw_the_model_back_to_its_reference(adapter, items):
    settings = replace(FAST, epochs=6, kl_weight=5.0)
    examples = made(adapter, items, settings, skips=range(5))
    moved(adapter, 0.2)
    likelihood = Likelihood(adapter.model)
    still = replace(settings, epochs=1, learning_rate=1e-12)
    before = train(adapter, likelihood, examples, still, seed=0, key=1).kl
    after = train(adapter, likelihood, examples, settings, seed=0, key=1).kl
    assert after < 0.5 * before


def test_examples_without_a_label_are_left_out_where_nothing_pulls(adapter, items):
    examples = made(adapter, items, FAST, skips={0, 2, 3, 4})
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


def test_accumulated_gradients_are_those_of_one_batch(monkeypatch, adapter, items):
    settings = replace(FAST, batch_size=5, epochs=1)
    examples = made(adapter, items, settings)
    moved(adapter)
    steps = recorded(monkeypatch)
    for tokens in (1, 100_000):
        likelihood = Likelihood(adapter.model, packing=Packing(batch_tokens=tokens))
        train(adapter, likelihood, examples, settings, seed=0, key=1)
    for got, wanted in zip(*steps, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


def test_checkpointing_changes_no_gradient(monkeypatch, adapter, items):
    settings = replace(FAST, batch_size=5, epochs=1)
    examples = made(adapter, items, settings)
    moved(adapter)
    steps = recorded(monkeypatch)
    for on in (False, True):
        given = replace(settings, checkpointing=on)
        train(adapter, Likelihood(adapter.model), examples, given, seed=0, key=1)
    for got, wanted in zip(*steps, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


class OneOfTwo:
    """A rank of a crew of two that hears nothing of the other."""

    size = 2

    def __init__(self, rank):
        self.rank = rank

    def share(self, n):
        return range(self.rank, n, 2)

    def gather(self, results):
        self.own = results
        return results

    def total(self, tensors):
        self.gradients = [tensor.clone() for tensor in tensors]


def test_the_ranks_gradients_add_up_to_those_of_one_process(monkeypatch, make_model, items):
    adapter = moved(attached(make_model("qwen3"), dropout=0.3))
    settings = replace(FAST, batch_size=5, epochs=1)
    examples = made(adapter, items, settings)
    likelihood = Likelihood(adapter.model, packing=Packing(batch_tokens=30))
    steps = recorded(monkeypatch)
    train(adapter, likelihood, examples, settings, seed=0, key=1)
    ranks = [OneOfTwo(0), OneOfTwo(1)]
    monkeypatch.setattr(Course, "_note", lambda *_: None)
    for rank in ranks:
        rank.gather = lambda results, rank=rank: _padded_for_two(rank, results)
        train(adapter, likelihood, examples, settings, seed=0, key=1, crew=rank)
    assert ranks[0].pieces > 0
    assert ranks[1].pieces > 0
    for first, second, wanted in zip(ranks[0].gradients, ranks[1].gradients, steps[0], strict=True):
        torch.testing.assert_close(first + second, wanted, rtol=1e-4, atol=1e-7)


def _padded_for_two(rank, results):
    """As many results as examples, the other rank's made up."""
    rank.pieces = len(results)
    flat = [seen for piece in results for seen in piece]
    return [[*flat, *[(0.0, 0.0)] * (5 - len(flat))]]


class Killed(Exception):
    pass


CHANGES = {
    "frozen": {},
    "ema": {"reference": "ema", "ema_decay": 0.5},
    "previous": {"reference": "previous"},
    "pmi": {"normalisation": "pmi", "kl_target": 1e-3},
    "clipped": {"clip": "scale", "clip_multiple": 1.0, "epochs": 8},
    "checkpointing": {"checkpointing": True},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_killed_refit_goes_on_bit_for_bit(name, make_model, items, tmp_path):
    adapter = attached(make_model("qwen3"), dropout=0.2)
    settings = replace(FAST, save_every=2, **CHANGES[name])
    examples = made(adapter, items, settings, skips={4})
    likelihood = Likelihood(adapter.model)
    whole = train(adapter, likelihood, examples, settings, seed=3, key=2)
    expected = adapter.state()

    def kill(done, total):
        assert total == whole.steps
        if done == total - 1:  # a step after the last checkpoint
            raise Killed

    adapter.reset()
    with pytest.raises(Killed):
        train(adapter, likelihood, examples, settings, seed=3, key=2, folder=tmp_path, tell=kill)
    told = []
    adapter.reset()
    again = train(
        adapter, likelihood, examples, settings, seed=3, key=2, folder=tmp_path,
        tell=lambda done, total: told.append(done),
    )  # fmt: skip
    assert told[0] == whole.steps - whole.steps % 2 - (1 if whole.steps % 2 else 2) + 1
    assert same(expected, adapter.state())
    assert replace(again, seconds=0.0) == replace(whole, seconds=0.0)
    if name == "clipped":
        assert 0.0 < whole.clipped < 1.0


def test_a_checkpoint_of_other_arguments_is_not_ours(adapter, items, tmp_path):
    settings = replace(FAST, save_every=1, epochs=1)
    examples = made(adapter, items, settings)
    likelihood = Likelihood(adapter.model)
    given = {"seed": 0, "key": 1, "folder": tmp_path}

    def steps(**changes):
        adapter.reset()
        told = []
        arguments = {"examples": examples, "settings": settings, **given, **changes}
        train(adapter, likelihood, tell=lambda done, _: told.append(done), **arguments)
        return len(told)

    whole = steps()
    assert steps() == 0  # nothing is left to do
    assert steps(key=2) == whole
    assert steps(seed=1, key=2) == whole
    assert steps(settings=replace(settings, kl_weight=0.2)) == whole
    assert steps(examples=[replace(examples[0], gold=0), *examples[1:]]) == whole
    assert steps() == whole  # the file now belongs to the last call
    (tmp_path / "training.safetensors").write_bytes(b"cut off")
    assert steps() == whole
    assert [path.name for path in tmp_path.iterdir()] == ["training.safetensors"]


def test_no_checkpoint_unless_asked(adapter, items, tmp_path):
    train(
        adapter, Likelihood(adapter.model), made(adapter, items, FAST), FAST,
        seed=0, key=1, folder=tmp_path / "none",
    )  # fmt: skip
    assert not (tmp_path / "none").exists()


def test_order_and_dropout_come_from_seed_and_key_alone(make_model, items):
    adapter = attached(make_model("qwen3"), dropout=0.3)
    examples = made(adapter, items, FAST)
    likelihood = Likelihood(adapter.model)
    found = {}
    for name, keys, other in (("a", (0, 1), 11), ("b", (0, 1), 12), ("c", (0, 2), 11),
                              ("d", (1, 1), 11)):  # fmt: skip
        adapter.reset()
        torch.manual_seed(other)
        before = torch.get_rng_state()
        train(adapter, likelihood, examples, FAST, seed=keys[0], key=keys[1])
        assert torch.equal(before, torch.get_rng_state())
        found[name] = adapter.state()
    assert same(found["a"], found["b"])
    assert not same(found["a"], found["c"])
    assert not same(found["a"], found["d"])


def test_previous_pulls_nothing_and_ema_does(make_model, items):
    adapter = attached(make_model("qwen3"))
    likelihood = Likelihood(adapter.model)
    found = {}
    for name, weight in (("frozen", 0.0), ("previous", 2.0), ("ema", 2.0)):
        settings = replace(FAST, reference=name, kl_weight=weight, ema_decay=0.9)
        adapter.reset()
        examples = made(adapter, items, settings)
        found[name] = train(adapter, likelihood, examples, settings, seed=0, key=1), adapter.state()
    assert found["previous"][0].kl == pytest.approx(0.0, abs=1e-6)
    assert found["ema"][0].kl > 1e-4
    for name, wanted in found["frozen"][1].items():
        torch.testing.assert_close(found["previous"][1][name], wanted, rtol=1e-3, atol=1e-3)
    assert not same(found["ema"][1], found["frozen"][1])


def test_the_first_step_of_ema_has_the_policy_itself_as_reference(adapter, items):
    moved(adapter)
    settings = replace(FAST, reference="ema", epochs=1, batch_size=5)
    trained = train(
        adapter, Likelihood(adapter.model), made(adapter, items, settings), settings, seed=0, key=1
    )
    assert trained.kl == pytest.approx(0.0, abs=1e-6)


def test_the_kl_weight_is_steered_to_its_target(adapter, items):
    examples = made(adapter, items, FAST)
    likelihood = Likelihood(adapter.model)
    free = train(adapter, likelihood, examples, replace(FAST, kl_weight=0.0), seed=0, key=1)
    adapter.reset()
    held = train(
        adapter, likelihood, examples, replace(FAST, kl_weight=0.5, kl_target=1e-3, epochs=12),
        seed=0, key=1,
    )  # fmt: skip
    assert free.kl > 0.01
    assert held.kl < 0.5 * free.kl
    assert 0.5 < held.kl_weight <= 1.0 / FAST.learning_rate
    adapter.reset()
    loose = train(
        adapter, likelihood, examples, replace(FAST, kl_weight=0.5, kl_target=100.0), seed=0, key=1
    )
    assert loose.kl_weight < 0.5


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
            adapter, likelihood, made(adapter, items, settings), settings, seed=0, key=1
        )
        assert trained.clipped == share
        assert trained.largest >= trained.loss > 0.01
        cut = (1e-6, 1e-6) if share else (trained.loss, trained.largest)
        assert (trained.loss_clipped, trained.largest_clipped) == pytest.approx(cut)
        assert same(before, adapter.state()) == (objective == "stacksl")


def test_an_infinite_clip_is_none(adapter, items):
    likelihood = Likelihood(adapter.model)
    found = []
    for change in ({"clip": "none"}, {"clip": "literal", "clip_level": math.inf}):
        adapter.reset()
        settings = replace(FAST, **change)
        train(adapter, likelihood, made(adapter, items, settings), settings, seed=0, key=1)
        found.append(adapter.state())
    assert same(*found)


def test_numbers_that_are_not_finite_end_in_one_sentence(adapter, items, tmp_path):
    settings = replace(FAST, learning_rate=1e30, max_grad_norm=1e30, warmup_share=0.0, save_every=1)
    examples = made(adapter, items, settings)
    with pytest.raises(RunError, match="not finite at step 2 of 12: take a lower learning_rate"):
        train(
            adapter, Likelihood(adapter.model), examples, settings, seed=0, key=1, folder=tmp_path
        )
    assert not adapter.model.training
    assert (tmp_path / "training.safetensors").is_file()


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory")]
)
def test_no_memory_ends_in_one_sentence(monkeypatch, adapter, items, error):
    examples = made(adapter, items, FAST)
    likelihood = Likelihood(adapter.model)

    def fail(_):
        raise error

    monkeypatch.setattr(likelihood, "sums", fail)
    with pytest.raises(RunError, match="lower batch_tokens or turn checkpointing on"):
        train(adapter, likelihood, examples, FAST, seed=0, key=1)
    assert not adapter.model.training


def test_full_fine_tuning_learns_and_refuses_a_second_adapter(make_model, items):
    adapter = attached(make_model("llama"), "full")
    settings = replace(FAST, learning_rate=2e-3, epochs=8)
    examples = made(adapter, items, settings)
    likelihood = Likelihood(adapter.model)
    for reference in ("ema", "previous"):
        with pytest.raises(SettingsError, match="keeps a second adapter"):
            train(adapter, likelihood, examples, replace(settings, reference=reference),
                  seed=0, key=1)  # fmt: skip
    assert train(adapter, likelihood, examples, settings, seed=0, key=1).loss < 0.5


def test_a_base_in_bfloat16_learns_through_a_float32_adapter(make_model, items):
    adapter = attached(make_model("qwen3").to(torch.bfloat16))
    settings = replace(FAST, epochs=1)
    examples = made(adapter, items, settings)
    likelihood = Likelihood(adapter.model)
    first = train(adapter, likelihood, examples, settings, seed=0, key=1)
    adapter.reset()
    last = train(adapter, likelihood, examples, replace(settings, epochs=8), seed=0, key=1)
    assert {parameter.dtype for parameter in adapter.parameters()} == {torch.float32}
    assert last.loss < 0.5 * first.loss


def test_a_kl_term_needs_the_base_scores(adapter, items):
    examples = [replace(each, reference=()) for each in made(adapter, items, FAST)]
    with pytest.raises(SettingsError, match="needs its scores of item 'item 0'"):
        train(adapter, Likelihood(adapter.model), examples, FAST, seed=0, key=1)
    trained = train(
        adapter, Likelihood(adapter.model), examples, replace(FAST, objective="ce"), seed=0, key=1
    )
    assert trained.kl is None


def test_settings_out_of_range_are_all_named():
    with pytest.raises(SettingsError) as caught:
        TrainSettings(
            objective="dpo", reference="base", clip="hard", ema_decay=1.0, kl_weight=-1.0,
            kl_target=0.0, clip_level=0.0, epochs=0, batch_size=0, learning_rate=0.0,
            warmup_share=2.0, weight_decay=-1.0, max_grad_norm=0.0, save_every=-1,
        )  # fmt: skip
    for name in ("objective", "reference", "clip ", "ema_decay", "kl_weight", "kl_target",
                 "clip_level", "epochs", "batch_size", "learning_rate", "warmup_share",
                 "weight_decay", "max_grad_norm", "save_every"):  # fmt: skip
        assert name in str(caught.value)
    for wrong in ({"clip_level": 1.0, "clip_multiple": 2.0}, {"clip_multiple": 0.0},
                  {"kl_target": 1e-3, "reference": "previous"}, {"temperature": 0.0},
                  {"normalisation": "mean"}):  # fmt: skip
        with pytest.raises(SettingsError):
            TrainSettings(**wrong)


def test_the_rate_rises_to_one_and_falls_towards_zero():
    for total, share in ((1, 0.1), (7, 0.0), (40, 0.1), (40, 1.0)):
        rates = [rate(step, total, share) for step in range(total)]
        warmup = math.ceil(share * total)
        assert max(rates) == 1.0
        assert min(rates) > 0.0
        assert rates[:warmup] == sorted(rates[:warmup])
        assert rates[warmup:] == sorted(rates[warmup:], reverse=True)


def test_only_matrices_decay():
    matrix = torch.nn.Parameter(torch.ones(2, 2))
    scale = torch.nn.Parameter(torch.ones(2))
    descent = Descent(
        [matrix, scale], 1, learning_rate=0.1, warmup_share=0.0, weight_decay=0.5, max_grad_norm=1.0
    )
    descent.step(0)  # without any gradient
    torch.testing.assert_close(matrix.detach(), torch.full((2, 2), 0.95))
    assert torch.equal(scale.detach(), torch.ones(2))
