"""The layout of the code: imports go down only and without circles.

Everything is read from the syntax tree, so that no import has to succeed and nothing hidden in a
function is overlooked. The floors are those of the tree in docs/architecture.md.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "stacksl"


def floors() -> dict[str, int]:
    """The floor of each package or module, as the tree in docs/architecture.md has it.

    A part directly below `stacksl` that names no floor is on that of the part above it.
    """
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found: dict[str, int] = {}
    floor = 0
    for part, rest in re.findall(r"^  (\w+(?:\.py|/))(.*)$", text, flags=re.MULTILINE):
        said = re.search(r"floor (\d+)$", rest)
        floor = int(said.group(1)) if said else floor
        found[part.removesuffix("/").removesuffix(".py")] = floor
    return found


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FLOORS = floors()
MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def part_of(module: str) -> str | None:
    """The package or module directly below `stacksl` that a dotted name is in."""
    words = module.split(".")
    return words[1] if words[0] == "stacksl" and len(words) > 1 else None


def imported(node: ast.AST, path: Path) -> Iterator[str]:
    """The dotted names an import statement may load, `from a import b` as both a and a.b."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        own = path.relative_to(PACKAGE.parent).parts[: -node.level] if node.level else ()
        module = ".".join(word for word in [*own, *(node.module or "").split(".")] if word)
        yield module
        yield from (f"{module}.{alias.name}" for alias in node.names)


def visit(body: list[ast.stmt], path: Path, *, functions: bool) -> Iterator[str]:
    """What the statements import, but for the type checker alone; in `functions` if wanted."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield from imported(node, path)
        if functions or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ("body", "orelse", "finalbody"):
                yield from visit(getattr(node, inner, []), path, functions=functions)
        for handler in getattr(node, "handlers", []):
            yield from visit(handler.body, path, functions=functions)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def all_imports(path: Path) -> set[str]:
    return {name for node in ast.walk(tree(path)) for name in imported(node, path)}


def module_level(path: Path) -> set[str]:
    return set(visit(tree(path).body, path, functions=False))


@cache
def modules_used(module: str) -> frozenset[str]:
    """The modules of ours that a module imports when it runs, in functions too."""
    path = MODULES[module]
    names = set(visit(tree(path).body, path, functions=True))
    deeper = {name.rpartition(".")[0] for name in names if name in MODULES}
    return frozenset(name for name in names - deeper if name in MODULES) - {module}


def test_every_part_has_a_floor() -> None:
    parts = {part_of(name) for name in MODULES} - {None, "__main__"}
    assert parts <= set(FLOORS), "docs/architecture.md gives every part its floor"
    assert FLOORS["errors"] == 0
    assert FLOORS["cli"] == max(FLOORS.values())


def test_imports_go_down_only() -> None:
    wrong = []
    for module, path in MODULES.items():
        own = part_of(module)
        if own is None or own == "__main__":
            continue  # the facade and the entry point import what they offer
        for name in all_imports(path):
            other = part_of(name)
            if other is None or other == own or other not in FLOORS:
                continue
            if FLOORS[other] >= FLOORS[own] > 0:
                wrong.append(f"{module} imports {name}")
    assert not wrong, "not below"


def test_imports_have_no_circle() -> None:
    left = {module: set(modules_used(module)) for module in MODULES}
    while free := [module for module, used in left.items() if not used]:
        for module in free:
            del left[module]
        for used in left.values():
            used.difference_update(free)
    in_circles = {m for m in left if any(m in left.get(used, ()) for used in left[m])}
    assert not left, (
        f"modules that import each other, or modules that do: {in_circles or set(left)}"
    )


def test_the_laboratory_is_never_imported() -> None:
    found = {(module, name) for module, path in MODULES.items() for name in all_imports(path)}
    assert not {each for each in found if each[1].startswith("stacksl_lab")}


def test_torch_and_onnx_stay_where_models_are_run() -> None:
    """Torch in `features/sentences.py` and `lm/`, ONNX in `features/minilm.py` and
    `models/portable/`: in functions, but for `use.py`, which is copied and runs alone.
    """
    torch = {"torch", "sentence_transformers", "transformers", "peft", "accelerate"}
    onnx = {"onnx", "onnxruntime"}
    found = set()
    for module, path in MODULES.items():
        everywhere = {name.split(".")[0] for name in all_imports(path)}
        runs_torch = part_of(module) == "lm" or module == "stacksl.features.sentences"
        allowed = set(torch) if runs_torch else set()
        runs_onnx = module.startswith(("stacksl.features.minilm", "stacksl.models.portable."))
        allowed |= onnx if runs_onnx else set()
        at_load = {name.split(".")[0] for name in module_level(path)}
        if module == "stacksl.models.portable.use":
            at_load -= {"onnxruntime"}
        wrong = (everywhere - allowed | at_load) & (torch | onnx)
        found |= {(module, name) for name in wrong}
    assert not found
