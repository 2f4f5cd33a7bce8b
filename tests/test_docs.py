"""The documentation says what is so: commands parse, names exist, tables are the measured ones."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

import stacksl
from stacksl.cli.app import app
from stacksl.features import ENCODERS
from stacksl.game import FOLLOWERS, GATES, PAPER_RANGES, RECIPES, SCORERS
from stacksl.labels.labelers import LABELERS
from stacksl.lm import OBJECTIVES
from stacksl.lm.normalise import NORMALISATIONS
from stacksl.lm.prompts import PROTOCOLS, TEMPLATES, template
from stacksl.lm.size import Size
from stacksl.runs.building import default_scorer
from stacksl.runs.conflicts import OF_MODEL
from stacksl.runs.people import FILE
from stacksl.runs.presets import AIMS, PRESETS
from stacksl.runs.settings import Settings, resolve
from stacksl.studies import STUDIES
from stacksl.studies.methods import FIXED
from stacksl.studies.rows import KEYS

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8")
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
REGISTRIES: dict[str, Any] = {
    "gate": GATES,
    "scorer": SCORERS,
    "follower": FOLLOWERS,
    "labeler": LABELERS,
    "features": ENCODERS,
    "preset": PRESETS,
    "aim": AIMS,
    "objective": OBJECTIVES,
    "study": STUDIES,
}


def prose(text: str) -> str:
    """The page without its blocks of code."""
    return BLOCK.sub("", text)


def spans(text: str) -> list[str]:
    return [" ".join(span.split()) for span in SPAN.findall(prose(text))]


def commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """(page, words) of each command in the blocks, and in the spans that are more than one word."""
    for page, text in PAGES.items():
        lines = [
            re.split(r"\s{3,}", line.strip().removeprefix("$ "))[0]  # then what it is for
            for kind, block in BLOCK.findall(text)
            if kind in ("", "sh", "console")
            for line in block.replace("\\\n", " ").splitlines()
        ]
        for line in [*lines, *spans(text)]:
            own = re.sub(r"^torchrun .*-m (?=stacksl\b)", "", line)
            if own.split(" ")[0] == program:
                yield page, _before_shell(shlex.split(own, comments=True))


def _before_shell(words: list[str]) -> list[str]:
    """The words up to a redirection, a pipe or a second command."""
    ends = [n for n, word in enumerate(words) if word in (">", "2>", "<", "|", "&&", ";")]
    return words[: ends[0]] if ends else words


STACKSL = sorted({(page, " ".join(map(shlex.quote, words))) for page, words in commands("stacksl")})


def is_a_form(words: list[str]) -> bool:
    """Whether these words are a form to fill in, such as `stacksl data check FILE [...]`."""
    text = " ".join(words)
    blanks = re.search(r"[\[|]|\$[a-z]", text)  # a form's marks, or a variable of the shell
    return blanks is not None or not {"VERB", "NAME", "STUDY"}.isdisjoint(words)


@pytest.mark.parametrize(("page", "line"), STACKSL)
def test_a_command_is_one_that_the_command_line_takes(page: str, line: str) -> None:
    words = shlex.split(line)[1:]
    if is_a_form(words):
        words = words[: 2 if words[0] in ("data", "ledger") else 1]
        assert words[0] in (*typer.main.get_command(app).commands, "VERB")
        return
    if words[:1] == ["--version"] or words[-1:] == ["--help"] or not words:
        return
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        verb = words.pop(0)
        assert verb in command.commands, f"{page}: no verb {verb}"
        command = command.commands[verb]
        if not words:  # the name of a verb, or of a group of them
            return
    short = command.name in ("run", "ls") or any(not word.startswith("-") for word in words)
    context = command.make_context(command.name, words if short else [*words, "RUN"])
    assert not context.args
    check_values(context.params)


def check_values(given: dict[str, Any]) -> None:
    """Names that a command gives are ones that the settings know."""
    for kind, known in REGISTRIES.items():
        value = given.get(kind)
        named = {*known, FILE} if kind == "labeler" else known  # people are in no registry
        assert value is None or str(value).partition(":")[0] in named, f"no {kind} {value}"
    for assignment in given.get("settings") or given.get("set_") or given.get("set") or ():
        name = assignment.partition("=")[0]
        assert name in Settings.model_fields, f"no setting {name}"


def test_the_commands_were_found() -> None:
    assert len(STACKSL) > 15
    assert {page for page, _ in STACKSL} >= {"README.md", "docs/cli.md", "docs/concepts.md"}


def test_a_python_or_make_command_names_what_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    found = 0
    for page, words in commands("make"):
        for word in words[1:2]:
            assert word in targets or word == "..." or "=" in word, f"{page}: make {word}"
    for program in ("python", ".venv/bin/python"):
        for page, words in commands(program):
            paths = [w for w in words[1:] if "/" in w and not w.startswith(("$", "-"))]
            for path in paths:
                assert (ROOT / path).exists() or "--json" in words, f"{page}: {path}"
            script = ROOT / paths[0] if paths and paths[0].endswith(".py") else None
            for flag in [w for w in words if script and w.startswith("--")]:
                assert f'"{flag}"' in script.read_text(encoding="utf-8"), f"{page}: {flag}"
            found += 1
    assert found


@pytest.mark.parametrize("page", list(PAGES))
def test_a_link_leads_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose(PAGES[page])):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert ((ROOT / page).parent / target).exists(), target


FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")
OTHERS = ("pip", "pytest", "git", "python", "make", "torchrun", "accelerate")  # flags of their own


@pytest.mark.parametrize("page", list(PAGES))
def test_a_flag_in_the_text_exists(page: str) -> None:
    known = set(options(typer.main.get_command(app)))
    scripts = "".join(p.read_text(encoding="utf-8") for p in ROOT.glob("benchmarks/*.py"))
    known |= {"help", *re.findall(r'"--([a-z-]+)"', scripts)}
    for span in spans(PAGES[page]):
        if span.split(" ")[0] not in OTHERS:
            assert set(FLAG.findall(span)) <= known, span
        for name in re.findall(r"--set (\w+)=", span):
            assert name in Settings.model_fields or name == "NAME", span
        for kind in ("gate", "scorer", "follower", "preset", "aim", "objective"):
            for name in re.findall(rf"--{kind} ([a-z][\w-]*)", span):
                assert name in REGISTRIES[kind], span


def options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from (word.removeprefix("--") for word in getattr(parameter, "opts", ()))
    for inner in getattr(command, "commands", {}).values():
        yield from options(inner)


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, known in REGISTRIES.items() for name in known]
)
def test_every_name_is_documented(kind: str, name: str) -> None:
    if name in ("model", "regret"):
        assert f"--aim {name}" in PAGES["docs/concepts.md"]
        return
    pages = "docs/paper.md", "docs/concepts.md"
    words = {w for page in pages for span in spans(PAGES[page]) for w in re.split(r"[ :=]", span)}
    assert name in words, f"the {kind} '{name}' stands in neither of {pages}"


PLAIN = {  # identifiers on the pages below that are no setting, no name and no value of a setting
    "resume", "predict", "evaluate", "run", "probability", "score", "status", "gate", "must",
    "spent", "order", "rank", "paper-table", "always", "clip_quantile", "verify",
    "lora_learning_rate", "replay", "lora", "full", "letters", "answer",
}  # fmt: skip


@pytest.mark.parametrize("page", ["docs/paper.md", "docs/concepts.md", "docs/negative-results.md"])
def test_an_identifier_is_a_name_that_exists(page: str) -> None:
    values = {
        str(value)
        for field in Settings.model_fields.values()
        for value in get_args(field.annotation)
        if isinstance(value, str)
    }
    registered = {name for known in REGISTRIES.values() for name in known}
    known = PLAIN | values | registered | set(Settings.model_fields)
    for span in spans(PAGES[page]):
        if re.fullmatch(r"[a-z][a-z_-]{3,}", span):
            assert span in known, f"`{span}` is no setting, no name and no value"


def test_every_decision_has_its_section() -> None:
    numbers = re.findall(r"^## D(\d+)\. ", PAGES["docs/paper.md"], re.MULTILINE)
    assert numbers == [str(n) for n in range(1, 20)]


def rows_under(text: str, header: str) -> list[list[str]]:
    """The cells of the rows of the table whose first header cell is `header`."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith(f"| {header} |"):
            next(lines)
            break
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_the_table_of_presets_is_what_they_resolve_to() -> None:
    paper = PAGES["docs/paper.md"]
    table = {row[0].strip("`"): row[1:] for row in rows_under(paper, "setting")}
    resolved = {
        "default": resolve(),
        "paper-stacksl": resolve(preset="paper-stacksl"),
        "paper": resolve(preset="paper"),
    }
    for name, cells in table.items():
        if name not in Settings.model_fields:
            assert name == "feedback"
            continue
        for cell, made in zip(cells, resolved.values(), strict=False):
            value = getattr(made.settings, name)
            if name == "scorer" and value is None:
                value = default_scorer(2)
                assert f"`{default_scorer(None)}` for pairs" in cell
            if name == "clip_level" and value is None:
                assert cell == "95 % quantile"
                continue
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            assert cell.startswith(f"`{shown}`"), f"{name}: {cell}, resolved {value}"
    assert resolve({"aim": "regret"}).settings.gate in table["gate"][0]
    differing = {
        name
        for made in resolved.values()
        for name, origin in made.origin.items()
        if origin == "preset"
    }
    assert differing <= set(table), "every setting that a preset sets has its row"


def shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


SHARED = (  # settings of a language model's refits that `sgd` has too
    "learning_rate", "kl_weight", "kl_target", "kl_on_skips", "reference", "ema_decay", "clip",
    "clip_level", "clip_multiple",
)  # fmt: skip


def test_the_settings_of_a_language_model_are_all_there_with_their_defaults() -> None:
    table = {row[0].strip("`"): row[1] for row in rows_under(PAGES["docs/lm.md"], "setting")}
    assert set(table) == {"model", "adapt", *OF_MODEL, *SHARED}
    unset = {"model": "none", "template": "`answer`, for `letter` `letters`"}
    found = resolve({"model": "sample"}).settings.model_copy(update=dict.fromkeys(unset))
    for name, cell in table.items():
        value = getattr(found, name)
        wanted = unset.get(name, "none") if value is None else f"`{shown(value)}`"
        assert cell.startswith(wanted), f"{name}: {cell}, resolved {value}"
    assert TEMPLATES["answer"] == template(None, "option")
    assert TEMPLATES["letters"] == template(None, "letter")
    full = resolve({"model": "sample", "adapt": "full"}).settings
    assert f"`{full.learning_rate:g}` for `full`" in table["learning_rate"]


@pytest.mark.parametrize(
    "names", [PROTOCOLS, TEMPLATES, NORMALISATIONS, OBJECTIVES], ids=lambda names: next(iter(names))
)
def test_every_name_of_a_language_model_is_on_its_page(names: Any) -> None:
    assert set(names) <= set(spans(PAGES["docs/lm.md"]))


def sentences() -> set[str]:
    """Every text in the source, with a blank for each value that is put in."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant):
                found.add(str(node.value))
            if isinstance(node, ast.JoinedStr):
                parts = (str(p.value) if isinstance(p, ast.Constant) else " " for p in node.values)
                found.add("".join(parts))
    return found


def test_an_error_that_is_explained_is_one_that_is_said() -> None:
    said = sentences()
    quoted = [row[0].strip('"') for row in rows_under(PAGES["docs/lm.md"], "it says")]
    assert len(quoted) > 10
    for words in quoted:
        assert any(words in text for text in said), f"nothing says '{words}'"


def test_what_the_studies_fix_is_what_the_page_says() -> None:
    rows = {row[0].strip("`"): row[1] for row in rows_under(PAGES["docs/paper.md"], "left open")}
    for name, value in FIXED.items():
        assert rows[name] == f"`{shown(value)}`", name


def test_the_contract_of_size_and_reproduce_is_that_of_their_records() -> None:
    page = PAGES["docs/cli.md"]
    keys = {row[0].strip("`") for row in rows_under(page.partition("### `size`")[2], "key")}
    assert keys == {*(field.name for field in dataclasses.fields(Size)), "memory", "free"}
    reproduce = page.partition("### `reproduce`")[2].partition("### ")[0]
    assert set(KEYS) <= set(spans(reproduce))


def test_the_table_preset_belongs_to_the_studies() -> None:
    with pytest.raises(stacksl.StackslError, match="paper-table"):
        resolve(preset="paper-table")


def test_the_ranges_are_the_papers() -> None:
    ranges = PAGES["docs/paper.md"].partition("## The paper's ranges")[2]
    found = {
        re.findall("`(.+?)`", row[0])[-1]: row[1].removesuffix(" items").replace(",", "")
        for row in rows_under(ranges, "setting")
    }
    assert found == {name: str(span) for name, span in PAPER_RANGES.items()}


def test_the_recipes_are_the_presets() -> None:
    shown = [
        [row[0].strip("`"), float(row[1].removeprefix("to ")), *map(float, row[2:])]
        for row in rows_under(PAGES["docs/paper.md"], "preset")
    ]
    assert shown == [[r.name, r.up_to, r.kappa, r.kl_weight, r.learning_rate] for r in RECIPES]


@pytest.fixture(scope="module")
def benchmark() -> types.ModuleType:
    folder = ROOT / "benchmarks"
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location("shown", folder / "preset_differences.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    path = ROOT / "benchmarks" / "results" / "preset_differences.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))


def test_the_record_holds_every_cell_of_the_script(benchmark: Any, record: dict[str, Any]) -> None:
    cells = {
        (study, cell.row, metric)
        for study, found in benchmark.STUDIES.items()
        for cell in found
        for metric in cell.metrics
    }
    assert {(r["study"], r["row"], r["metric"]) for r in record["rows"]} == cells
    for row in record["rows"]:
        assert len(row["values"]) == row["seeds"] == len(record["seeds"]) >= 8
        assert row["value"] == pytest.approx(sum(row["values"]) / row["seeds"])
        cell = next(c for c in benchmark.STUDIES[row["study"]] if c.row == row["row"])
        assert row["settings"] == benchmark.describe(cell), "measured with what the script says"


@pytest.mark.parametrize("page", ["docs/paper.md", "docs/negative-results.md"])
def test_the_numbers_are_the_measured_ones(
    page: str, benchmark: Any, record: dict[str, Any]
) -> None:
    assert benchmark.refreshed(PAGES[page], record) == PAGES[page]
    bare = benchmark.INLINE.sub("", benchmark.BLOCK.sub("", PAGES[page]))
    assert not re.findall(r"\d ± \d", bare), "a number with an interval carries its marker"


def test_a_cell_measures_what_the_record_says(benchmark: Any, record: dict[str, Any]) -> None:
    """Two cheap cells played again: the same arithmetic, up to the last digits of a BLAS."""
    seed = record["seeds"][0]
    for study, row in (("llf", "κ = 1, capped"), ("clip at K = 200", "literal, ρ = 5")):
        cell = next(c for c in benchmark.STUDIES[study] if c.row == row)
        for metric, value in benchmark.measure(cell, seed).items():
            [kept] = [
                r["values"][0] for r in record["rows"]
                if (r["study"], r["row"], r["metric"]) == (study, row, metric)
            ]  # fmt: skip
            assert value == pytest.approx(kept, rel=0.02, abs=1e-3)


EXTENSIONS = "\n".join(
    code for kind, code in BLOCK.findall(PAGES["docs/extending.md"]) if kind == "python"
)


@pytest.fixture
def extended(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The page's code, run; the registries are as before afterwards."""
    for known in (GATES, SCORERS, FOLLOWERS, LABELERS, ENCODERS):
        for name in list(known):
            monkeypatch.setitem(known, name, known[name])
    for known, name in ((GATES, "unsure"), (SCORERS, "perceptron"), (ENCODERS, "letters")):
        monkeypatch.setitem(known, name, None)
    monkeypatch.setitem(LABELERS, "off-by-one", None)
    page = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", page)
    exec(compile(EXTENSIONS, "docs/extending.md", "exec"), page.__dict__)
    return page


@pytest.mark.parametrize(
    "settings",
    [
        {"gate": "unsure"},
        {"gate": "unsure", "mode": "pool"},
        {"scorer": "perceptron"},
        {"labeler": "off-by-one"},
        {"features": "letters"},
    ],
    ids=str,
)
def test_a_part_written_as_the_page_says_plays_a_run(
    extended: Any, tmp_path: Path, settings: dict[str, str]
) -> None:
    plan = stacksl.prepare(
        extended.items, extended.answers, out=tmp_path / "run", settings={"budget": 8, **settings}
    )
    run = plan.start()
    assert run.status()["state"] == "finished"
    assert run.status()["asked"] == 8
    if "labeler" in settings:
        assert run.status()["accuracy_before"] is not None
        with run.ledger as ledger:
            bought = [(r["item"], r["answer"]) for r in ledger.export()]
        assert all(answer == 1 - extended.answers[item] for item, answer in bought)


def test_the_pages_gate_is_not_taken_for_a_compiled_one(tmp_path: Path) -> None:
    """It stands in the registry before any engine is loaded."""
    play = """
import numpy as np
from stacksl.game.engines import run_stream
rows = np.random.default_rng(0).normal(size=(30, 4, 3)) / 4
told = dict(labels=np.zeros(30, dtype=int), gate=Unsure(), budget=5, engine="auto")
print(run_stream("newton", rows, **told).engine)
"""
    own = EXTENSIONS.partition('GATES["unsure"] = Unsure')
    done = subprocess.run(
        [sys.executable, "-c", own[0] + own[1] + play], capture_output=True, text=True, check=True
    )
    assert done.stdout == "loop\n"


def test_the_pages_gate_and_scorer_pass_their_contracts(tmp_path: Path) -> None:
    (tmp_path / "extending_page.py").write_text(EXTENSIONS, encoding="utf-8")
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "extending_page", "-p", "no:cacheprovider",
        "tests/contracts/test_gates.py", "tests/contracts/test_scorers.py",
        "-k", "unsure or perceptron",
    ]  # fmt: skip
    path = f"{tmp_path}:{ROOT / 'src'}"
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert done.stdout.count(".") > 30, "they were run"
