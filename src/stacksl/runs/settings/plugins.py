"""Modules of the user's own, whose parts a run is made with.

A run names them, and whoever opens it imports them from where Python finds modules: never from the
run's folder, which holds data alone.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from importlib import import_module
from pathlib import Path

from stacksl.errors import SettingsError


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
