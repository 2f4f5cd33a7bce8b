"""Every gate by name: those of `stacksl.core` and the baselines.

A run offers the baselines with `plugins=stacksl_lab.baselines.plugin` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from stacksl.core.gates import registry
from stacksl.core.gates.registry import (
    LLF,
    Always,
    First,
    Gate,
    Information,
    Margin,
    Random,
)
from stacksl.errors import SettingsError, unknown_name
from stacksl_lab.baselines.adpo import ADPO
from stacksl_lab.baselines.gates import (
    DGS,
    LUCB,
    Avoided,
    Contested,
    Entropy,
    StudyLLF,
    Uniform,
    Width,
)
from stacksl_lab.baselines.reserve import Reserve

BASELINES: Mapping[str, type[Any]] = {
    "contested": Contested,
    "lucb": LUCB,
    "width": Width,
    "entropy": Entropy,
    "avoided": Avoided,
    "dgs": DGS,
    "uniform": Uniform,
    "adpo": ADPO,
    "reserve": Reserve,
}

GATES: Mapping[str, type[Any]] = {**registry.GATES, "llf": StudyLLF, **BASELINES}

CODES: Mapping[type[Any], int] = {
    Always: 0,
    First: 0,  # the same rule
    Random: 1,
    Uniform: 2,
    LLF: 3,
    StudyLLF: 3,
    Margin: 4,
    Contested: 5,
    ADPO: 6,
    LUCB: 7,
    Width: 8,
    Entropy: 9,
    Avoided: 10,
    Information: 11,
    DGS: 12,
    Reserve: 13,
}
"""The gates that compiled engines play, by the number that they dispatch on."""


def make_gate(name: str, **parameters: Any) -> Gate:
    """The gate called `name` with these parameters.

    Raises:
        SettingsError: no such gate, no such parameter, or a value outside its range.

    >>> make_gate("lucb", tolerance=0.5).tolerance
    0.5
    """
    if name not in GATES:
        raise unknown_name("gate", name, GATES)
    if GATES[name] is registry.GATES.get(name):
        return registry.make_gate(name, **parameters)
    known = {field.name for field in fields(GATES[name])}
    for parameter in parameters.keys() - known:
        takes = ", ".join(sorted(known))
        raise SettingsError(f"the gate '{name}' has no parameter '{parameter}': it takes {takes}")
    gate: Gate = GATES[name](**parameters)
    return gate
