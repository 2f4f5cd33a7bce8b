"""What a label buys a language model: LoRA on the sample model's own questions, gates side by side.

    python benchmarks/language_model.py --json benchmarks/results/language_model.json \\
        --settings '[{"pmi_context": "empty", "temperature": 1.0, "objective": "stacksl"}]'
    python benchmarks/language_model.py --from benchmarks/results/language_model.json
    python benchmarks/language_model.py --pilot --settings '[{"learning_rate": 0.001}]'

Every cell is a run as `stacksl run --adapt lora` makes it. `random` and `first` buy without looking
at the model, so that their refits on the way change nothing and only the last one is made. The
test questions are used to report and for nothing else: `--pilot` holds out a part of the questions
to label instead, and settings are chosen there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

GATES = ("margin", "random", "first")
BUDGETS = ("10%", "25%")
BLIND = ("random", "first")
Row = dict[str, Any]


def cells(seeds: int) -> list[Row]:
    """Gates at two budgets for each seed, then all labels for each."""
    found = []
    for seed in range(seeds):
        found += [{"gate": g, "budget": b, "seed": seed} for b in BUDGETS for g in GATES]
    return [*found, *({"gate": "first", "budget": "all", "seed": s} for s in range(seeds))]


@cache
def base_accuracy(pmi_context: str) -> Row:
    """The base model on the test questions, by every normalisation and behind a premise."""
    from stacksl.lm import LanguageModel, ModelChoices
    from stacksl.lm.sample.questions import questions

    _, test = questions()
    context: Any = pmi_context
    model = LanguageModel(
        ModelChoices("sample", template="{prompt}", pmi_context=context, temperature=1.0)
    )
    gold = np.array([test.answers[item.id] for item in test.items])
    scores = model.scores(test.items)
    return {k: float(np.mean([np.argmax(s) for s in v] == gold)) for k, v in scores.items()}


def measure(cell: Row, more: Row, pilot: bool) -> Row:
    """Play one cell in a folder of its own; its numbers."""
    import stacksl
    from stacksl.lm.sample.questions import questions
    from stacksl.runs.items.intake import OF_SAMPLE

    begin = time.monotonic()
    data, test = questions()
    settings = {**OF_SAMPLE, **more}
    if cell["gate"] in BLIND:
        settings["refit_at"] = "1"
    held = [n for n in range(len(data.items)) if n % 4 == 3]
    kept = [n for n in range(len(data.items)) if n % 4 != 3]
    if pilot:
        items, judged = [data.items[n] for n in kept], [data.items[n] for n in held]
    else:
        items, judged = list(data.items), list(test.items)
    answers = {**data.answers, **test.answers}
    folder = Path(tempfile.mkdtemp(prefix="stacksl-"))
    try:
        run = stacksl.run(
            items,
            {item.id: answers[item.id] for item in items},
            out=folder / "run",
            adapt="lora",
            **settings,
            **{name: cell[name] for name in ("gate", "budget", "seed")},
        )
        status = run.status()
        told = run.evaluate(judged, {item.id: answers[item.id] for item in judged})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        **cell,
        "settings": more,
        "items": len(items),
        "n": len(judged),
        "labels": status["budget"],
        "asked": status["asked"],
        "accuracy": told["accuracy"],
        "normalisations": {k: v["accuracy"] for k, v in told["normalisations"].items()},
        "seconds": round(time.monotonic() - begin, 1),
    }


def interval(values: list[float]) -> tuple[float, float]:
    """Mean and half-width of its 95 % t-interval over seeds."""
    from scipy.stats import t

    n = len(values)
    half = t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n) if n > 1 else float("nan")
    return float(np.mean(values)), float(half)


def table(rows: list[Row], base: float) -> str:
    """Accuracy, gain over random and share of the gain kept, with 95 % intervals over seeds.

    The share is (accuracy - base) / (mean of all labels - base); its interval is that of the
    accuracy alone.
    """
    by = {(r["gate"], r["budget"], r["seed"]): r for r in rows}
    seeds = sorted({r["seed"] for r in rows})
    full = [by["first", "all", s]["accuracy"] for s in seeds if ("first", "all", s) in by]
    n = rows[0]["n"]
    error = (base * (1 - base) / n) ** 0.5
    top = float(np.mean(full)) if full else float("nan")
    worth = (top - base) / error > 3
    lines = [
        f"{rows[0]['items']:,} questions to label, {n} to test on, chance 0.250. Base model"
        f" {base:.3f} (standard error {error:.3f}); all labels {top:.3f} (mean of {len(full)}"
        f" seeds), which is {(top - base) / error:.1f} standard errors above the base.",
        "",
        "| labels | gate | test accuracy | over random, in pairs | share of the gain kept |",
        "|---|---|---|---|---|",
    ]
    for budget in BUDGETS:
        for gate in GATES:
            mine = [by[gate, budget, s] for s in seeds if (gate, budget, s) in by]
            if not mine:
                continue
            pairs = [
                r["accuracy"] - by["random", budget, r["seed"]]["accuracy"]
                for r in mine
                if ("random", budget, r["seed"]) in by and gate != "random"
            ]
            kept = [(r["accuracy"] - base) / (top - base) for r in mine] if worth else []
            accuracy = _cell([r["accuracy"] for r in mine])
            lines.append(
                f"| {budget} ({mine[0]['labels']}) | {gate} | {accuracy}"
                f" | {_cell(pairs, sign=True)} | {_cell(kept, most=None) or '-'} |"
            )
    return "\n".join(lines)


def _cell(values: list[float], *, sign: bool = False, most: float | None = 0.02) -> str:
    if not values:
        return ""
    mean, half = interval(values)
    doubt = " (inconclusive)" if most is not None and not half <= most else ""
    return _shown(mean, half, sign=sign) + doubt


def _shown(mean: float, half: float, *, sign: bool = False) -> str:
    return f"{mean:{'+' if sign else ''}.3f} ± {half:.3f}"


def main() -> None:
    """Measure what is not measured yet, keep every row, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="where rows are kept; those there are not redone")
    parser.add_argument("--from", dest="source", type=Path, help="print the table of a file")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument("--pilot", action="store_true", help="on a part of the questions to label")
    parser.add_argument("--settings", type=json.loads, default=[{}], help="a list of settings")
    parser.add_argument("--cells", type=json.loads, help="a list of gate, budget, seed")
    words = parser.parse_args()
    if words.source:
        kept = json.loads(words.source.read_text())
        print(table(kept["rows"], kept["base"]["pmi"]))
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    wanted = [(c, s) for s in words.settings for c in (words.cells or cells(words.seeds))]
    rows = _kept(words.json)
    done = [({k: r[k] for k in ("gate", "budget", "seed")}, r["settings"]) for r in rows]
    todo = [each for each in wanted if each not in done]
    with ProcessPoolExecutor(words.jobs) as pool:
        waiting = [pool.submit(measure, cell, more, words.pilot) for cell, more in todo]
        for number, future in enumerate(as_completed(waiting), 1):
            rows.append(future.result())
            print(f"{number}/{len(todo)} {json.dumps(rows[-1])}", file=sys.stderr, flush=True)
            _keep(words.json, rows)
    if not words.pilot:
        print(table(rows, base_accuracy(premise(rows))["pmi"]))


def premise(rows: list[Row]) -> str:
    """The premise of pmi that rows were measured with."""
    from stacksl.runs.items.intake import OF_SAMPLE

    return str(rows[0]["settings"].get("pmi_context", OF_SAMPLE["pmi_context"]))


def _kept(path: Path | None) -> list[Row]:
    return json.loads(path.read_text())["rows"] if path and path.exists() else []


def _keep(path: Path | None, rows: list[Row]) -> None:
    if path is None:
        return
    import stacksl
    from stacksl.lm.sample.docstrings import made_from

    rows = sorted(rows, key=lambda r: (r["seed"], r["budget"], r["gate"]))
    about = {
        "command": "python benchmarks/language_model.py --json benchmarks/results/" + path.name,
        "settings": rows[0]["settings"],
        "version": stacksl.__version__,
        "questions": made_from(),
        "base": base_accuracy(premise(rows)),
    }
    path.write_text(json.dumps({**about, "rows": rows}, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
