"""What a run is asked to do: every setting with its default, its origin, and the presets.

Settings come in layers: flag over config file over preset over aim over default. `resolve` merges
them, remembers where each value came from, and names every mistake at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stacksl.errors import SettingsError
from stacksl.runs.conflicts import conflicts, nearest, unknown_names
from stacksl.runs.presets import AIMS, PRESETS

__all__ = ["Resolved", "Settings", "resolve"]


class Settings(BaseModel):
    """Everything that decides what a run does. `None` means: chosen from the data or the scorer."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    # what is bought
    budget: str = Field("0.1", description="0.1, 10%, 500, '$40' (needs price) or all")
    price: str | None = Field(None, description="what one label costs: 2.50, or anna=3,ben=2")
    aim: Literal["model", "regret"] = Field("model", description="what labels are for (D8)")
    gate: str = Field("margin", description="when a label is worth buying (D8)")
    labeler: str = Field("oracle", description="who answers: oracle, noisy:P, file (people)")
    mode: Literal["stream", "pool"] = Field(
        "stream", description="each item once, or all ranked: the default of a file of classes"
    )
    order: Literal["shuffled", "file"] = Field("shuffled", description="order of a stream (D19)")
    rounds: int | None = Field(None, ge=1, description="items to take from standard input")
    seed: int = Field(0, ge=0, description="seeds everything that is random")
    batch: int = Field(
        25, ge=1, description="purchases open in all: what a pool tops up to, a refit before each"
    )
    audit: int | None = Field(
        None, ge=0, description="labels kept for measuring; by the budget if absent"
    )
    min_per_class: int = Field(0, ge=0, description="labels kept for each rare predicted class")
    owned: str | None = Field(None, description="a file of labels already held, outside the budget")

    # people who answer by file
    annotators: str = Field("anna", description="who answers, with commas between")
    overlap: int = Field(0, ge=0, description="rows that two annotators get")
    ask_dir: str | None = Field(None, description="where ask files go; RUN/ask if absent")
    ask_mode: str = Field("0600", description="permissions of ask files, octal")

    # what is learnt
    features: str = Field("hashing", description="hashing, or sentences:NAME_OR_DIR")
    scorer: str | None = Field(None, description="ridge for fixed classes, newton for pairs (D5)")
    follower: str = Field("given", description="given, or hard (D13)")
    k: int | None = Field(None, ge=1, description="hard negatives the follower presents")
    refit: bool = Field(True, description="refit on all bought labels at the end (D15)")
    names: bool = Field(True, description="class names are soft examples, the pool is a graph")

    # confidence
    ridge: float = Field(1.0, gt=0, description="paper: 1e-3 to 1; 1 is the theory's floor")
    delta: float = Field(0.05, gt=0, lt=1, description="paper: 0.05 or 0.1")
    noise: float = Field(1.0, ge=0, description="σ; 1 for labels (D5)")
    norm_bound: float = Field(1.0, ge=0, description="S, a bound on ‖θ*‖")
    track: Literal["labelled", "all", "theta"] = Field("labelled", description="what enters V (D2)")
    radius_counts: Literal["learnt", "rounds"] = Field("learnt", description="what it counts (D2)")
    action: Literal["greedy", "ucb"] = Field("greedy", description="what is played (D6)")

    # gates
    gate_scale: float | None = Field(None, ge=0, description="c of llf; calibrated if absent (D16)")
    kappa: float = Field(1.0, gt=0, description="paper: 0.5 to 1.5, times the median spread")
    gate_cap: bool = Field(True, description="hold c below the smallest warm-up spread (D7)")
    warmup: int | None = Field(None, ge=1, description="T0 of c: max(1, min(500, T/20)) if absent")
    reading: Literal["else", "literal"] = Field("else", description="branch of Algorithm 2 (D1)")
    width_scale: float | None = Field(None, description="α of contested; σ√d if absent (D8)")
    reserve: float | None = Field(
        None, gt=0, le=1, description="f of a priced gate; the gate's own if absent"
    )
    floor: float | None = Field(
        None, gt=0, lt=1, description="r of a priced gate; the gate's own if absent"
    )
    pace: float | None = Field(None, gt=0, description="margin: 0.005 (one-hot ridge) or 0.03 (D8)")

    # the update of sgd, and of a language model's refits
    learning_rate: float = Field(
        0.1, gt=0, description="η of sgd; 2e-4 for LoRA, 2e-5 for full fine-tuning"
    )
    kl_weight: float = Field(0.1, ge=0, description="λ of the KL term")
    kl_target: float | None = Field(None, gt=0, description="τ; adjusts kl_weight (D16)")
    kl_on_skips: bool = Field(False, description="the KL-only step on skipped rounds")
    reference: Literal["frozen", "ema", "previous"] = Field("frozen", description="D3")
    ema_decay: float = Field(0.99, ge=0, lt=1, description="paper: 0.9 to 0.999")
    clip: Literal["scale", "literal", "none"] = Field("scale", description="D10")
    clip_level: float | None = Field(None, gt=0, description="ρ in nats; 95 % quantile if absent")
    clip_multiple: float | None = Field(None, gt=0, description="ρ as a multiple of the median")
    inner_steps: int = Field(1, ge=1, description="gradient steps a label (sgd; D3, proximal)")

    # a language model: how it is asked (D11)
    model: str | None = Field(None, description="a folder, a name on the hub, or sample")
    adapt: Literal["lora", "full"] | None = Field(None, description="lora where a model is named")
    protocol: Literal["option", "letter"] = Field("option", description="what is asked for (D11)")
    template: str | None = Field(None, description="a name or a file; the protocol's if absent")
    chat: bool = Field(False, description="wrap the prompt in the tokenizer's chat template")
    normalisation: Literal["token_mean", "sum", "char_mean", "pmi"] = Field(
        "token_mean", description="log-likelihood of an option to its score; token_mean: the paper"
    )
    temperature: float | None = Field(
        None, gt=0, description="scores are divided by it; brought to the scale of sums if absent"
    )
    max_len_prompt: int | None = Field(None, ge=1, description="tokens of a prompt, its end kept")
    max_len_choice: int | None = Field(None, ge=1, description="tokens of an option")
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N")
    dtype: str = Field("auto", description="auto (float32, bfloat16 on a GPU), or its name")
    path: Literal["auto", "packed", "kv", "padded", "naive"] = Field(
        "auto", description="how options are scored; auto checks the fastest against naive"
    )
    batch_tokens: int = Field(4096, ge=1, description="tokens of one forward pass, at most")
    state_dim: int = Field(128, ge=1, description="directions of option states kept (D12)")

    # a language model: how it is trained
    lora_rank: int = Field(16, ge=1, description="r of LoRA")
    lora_alpha: float = Field(32.0, gt=0, description="α of LoRA; its update is scaled by α/r")
    lora_dropout: float = Field(0.0, ge=0, lt=1, description="dropout before LoRA")
    lora_targets: str | None = Field(
        None, description="layers, with commas between; every linear one but the output if absent"
    )
    objective: Literal["sft", "ce", "ce-hard", "stacksl"] = Field(
        "stacksl", description="what a refit minimises; `stacksl ls objectives`"
    )
    refit_at: str = Field(
        "0.05,0.1,0.25,0.5,1", description="shares of the budget at which the adapter is refitted"
    )
    epochs: int = Field(3, ge=1, description="passes of a refit over the labels learnt")
    batch_size: int = Field(8, ge=1, description="labels an optimiser's step")
    warmup_share: float = Field(0.1, ge=0, lt=1, description="share of the steps that warm up")
    weight_decay: float = Field(0.01, ge=0, description="of AdamW")
    checkpointing: bool = Field(False, description="drop activations, compute them again")
    training_checkpoint_every: int = Field(200, ge=0, description="steps; 0 for none")

    # reading the data
    classes: str | None = Field(None, description="a file of classes: name, optional description")
    format: str | None = Field(None, description="overrides what the reader recognises")
    prompt_column: str | None = None
    label_column: str | None = None
    max_candidates: int = Field(2000, ge=2)
    strict: bool = Field(False, description="stop at one unusable row")

    # the run itself
    checkpoint_every: int = Field(1000, ge=1, description="rounds between checkpoints")

    @property
    def adapts(self) -> bool:
        """Whether a language model is adapted."""
        return self.model is not None or self.adapt is not None


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings with the `origin` of each value: default, aim, preset, config or flag."""

    settings: Settings
    origin: Mapping[str, str]
    preset: str | None

    @property
    def warnings(self) -> list[str]:
        """A sentence for each value given outside the range that the paper recommends."""
        from stacksl.game.calibration import range_warnings

        given = [n for n, where in self.origin.items() if where in ("flag", "config")]
        values = {name: getattr(self.settings, name) for name in given}
        return range_warnings({n: v for n, v in values.items() if isinstance(v, int | float)})

    def with_defaults(self, layer: Mapping[str, Any], where: str) -> Resolved:
        """These settings with the values of `layer` for all that nobody chose."""
        open_ = {name: value for name, value in layer.items() if self.origin[name] == "default"}
        settings = self.settings.model_copy(update=open_)
        return Resolved(settings, {**self.origin, **dict.fromkeys(open_, where)}, self.preset)

    def explicit(self) -> dict[str, Any]:
        """What was given by flag, config or the preset's name: what `run.toml` holds."""
        named = {} if self.preset is None else {"preset": self.preset}
        return named | {
            name: getattr(self.settings, name)
            for name, origin in self.origin.items()
            if origin in ("flag", "config") and getattr(self.settings, name) is not None
        }


def resolve(
    flags: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    preset: str | None = None,
) -> Resolved:
    """The settings that `flags`, a config file's table and a `preset` make together.

    Raises:
        SettingsError: naming every mistake at once: unknown names (with the nearest match), values
            out of range, and settings that do not go together.
    """
    given = {k: v for k, v in (flags or {}).items() if v is not None}
    table = dict(config or {})
    named = table.pop("preset", None)
    preset = preset or (None if named is None else str(named))
    mistakes: list[str] = []
    layers = [("flag", given), ("config", table), ("preset", _preset(preset, mistakes))]
    aim = next((str(layer["aim"]) for _, layer in layers if "aim" in layer), "model")
    layers.append(("aim", AIMS.get(aim, {})))
    merged, origin = _merge(layers)
    if merged.get("model") is not None or merged.get("adapt") is not None:
        _for_model(merged, origin)
    settings = _validated(merged, mistakes)
    explicit = {name for name, where in origin.items() if where in ("flag", "config")}
    mistakes += [*unknown_names(settings), *conflicts(settings, explicit)]
    if mistakes:
        raise SettingsError("; ".join(mistakes))
    everything = {name: origin.get(name, "default") for name in Settings.model_fields}
    return Resolved(settings, everything, preset)


def _merge(layers: list[tuple[str, Mapping[str, Any]]]) -> tuple[dict[str, Any], dict[str, str]]:
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for where, layer in reversed(layers):
        for name, value in layer.items():
            merged[name], origin[name] = value, where
    if {"clip_level", "clip_multiple"} <= merged.keys():
        lower = _lower(origin, "clip_level", "clip_multiple")
        if lower is not None:  # two ways to set ρ: the higher layer's wins
            del merged[lower], origin[lower]
    for name in ("budget", "price"):  # numbers are welcome, text is kept: 0.1 must stay decimal
        if name in merged and merged[name] is not None:
            merged[name] = str(merged[name])
    return merged, origin


def _for_model(merged: dict[str, Any], origin: dict[str, str]) -> None:
    """Drop what a preset says of the linear scorer: over a language model it is another one."""
    for name in ("scorer", "learning_rate", "refit"):
        if origin.get(name) == "preset":
            del merged[name], origin[name]
    rates = {"lora": 2e-4, "full": 2e-5}
    for name, value in (
        ("adapt", "lora"),
        ("learning_rate", rates.get(str(merged.get("adapt")), 2e-4)),
    ):
        if name not in merged or merged[name] is None:
            merged[name], origin[name] = value, "default"


def _lower(origin: Mapping[str, str], one: str, other: str) -> str | None:
    """Which of two settings came from the lower layer; None where they came from the same."""
    ranks = ("aim", "preset", "config", "flag")
    first, second = ranks.index(origin[one]), ranks.index(origin[other])
    return None if first == second else one if first < second else other


def _preset(name: str | None, mistakes: list[str]) -> Mapping[str, Any]:
    if name is None:
        return {}
    if name == "paper-table":
        mistakes.append(
            "the preset 'paper-table' needs rewards of a synthetic stream and belongs to the"
            " studies: use 'paper' for Algorithm 2 on labels"
        )
        return {}
    if name not in PRESETS:
        near = nearest(name, PRESETS) or f": known: {', '.join(sorted(PRESETS))}"
        mistakes.append(f"unknown preset '{name}'{near}")
        return {}
    return PRESETS[name]


def _validated(values: Mapping[str, Any], mistakes: list[str]) -> Settings:
    """The settings in `values`; those that are wrong go to `mistakes`, the others still count."""
    try:
        return Settings(**values)
    except ValidationError as fault:
        mistakes += [_sentence(error) for error in fault.errors()]
        wrong = {str(error["loc"][0]) for error in fault.errors()}
        return Settings(**{name: v for name, v in values.items() if name not in wrong})


def _sentence(error: Any) -> str:
    name = str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        return f"unknown setting '{name}'{nearest(name, Settings.model_fields)}"
    expected = error["msg"].removeprefix("Input should be ")
    return f"{name} must be {expected}, not {error['input']!r}"
