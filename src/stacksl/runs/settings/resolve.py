"""From layers (flags, a config file, a preset) to a run's settings, or to their mistakes.

Each value keeps its origin, and every mistake is named at once.

A run names modules of the user's own, whose parts it is made with; whoever opens it imports them
from where Python finds modules: never from the run's folder, which holds data alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from stacksl.core.gates.registry import GATES
from stacksl.errors import SettingsError, expect
from stacksl.runs.settings.conflicts import conflicts, nearest, unknown_names
from stacksl.runs.settings.fields import GROUPS, Group, Settings, descriptions, gate_group

Model = TypeVar("Model", bound=Group)

CHOSEN = ("flag", "config", "installed", "environment", "drawn")
"""The origins of settings that a run over other data or on another machine takes over."""


RENAMED = {
    "batch": "open_questions",
    "aim": "gate.name",
    "until": "stop_when",
    "names": "class_names",
    "k": "top_k",
    "follower": "top_k",
    "track": "scorer.covariance_rows",
    "protocol": "lm.answer_format",
    "checkpointing": "lm.gradient_checkpointing",
    "ask_dir": "sheets.dir",
    "ask_mode": "sheets.mode",
    "prompt_column": "columns.prompt",
    "label_column": "columns.label",
    "id_column": "columns.id",
}
"""Settings that were called otherwise, by their names now."""

_PAPER: Mapping[str, Any] = {
    "lm.objective": "stacksl",
    "scorer.name": "sgd",
    "scorer.action": "ucb",
    "scorer.covariance_rows": "all",
    "scorer.radius_counts": "rounds",
    "update.clip": "literal",
    "update.clip_level": 5.0,
    "scorer.ridge": 1.0,
    "scorer.delta": 0.05,
    "scorer.noise": 1.0,
    "scorer.norm_bound": 1.0,
    "update.learning_rate": 0.1,
    "update.kl_weight": 0.5,
    "refit": False,
    "class_names": False,
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper-stacksl": {
        **_PAPER,
        "gate.name": "always",
        "update.reference": "previous",
        "budget": "all",
    },
    "paper": {
        **_PAPER,
        "gate.name": "llf",
        "gate.kappa": 1.0,
        "update.reference": "frozen",
        "update.kl_on_skips": True,
    },
}
"""Named layers of settings; `docs/presets.md` has the number that justifies every difference."""


def known_settings() -> list[str]:
    """The dotted name of every setting, those of all gates among them."""
    return [*descriptions()]


def unknown_setting(name: str) -> str:
    """The sentence for a setting that there is not, or not with the gate that was chosen."""
    names = known_settings()
    if name in names:
        field = name.removeprefix("gate.")
        gates = [gate for gate in GATES if field in gate_group(gate).model_fields]
        single = len(gates) == 1
        belongs = f"the gate '{gates[0]}'" if single else f"the gates {', '.join(gates)}"
        return (
            f"{name} belongs to {belongs}, which was not chosen: give"
            f" --gate {gates[0] if single else 'with one of them'}, or leave it out"
        )
    key = name.rpartition(".")[2]
    if key == "coverage":
        return f"unknown setting '{name}': coverage is a query strategy, given by --gate coverage"
    if key == "bank":
        return (
            f"unknown setting '{name}': banks of answers were removed, give each question its"
            " candidates in the data file"
        )
    if new_names := named(key):
        return f"unknown setting '{name}': it is called {' or '.join(new_names)}"
    matches = get_close_matches(key, [setting.rpartition(".")[2] for setting in names], n=1)
    suggestion = f": did you mean '{named(matches[0])[0]}'?" if matches else ""
    return f"unknown setting '{name}'{suggestion}"


def named(key: str) -> list[str]:
    """The settings whose dotted names end in `key`, or the one that was called so."""
    if key in RENAMED:
        return [RENAMED[key]]
    return [name for name in known_settings() if name.rpartition(".")[2] == key]


def flattened(layer: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a layer by their dotted names.

    A layer may have tables, such as `gate = {name = "llf"}`, and dotted names. A plain value given
    for a group is its first setting: `gate = "llf"` is `gate.name`.
    """
    settings: dict[str, Any] = {}
    expect(isinstance(layer, Mapping), "settings should be a dict", layer)
    for name, value in layer.items():
        expect(isinstance(name, str), "the name of a setting should be text", name)
        if isinstance(value, Mapping) and name not in Settings.model_fields.keys() - GROUPS.keys():
            settings |= {f"{name}.{key}": inner for key, inner in value.items()}
        elif name in GROUPS:
            settings[f"{name}.{next(iter(GROUPS[name].model_fields))}"] = value
        else:
            settings[name] = value
    return {name: value for name, value in settings.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings with the `origin` of each value: default, preset, config or flag."""

    settings: Settings
    origin: Mapping[str, str]
    preset: str | None

    def with_defaults(self, layer: Mapping[str, Any], new_origin: str) -> Resolved:
        """These settings with the values of `layer` for all that nobody chose."""
        defaults = {name: value for name, value in layer.items() if self.origin[name] == "default"}
        origin = {**self.origin, **dict.fromkeys(defaults, new_origin)}
        return replace(self.updated(defaults), origin=origin)

    def updated(self, values: Mapping[str, Any]) -> Resolved:
        """These settings with other `values`, whose origins stay."""
        return replace(self, settings=self.settings.replaced(values))


def resolve(
    flags: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    preset: str | None = None,
) -> Resolved:
    """The settings that `flags`, a config file's table and a `preset` make together.

    Raises:
        SettingsError: naming every mistake at once: unknown names (with the nearest match), values
            out of range, and settings that do not go together. A plugin that cannot be imported
            is named alone.
    """
    table = dict(config or {})
    preset_name = table.pop("preset", None)
    expect(preset is None or isinstance(preset, str), "preset should be a name", preset)
    preset = preset or (None if preset_name is None else str(preset_name))
    mistakes: list[str] = []
    layers: list[tuple[str, Mapping[str, Any]]] = [
        ("flag", flattened({} if flags is None else flags)),
        ("config", flattened(table)),
        ("preset", _preset(preset, mistakes)),
    ]
    values, origin = dict[str, Any](), dict[str, str]()
    for source, layer in reversed(layers):
        values |= layer
        origin |= dict.fromkeys(layer, source)
    load_plugins(values.get("plugins"))  # a gate's fields are settings
    if values.keys() & {"lm.model", "lm.adapt", "lm.adapter"}:
        for name in ("scorer.name", "update.learning_rate", "refit"):
            if origin.get(name) == "preset":  # said of the linear scorer: here it is another one
                del values[name], origin[name]
        for name, value in {"lm.adapt": "lora", "update.learning_rate": 2e-4}.items():
            if name not in values:
                values[name], origin[name] = value, "default"
    gate_fields = gate_group(values.get("gate.name")).model_fields
    for name in [name for name in values if origin[name] == "preset"]:
        if name.startswith("gate.") and name.removeprefix("gate.") not in gate_fields:
            del values[name], origin[name]  # of the preset's gate, where another was chosen
    settings = validated(values, mistakes)
    origins = {name: origin.get(name, "default") for name in settings.flat()}
    explicit = {name for name, source in origins.items() if source in ("flag", "config")}
    mistakes += unknown_names(settings)
    if values.keys() <= origins.keys():  # else one that has another name would be missed
        mistakes += conflicts(settings, explicit)
    if mistakes:
        raise SettingsError("; ".join(mistakes))
    return Resolved(settings, origins, preset)


def _preset(name: str | None, mistakes: list[str]) -> Mapping[str, Any]:
    if name is None:
        return {}
    if name not in PRESETS:
        hint = nearest(name, PRESETS) or f": known: {', '.join(sorted(PRESETS))}"
        mistakes.append(f"unknown preset '{name}'{hint}")
        return {}
    return PRESETS[name]


def validated(values: Mapping[str, Any], mistakes: list[str]) -> Settings:
    """The settings in `values`; those that are wrong go to `mistakes`, the others still count."""
    tables: dict[str, dict[str, Any]] = {name: {} for name in ("", *GROUPS)}
    for name, value in values.items():
        group, _, field = name.partition(".")
        table, key = (group, field) if group in GROUPS else ("", name)
        tables[table][key] = value
    kinds = {**GROUPS, "gate": gate_group(tables["gate"].get("name", "margin"))}
    groups = {
        name: _valid(kind, tables[name], f"{name}.", mistakes) for name, kind in kinds.items()
    }
    return _valid(Settings, tables[""] | groups, "", mistakes)


def _valid(kind: type[Model], values: dict[str, Any], group: str, mistakes: list[str]) -> Model:
    try:
        return kind(**values)
    except SettingsError as refusal:
        faults = refusal.__cause__.errors()  # type: ignore[union-attr]
        mistakes += (kind.sentence(error, group, unknown_setting) for error in faults)
        wrong = {str(error["loc"][0]) for error in faults if error["loc"]}
        good = {name: value for name, value in values.items() if wrong and name not in wrong}
        return _valid(kind, good, group, mistakes)


def load_plugins(names: object) -> None:
    """Import the modules that the setting `plugins` names; they add their parts to registries.

    Raises:
        SettingsError: one cannot be imported.
    """
    for name in _listed(names):
        try:
            import_module(name)
        except Exception as fault:
            raise SettingsError(
                f"the plugin '{name}' cannot be imported ({type(fault).__name__}: {fault}): give"
                " the name of a module, and put its folder on PYTHONPATH or install it"
            ) from fault


def plugin_versions(names: object) -> str:
    """Each plugin with the beginning of the SHA-256 of its file; empty where there is none."""
    return ", ".join(f"{name} {_digest(name)}" for name in _listed(names))


def _digest(name: str) -> str:
    path = getattr(sys.modules.get(name), "__file__", None) or ""
    try:
        return sha256(Path(path).read_bytes()).hexdigest()[:12]
    except OSError:  # a module without a file of its own, such as one in an archive
        return "unknown"


def _listed(names: object) -> list[str]:
    """The names in a list or between commas."""
    several = names if isinstance(names, list | tuple) else str(names).split(",")
    return [] if names is None else [str(name).strip() for name in several]
