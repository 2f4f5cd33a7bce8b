"""What a label buys a language model: LoRA on the sample model's own questions.

    python benchmarks/language_model.py --json benchmarks/results/language_model.json --seeds 10
    python benchmarks/language_model.py --from benchmarks/results/language_model.json
    python benchmarks/language_model.py --json benchmarks/results/language_model.json --pilot \\
        --seeds 100,101,102 --cells random@0.1,random@0.25 --settings '{"objective": "stacksl"}'

A cell is one batch and one refit, as `stacksl run --adapt lora` with `--open-questions N` and N
labels has them:
`margin` buys the items of the smallest margins of the base model's scores (a run passes over
near-duplicates, which this does not), `random` draws them. The base scores all questions once, for
every cell. The test questions are used to report and for nothing else: `--pilot` holds out a
quarter of the questions to label instead, and settings are chosen there.

Pilots also buy by `badge`, `disagreement` (half by margin, which a linear head on the answers'
states learns; then where head and base model differ most), `typical` and `doubtful` (coverage of
the prompts' MiniLM vectors, without and with doubt; see `selections.py`).

Four settings are not the product's. `negatives` 4 learns each label also against four options of
other labels' questions; rows with `"drawn": "kind"` are of commit b96a8742, where these were drawn
from all questions for the same kind, a function or a class. `average` 3 scores under the mean of
the LoRA updates of three refits of other seeds, `average` "tail" under their mean over the last
third of the steps.
`self_training` 0.5 is the weight of KL(model, teacher) on the labels and on twice as many
unlabeled questions, in as many steps; "chosen" is the weight under which a third of the labels is
likeliest. `pretrained` 1e-5 is the learning rate of one pass of language modeling over the prompts
to label, before the base scores them. See `_unlabeled.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from _refits import Row, Task, lessons_of, model_of, refitted
from _supervision import judged_stacked, with_negatives
from _unlabeled import losses_of_weights, pretrained, taught, weighted
from language_model_table import table
from numpy.typing import NDArray
from selections import bought

GATES = ("margin", "random")
BUDGETS = (0.05, 0.1, 0.25, 0.5)
OF_CELL = ("gate", "budget", "seed", "settings", "pilot")


def task_of(pilot: int, kept: Path | None) -> Task:
    """The questions, scored once by the base model; its scores are `kept` in a file if named.

    With `pilot` 1 to 4 that quarter of the questions to label is judged on instead of the test's.
    """
    from stacksl_lab.sample.questions import questions

    data, test = questions()
    if kept is not None and kept.exists():
        scores = [list(np.load(kept)[name]) for name in ("pool", "test")]
    else:
        model = model_of({}, 0)
        scores = [model.scores(each.items, "pmi") for each in (data, test)]
        if kept is not None:
            np.savez(kept, pool=np.array(scores[0]), test=np.array(scores[1]))
    gold = np.array([data.answers[item.id] for item in data.items])
    if not pilot:
        judged_gold = np.array([test.answers[item.id] for item in test.items])
        base = float(np.mean(np.argmax(scores[1], axis=1) == judged_gold))
        return Task(list(data.items), gold, list(test.items), judged_gold, scores[0], base)
    held = [n for n in range(len(gold)) if n % 4 == pilot - 1]
    rest = [n for n in range(len(gold)) if n % 4 != pilot - 1]
    base = float(np.mean([np.argmax(scores[0][n]) == gold[n] for n in held]))
    items, judged = [data.items[n] for n in rest], [data.items[n] for n in held]
    return Task(items, gold[rest], judged, gold[held], [scores[0][n] for n in rest], base)


def measure(cell: Row, task: Task) -> Row:
    """Buy, train, judge."""
    begin, seed, more = time.monotonic(), cell["seed"], dict(cell["settings"])
    average, weight = more.pop("average", 1), more.pop("self_training", 0)
    negatives, stacked = more.pop("negatives", 0), more.pop("stacked", False)
    if "pretrained" in more:
        task, folder = pretrained(task, more.pop("pretrained"), seed)
        more["model"] = folder.name
    count = int(len(task.items) * cell["budget"])
    rows = bought(task, cell["gate"], count, seed)
    lessons, temperature = lessons_of(task, rows, more.get("temperature"))
    if negatives:
        lessons = with_negatives(lessons, negatives, seed)
    chosen: Row = {}
    if stacked:
        right, chosen = judged_stacked(task, rows, lessons, seed)
        return {**cell, "labels": count, **of(right), **chosen, **since(begin)}
    if weight == "chosen":
        losses = losses_of_weights(task, lessons, more, seed, temperature)
        weight = min(losses, key=lambda each: losses[each])
        chosen = {"weight": weight, "held_out_losses": losses}
    if weight:
        known = {each.item.id for each in lessons}
        lessons = taught(task, lessons, more, seed, temperature, known)
        more = weighted(more, weight)
    trained, model = refitted(lessons, count, more, seed, temperature, average)
    predicted = [int(np.argmax(each)) for each in model.scores(task.judged, "pmi")]
    right = np.array(predicted) == task.judged_gold
    chosen |= {"temperature": round(temperature, 3), "loss": trained.loss}
    return {**cell, "labels": count, **of(right), **chosen, **since(begin)}


def of(right: NDArray[np.bool_]) -> Row:
    """What is kept of the questions judged."""
    accuracy, packed = float(right.mean()), np.packbits(right).tobytes().hex()
    return {"n": len(right), "accuracy": accuracy, "right": packed}


def since(begin: float) -> Row:
    """Seconds, on a machine that others use too."""
    return {"seconds": round(time.monotonic() - begin, 1)}


def main() -> None:
    """Measure what is not measured yet, keep every row, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="4", help="how many from 0 on, or a list with commas")
    parser.add_argument("--cells", help="GATE@SHARE,...; all if absent")
    parser.add_argument("--settings", type=json.loads, default={}, help="other than the sample's")
    parser.add_argument("--json", type=Path, help="where rows are kept; those there are not redone")
    parser.add_argument("--from", dest="source", type=Path, help="print the table of a file")
    parser.add_argument("--base", type=Path, help="where the base's scores are kept (.npz)")
    parser.add_argument(
        "--pilot",
        type=int,
        nargs="?",
        const=4,
        default=0,
        choices=(1, 2, 3, 4),
        help="on this quarter of the questions to label, the last if no number is given",
    )
    words = parser.parse_args()
    if words.source:
        print(table(json.loads(words.source.read_text())))
        return
    seeds = [int(n) for n in words.seeds.split(",")]
    seeds = list(range(seeds[0])) if len(seeds) == 1 else seeds
    every = [f"{gate}@{budget}" for budget in BUDGETS for gate in GATES]
    named = [each.split("@") for each in (words.cells.split(",") if words.cells else every)]
    record = json.loads(words.json.read_text()) if words.json and words.json.exists() else {}
    task = task_of(words.pilot, words.base)
    for seed in seeds:
        for gate, share in named:
            values = (gate, float(share), seed, words.settings, words.pilot)
            cell = dict(zip(OF_CELL, values, strict=True))
            if any(all(row[k] == cell[k] for k in OF_CELL) for row in record.get("rows", [])):
                continue
            record = with_row(record, measure(cell, task), task)
            shown = {k: v for k, v in record["rows"][-1].items() if k != "right"}
            print(json.dumps(shown), file=sys.stderr, flush=True)
            if words.json:
                words.json.write_text(json.dumps(record, indent=1) + "\n")


def with_row(kept: Row, row: Row, task: Task) -> Row:
    """What is kept, and one row more."""
    import stacksl
    from stacksl_lab.sample.questions import made_from

    about = {"version": stacksl.__version__, "questions": made_from(), **kept}
    if not row["pilot"]:
        about["items"] = len(task.items)
    base = {**kept.get("base", {}), str(row["pilot"] or "test"): task.base}
    return {**about, "base": base, "rows": [*kept.get("rows", []), row]}


if __name__ == "__main__":
    main()
