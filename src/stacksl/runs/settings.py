"""What a run is asked to do: every setting with its default, its origin, and the presets.

Settings come in layers: flag over config file over preset over aim over default. `resolve` merges
them, remembers where each value came from, and names every mistake at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stacksl.errors import SettingsError
from stacksl.runs.budget import budget_mistake
from stacksl.runs.presets import AIMS, PRESETS

__all__ = ["Resolved", "Settings", "resolve"]

OF_GATE = {
    "gate_scale": "llf",
    "gate_cap": "llf",
    "kappa": "llf",
    "warmup": "llf",
    "reading": "llf",
    "reserve": "contested",
    "floor": "contested",
    "pace": "margin",
}
REGULARISED = (
    "reference",
    "ema_decay",
    "kl_weight",
    "kl_target",
    "kl_on_skips",
    "clip",
    "clip_level",
    "clip_multiple",
    "inner_steps",
    "learning_rate",
)


class Settings(BaseModel):
    """Everything that decides what a run does. `None` means: chosen from the data or the scorer."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    # what is bought
    budget: str = Field("0.1", description="0.1, 10%, 500, '$40' (needs price) or all")
    price: str | None = Field(None, description="what one label costs, e.g. 2.50")
    aim: Literal["model", "regret"] = Field("model", description="what labels are for (D8)")
    gate: str = Field("margin", description="when a label is worth buying (D8)")
    labeler: str = Field("oracle", description="who answers: oracle, noisy:P")
    mode: Literal["stream", "pool"] = Field("stream", description="each item once, or ten batches")
    order: Literal["shuffled", "file"] = Field("shuffled", description="order of a stream (D19)")
    seed: int = Field(0, ge=0, description="seeds everything that is random")
    batches: int = Field(10, ge=1, description="batches of a pool, a refit between each")

    # what is learnt
    features: str = Field("hashing", description="hashing, or sentences:NAME_OR_DIR")
    scorer: str | None = Field(None, description="ridge for fixed classes, newton for pairs (D5)")
    follower: str = Field("given", description="given, or hard (D13)")
    k: int | None = Field(None, ge=1, description="hard negatives the follower presents")
    refit: bool = Field(True, description="refit on all bought labels at the end (D15)")

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
    reserve: float = Field(0.7, gt=0, le=1, description="f of contested: how far ahead it may run")
    floor: float = Field(0.01, gt=0, lt=1, description="r of contested: price on schedule")
    pace: float | None = Field(None, gt=0, description="margin: 0.005 (one-hot ridge) or 0.03 (D8)")

    # the update of sgd
    learning_rate: float = Field(0.1, gt=0, description="η of sgd")
    kl_weight: float = Field(0.1, ge=0, description="λ of the KL term (sgd)")
    kl_target: float | None = Field(None, gt=0, description="τ; adjusts kl_weight (D16)")
    kl_on_skips: bool = Field(False, description="the KL-only step on skipped rounds")
    reference: Literal["frozen", "ema", "previous"] = Field("frozen", description="D3")
    ema_decay: float = Field(0.99, ge=0, lt=1, description="paper: 0.9 to 0.999")
    clip: Literal["scale", "literal", "none"] = Field("scale", description="D10")
    clip_level: float | None = Field(None, gt=0, description="ρ in nats; 95 % quantile if absent")
    clip_multiple: float | None = Field(None, gt=0, description="ρ as a multiple of the median")
    inner_steps: int = Field(1, ge=1, description="gradient steps a label (D3, proximal)")

    # reading the data
    format: str | None = Field(None, description="overrides what the reader recognises")
    prompt_column: str | None = None
    label_column: str | None = None
    max_candidates: int = Field(2000, ge=2)
    strict: bool = Field(False, description="stop at one unusable row")

    # the run itself
    checkpoint_every: int = Field(1000, ge=1, description="rounds between checkpoints")


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
    settings = _validated(merged, mistakes)
    explicit = {name for name, where in origin.items() if where in ("flag", "config")}
    mistakes += [*_unknown_names(settings), *_conflicts(settings, explicit)]
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
        near = _nearest(name, PRESETS) or f": known: {', '.join(sorted(PRESETS))}"
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
        return f"unknown setting '{name}'{_nearest(name, Settings.model_fields)}"
    expected = error["msg"].removeprefix("Input should be ")
    return f"{name} must be {expected}, not {error['input']!r}"


def _nearest(name: str, known: Any) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f": did you mean '{near[0]}'?" if near else ""


def _unknown_names(settings: Settings) -> list[str]:
    """A sentence for each name that no registry has, and for a budget that is none."""
    from stacksl.features import ENCODERS
    from stacksl.game.followers import FOLLOWERS
    from stacksl.game.gates import GATES
    from stacksl.game.scorers import SCORERS
    from stacksl.labels.labelers import LABELERS

    named: list[tuple[str, str | None, Any]] = [
        ("gate", settings.gate, GATES),
        ("follower", settings.follower, FOLLOWERS),
        ("scorer", settings.scorer, SCORERS),
        ("features", settings.features.partition(":")[0], ENCODERS),
        ("labeler", settings.labeler.partition(":")[0], LABELERS),
    ]
    found = [
        f"unknown {kind} '{name}'{_nearest(name, known) or ':'} known: {', '.join(sorted(known))}"
        for kind, name, known in named
        if name is not None and name not in known
    ]
    wrong = budget_mistake(settings.budget, settings.price)
    return found if wrong is None else [*found, wrong]


def _conflicts(settings: Settings, explicit: set[str]) -> list[str]:
    """The mistakes that only show when settings are seen together."""
    found: list[str] = []
    if settings.width_scale is not None and settings.width_scale <= 0:
        found.append(
            f"width_scale must be above 0, not {settings.width_scale:g}: at 0 the gate 'contested'"
            " never asks"
        )
    if settings.scorer != "sgd":
        wrong = sorted(explicit.intersection(REGULARISED))
        if wrong:
            found.append(
                f"{', '.join(wrong)} belong{'s' if len(wrong) == 1 else ''} to the scorer 'sgd':"
                f" give --scorer sgd, or leave {'it' if len(wrong) == 1 else 'them'} out"
            )
    if settings.noise == 0 and settings.width_scale is None:
        found.append("noise 0 makes α = σ√d of the gate score 0: give a width_scale with it")
    for name in sorted(explicit & OF_GATE.keys()):
        if settings.gate != OF_GATE[name]:
            found.append(
                f"{name} belongs to the gate '{OF_GATE[name]}', but the gate is '{settings.gate}':"
                f" give --gate {OF_GATE[name]}, or leave it out"
            )
    if settings.follower == "given" and settings.k is not None and "k" in explicit:
        found.append("k is the number of hard negatives: it needs --follower hard")
    needs_widths = settings.gate in ("llf", "contested") or settings.action == "ucb"
    if settings.track == "theta" and (needs_widths or settings.scorer != "sgd"):
        found.append(
            "track='theta' keeps no matrix: it needs --scorer sgd, and a gate and an action"
            " without widths"
        )
    if settings.clip_level is not None and settings.clip_multiple is not None:
        found.append("clip_level and clip_multiple exclude each other: give one of them")
    return found
