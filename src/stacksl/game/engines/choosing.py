"""Which engine plays a stream: the one asked for, or the fastest that makes the same decisions."""

from __future__ import annotations

from typing import Literal

from stacksl.errors import SettingsError
from stacksl.game.engines.arrays import Stream
from stacksl.game.engines.terms import Terms

__all__ = ["Engine", "Kind", "Precision", "choose_engine"]

Engine = Literal["auto", "fused", "blocked", "stepwise", "loop"]
Kind = Literal["fused", "blocked", "stepwise", "loop"]
Precision = Literal["exact", "mixed", "float32"]

_SMALL = 64  # columns up to which the fused loop is the fastest


def choose_engine(
    engine: Engine, precision: Precision, stream: Stream, terms: Terms, compiled: bool
) -> Kind:
    """The engine that plays `stream` under `terms`; `compiled` says that its gate is compiled.

    `auto` takes `blocked` (`stepwise` where a follower adapts, which leaves no features to look
    ahead at) for more than 64 columns of pair features, where every round reads widths; else
    `fused` where there is such a loop.

    Raises:
        SettingsError: the engine does not play this, or not in this precision.
    """
    able = compiled and (stream.classes is None or terms.scorer == "ridge")
    delays = able and stream.classes is None and terms.drift is None
    if engine == "fused" and not able:
        raise SettingsError(
            f"no fused loop plays {_what(stream, terms)}: take engine 'auto' or 'loop'"
        )
    if engine in ("blocked", "stepwise") and not delays:
        guarded = "" if terms.drift is None else " under a drift guard"
        raise SettingsError(
            f"the engine '{engine}' does not play {_what(stream, terms)}{guarded}: it is for pair "
            "features; take engine 'auto'"
        )
    if engine == "blocked" and terms.present is not None:
        raise SettingsError(
            "the engine 'blocked' looks ahead, and an adaptive follower chooses late: take engine "
            "'stepwise' or 'auto'"
        )
    if precision != "exact" and (engine in ("fused", "loop") or not delays):
        raise SettingsError(
            f"precision '{precision}' belongs to the engines 'blocked' and 'stepwise', which play "
            "pair features without a drift guard: take precision 'exact', or one of them"
        )
    if engine != "auto":
        return engine
    if delays and (precision != "exact" or (stream.dim > _SMALL and _reads_widths(terms))):
        return "blocked" if terms.present is None else "stepwise"
    return "fused" if able else "loop"


def _reads_widths(terms: Terms) -> bool:
    asked_for = terms.certificates or terms.settings.action == "ucb"
    return (asked_for or terms.gate.needs_widths) and terms.settings.track != "theta"


def _what(stream: Stream, terms: Terms) -> str:
    heads = "" if stream.classes is None else " on class heads"
    return f"the scorer '{terms.scorer}'{heads} with the gate '{terms.gate.name}'"
