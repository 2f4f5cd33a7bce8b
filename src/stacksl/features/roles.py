"""The prompts that a model of sentence-transformers declares for texts of a role."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

Role: TypeAlias = Literal["", "class", "query", "document"]

PROMPTS: Mapping[Role, tuple[str, ...]] = {
    "class": ("classification", "Classification"),
    "query": ("query",),
    "document": ("document", "passage", "corpus"),
}
"""The names of a model's prompts that serve a role, as sentence-transformers has them.

Items and names of fixed classes share one prompt, since a name is a training example beside items.
"""


def role_prompt(folder: Path, role: Role) -> str | None:
    """The prompt that the model in `folder` declares for texts of a role.

    None for its default prompt: the role has none, as in a model without prompts for queries and
    documents, or the same one. Where one of queries and documents has a prompt, the other has "".
    A model that routes queries and documents has both, "" where it declares none.

    The files are read, not the loaded model: what is cached needs no model.
    """
    settings = _read_json(folder / "config_sentence_transformers.json", {})
    declared = settings.get("prompts")
    prompts = {n: t for n, t in declared.items() if t} if isinstance(declared, dict) else {}
    found = next((prompts[name] for name in PROMPTS.get(role, ()) if name in prompts), None)
    if role in ("query", "document"):
        two_ways = routed(folder)
        theirs = {*PROMPTS["query"], *PROMPTS["document"]} & prompts.keys()
        if found is None and (two_ways or theirs):
            found = ""
        if two_ways:
            return found
    return None if found == prompts.get(settings.get("default_prompt_name"), "") else found


def routed(folder: Path) -> bool:
    """Whether the model has modules of their own for queries and documents."""
    kinds = (str(each.get("type")) for each in _read_json(folder / "modules.json", []))
    return any(kind.endswith((".Router", ".Asym")) for kind in kinds)


def _read_json(file: Path, absent: Any) -> Any:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # what is damaged is said where the model is loaded
        return absent
    return found if isinstance(found, type(absent)) else absent
