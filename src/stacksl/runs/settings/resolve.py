"""From layers (flags, a config file, a preset, an aim) to a run's settings, or to their mistakes.

Each value keeps its origin, and every mistake is named at once.

A run names modules of the user's own, whose parts it is made with; whoever opens it imports them
from where Python finds modules: never from the run's folder, which holds data alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, Optional, get_type_hints

from pydantic import Field, ValidationError, create_model

from stacksl.core.gates.registry import GATES, gate_type
from stacksl.errors import SettingsError
from stacksl.runs.settings.conflicts import (
    conflicts,
    nearest,
    unknown_names,
    with_gate,
)
from stacksl.runs.settings.fields import Settings
from stacksl.runs.settings.presets import AIMS, PRESETS

CHOSEN = ("flag", "config", "installed", "environment")
"""The origins of settings that a run over other data or on another machine takes over."""


def settings_type(gate: object) -> type[Settings]:
    """`Settings` with the fields of the gate called `gate`, which are settings as well.

    Absent values of theirs are None, which means the gate's own default.
    """
    kind: Any = gate_type(gate) if isinstance(gate, str) else None
    return Settings if kind is None else _with_fields_of(kind)


@cache
def _with_fields_of(kind: Any) -> type[Settings]:
    hints = get_type_hints(kind)
    about = f"Of the gate {kind.name}."
    own: dict[str, Any] = {
        name: (Optional[hints[name]], Field(None, description=about))  # noqa: UP045 - any type
        for name in gate_settings(kind)
    }
    return create_model("Settings", __base__=Settings, **own) if own else Settings


def gate_settings(kind: type[Any]) -> list[str]:
    """The fields of a gate that no setting of every run has the name of."""
    return [each.name for each in fields(kind) if each.name not in Settings.model_fields]


def owners_of(name: str) -> list[str]:
    """The gates that have a setting `name` of their own."""
    return [gate for gate, kind in GATES.items() if name in gate_settings(kind)]


def known_settings() -> list[str]:
    """Every name that a setting can have, those of all gates among them."""
    own = {name for kind in GATES.values() for name in gate_settings(kind)}
    return [*Settings.model_fields, *sorted(own)]


@dataclass(frozen=True, slots=True)
class Resolved:
    """Settings with the `origin` of each value: default, aim, preset, config or flag."""

    settings: Settings
    origin: Mapping[str, str]
    preset: str | None

    def with_defaults(self, layer: Mapping[str, Any], where: str) -> Resolved:
        """These settings with the values of `layer` for all that nobody chose."""
        open_ = {name: value for name, value in layer.items() if self.origin[name] == "default"}
        origin = {**self.origin, **dict.fromkeys(open_, where)}
        return replace(self.updated(**open_), origin=origin)

    def updated(self, **values: Any) -> Resolved:
        """These settings with other `values`, whose origins stay."""
        return replace(self, settings=self.settings.model_copy(update=values))

    def explicit(self) -> dict[str, Any]:
        """The preset's name, what flag or config gave, and the features, which `--config` takes.

        The features are those that were installed, and another machine may have others.
        """
        named = {} if self.preset is None else {"preset": self.preset}
        return named | {
            name: getattr(self.settings, name)
            for name, origin in self.origin.items()
            if origin in CHOSEN and getattr(self.settings, name) is not None
        }


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
    given = {k: v for k, v in (flags or {}).items() if v is not None}
    table = dict(config or {})
    named = table.pop("preset", None)
    preset = preset or (None if named is None else str(named))
    mistakes: list[str] = []
    layers = [("flag", given), ("config", table), ("preset", _preset(preset, mistakes))]
    aim = next((str(layer["aim"]) for _, layer in layers if "aim" in layer), "model")
    layers.append(("aim", AIMS.get(aim, {})))
    merged, origin = _merge(layers)
    load_plugins(merged.get("plugins"))  # a gate's fields are settings
    if merged.get("model") is not None or merged.get("adapt") is not None:
        _for_model(merged, origin)
    if merged.get("bank") is not None:
        _for_bank(merged, origin)
    settings = _validated(merged, mistakes)
    explicit = {name for name, where in origin.items() if where in ("flag", "config")}
    mistakes += [*unknown_names(settings), *conflicts(settings, explicit)]
    if mistakes:
        raise SettingsError("; ".join(mistakes))
    everything = {name: origin.get(name, "default") for name in type(settings).model_fields}
    return Resolved(settings, everything, preset)


def _merge(layers: list[tuple[str, Mapping[str, Any]]]) -> tuple[dict[str, Any], dict[str, str]]:
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for where, layer in reversed(layers):
        for name, value in layer.items():
            merged[name], origin[name] = value, where
    if {"clip_level", "clip_multiple"} <= merged.keys():  # two ways to set ρ: the higher layer's
        ranks = ("aim", "preset", "config", "flag")
        one, other = (ranks.index(origin[name]) for name in ("clip_level", "clip_multiple"))
        if one != other:
            lower = "clip_level" if one < other else "clip_multiple"
            del merged[lower], origin[lower]
    return merged, origin


def _for_model(merged: dict[str, Any], origin: dict[str, str]) -> None:
    """Drop what a preset says of the linear scorer: over a language model it is another one."""
    for name in ("scorer", "learning_rate", "refit"):
        if origin.get(name) == "preset":
            del merged[name], origin[name]
    for name, value in (("adapt", "lora"), ("learning_rate", 2e-4)):
        if name not in merged or merged[name] is None:
            merged[name], origin[name] = value, "default"


def _for_bank(merged: dict[str, Any], origin: dict[str, str]) -> None:
    """Retrieve the candidates, where a preset may restrict those that items bring."""
    for name in ("follower", "k"):
        if origin.get(name) == "preset":
            del merged[name], origin[name]
    for name, value in (("follower", "nearest"), ("k", 64)):
        if merged.get(name) is None:
            merged[name], origin[name] = value, "default"


def _preset(name: str | None, mistakes: list[str]) -> Mapping[str, Any]:
    if name is None:
        return {}
    if name not in PRESETS:
        near = nearest(name, PRESETS) or f": known: {', '.join(sorted(PRESETS))}"
        mistakes.append(f"unknown preset '{name}'{near}")
        return {}
    return PRESETS[name]


def _validated(values: Mapping[str, Any], mistakes: list[str]) -> Settings:
    """The settings in `values`; those that are wrong go to `mistakes`, the others still count."""
    kind = settings_type(values.get("gate", Settings.model_fields["gate"].default))
    try:
        return kind(**values)
    except ValidationError as fault:
        mistakes += [_sentence(error, values.get("gate")) for error in fault.errors()]
        wrong = {str(error["loc"][0]) for error in fault.errors()}
        return _validated({n: v for n, v in values.items() if n not in wrong}, mistakes)


EXPECTED = {
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "int_parsing_size": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
}


def _sentence(error: Any, gate: object) -> str:
    name = str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        if owners := owners_of(name):
            return with_gate(name, owners, str(gate))
        if name == "coverage":
            return "unknown setting 'coverage': it is a query strategy, given by --gate coverage"
        return f"unknown setting '{name}'{nearest(name, known_settings())}"
    expected = EXPECTED.get(error["type"]) or error["msg"].removeprefix("Input should be ")
    return f"{name} must be {expected}, not {error['input']!r}"


def load_plugins(names: object) -> None:
    """Import the modules that the setting `plugins` names; they add their parts to registries.

    Raises:
        SettingsError: one cannot be imported.
    """
    for name in _each(names):
        try:
            import_module(name)
        except Exception as fault:
            raise SettingsError(
                f"the plugin '{name}' cannot be imported ({type(fault).__name__}: {fault}): give"
                " the name of a module, and put its folder on PYTHONPATH or install it"
            ) from fault


def plugin_versions(names: object) -> str:
    """Each plugin with the beginning of the SHA-256 of its file; empty where there is none."""
    return ", ".join(f"{name} {_digest(name)}" for name in _each(names))


def _digest(name: str) -> str:
    path = getattr(sys.modules.get(name), "__file__", None) or ""
    try:
        return sha256(Path(path).read_bytes()).hexdigest()[:12]
    except OSError:  # a module without a file of its own, such as one in an archive
        return "unknown"


def _each(names: object) -> list[str]:
    """The names between commas; what is no text is refused where settings are checked."""
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else []
