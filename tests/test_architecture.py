"""The house stands: imports go down only, heavy libraries stay behind doors, files stay small.

Everything is read from the syntax tree, so that no import has to succeed, and nothing hidden in a
function is overlooked. The floors are those of the tree in docs/architecture.md.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "stacksl"
SIBLINGS = ("labels", "features", "data")
HEAVY = (
    "accelerate",
    "datasets",
    "jinja2",
    "joblib",
    "matplotlib",
    "numba",
    "peft",
    "pyarrow",
    "pynndescent",
    "safetensors",
    "scipy",
    "sentence_transformers",
    "sklearn",
    "sqlalchemy",
    "torch",
    "transformers",
)
LIMIT = 450


def floors() -> dict[str, int]:
    """The floor of each package or module, as the tree in docs/architecture.md has it.

    A part right below `stacksl` that names no floor is on that of the part above it.
    """
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found: dict[str, int] = {}
    floor = 0
    for part, rest in re.findall(r"^  (\w+(?:\.py|/))(.*)$", text, flags=re.MULTILINE):
        said = re.search(r"floor (\d)$", rest)
        floor = int(said.group(1)) if said else floor
        found[part.removesuffix("/").removesuffix(".py")] = floor
    return found


FLOORS = floors()
MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str | None:
    """The package or module right below `stacksl` that a dotted name lies in."""
    words = module.split(".")
    return words[1] if words[0] == "stacksl" and len(words) > 1 else None


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def imported(node: ast.AST, path: Path) -> Iterator[str]:
    """The dotted names an import statement may load, `from a import b` as both a and a.b."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        source = [*package_of(path, node.level), *(node.module or "").split(".")]
        module = ".".join(word for word in source if word)
        yield module
        yield from (f"{module}.{alias.name}" for alias in node.names)


def package_of(path: Path, level: int) -> tuple[str, ...]:
    """The package that so many leading dots mean in the file at `path`."""
    return path.relative_to(PACKAGE.parent).parts[:-level] if level else ()


def all_imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {name for node in ast.walk(tree) for name in imported(node, path)}


def module_level(path: Path) -> set[str]:
    """What is loaded when the module is: not in functions, not for the type checker alone."""

    def visit(body: list[ast.stmt]) -> Iterator[str]:
        for node in body:
            if is_type_checking(node):
                continue
            yield from imported(node, path)
            for inner in ("body", "orelse", "finalbody"):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from visit(getattr(node, inner, []))
            for handler in getattr(node, "handlers", []):
                yield from visit(handler.body)

    return set(visit(ast.parse(path.read_text(encoding="utf-8")).body))


def test_every_part_has_a_floor() -> None:
    parts = {part_of(name_of(path)) for path in MODULES} - {None, "__main__"}
    assert parts <= set(FLOORS), "docs/architecture.md gives every part its floor"
    assert FLOORS["errors"] == 0
    assert FLOORS["cli"] == max(FLOORS.values())


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_down_only(path: Path) -> None:
    own = part_of(name_of(path))
    if own in (None, "__main__"):
        return  # the facade and the entry point stand on top of everything
    for name in all_imports(path):
        other = part_of(name)
        if other is None or other == own or other not in FLOORS:
            continue
        assert FLOORS[other] <= FLOORS[own], f"{own} imports {other}, which lies above it"
        if own in SIBLINGS:
            assert other not in SIBLINGS, f"{own} imports {other}: floor 2 stays side by side"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_torch_stays_where_language_models_are_read(path: Path) -> None:
    """In `features/sentences.py`, and in `lm/` behind functions: never when a module is loaded."""
    doors = {"torch", "sentence_transformers", "transformers", "peft", "accelerate"}
    inside = part_of(name_of(path)) == "lm" or name_of(path) == "stacksl.features.sentences"
    reached = module_level(path) if inside else all_imports(path)
    assert not {name.split(".")[0] for name in reached} & doors


def test_heavy_libraries_are_out_of_reach_of_the_start() -> None:
    """Follows module-level imports from what `import stacksl` and `stacksl --help` load."""
    known = {name_of(path): path for path in MODULES}
    waiting = ["stacksl", "stacksl.cli.app", "stacksl.cli.entry", "stacksl.__main__"]
    reached: dict[str, str] = {}
    while waiting:
        module = waiting.pop()
        for name in module_level(known[module]):
            root = name.split(".")[0]
            assert root not in HEAVY, f"{module} loads {root}, reached from {reached.get(module)}"
            for parent in (name, name.rpartition(".")[0]):
                if parent in known and parent not in reached:
                    reached[parent] = module
                    waiting.append(parent)
    assert "stacksl.cli.verbs.run" in reached


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_files_stay_small(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= LIMIT, f"{lines} lines hold more than one idea"


def test_heavy_names_are_not_of_the_standard_library() -> None:
    assert not set(HEAVY) & set(sys.stdlib_module_names)
