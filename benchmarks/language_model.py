"""What a label buys a language model: LoRA on the sample model's own questions.

    python benchmarks/language_model.py --json benchmarks/results/language_model.json --seeds 10
    python benchmarks/language_model.py --from benchmarks/results/language_model.json
    python benchmarks/language_model.py --json benchmarks/results/language_model.json --pilot \\
        --seeds 100,101,102 --cells random@0.1,random@0.25 --settings '{"objective": "stacksl"}'

A cell is one batch and one refit, as of `stacksl run --adapt lora --batch N` with N labels:
`margin` buys the items of the smallest margins of the base model's scores (a run passes over
near-duplicates, which this does not), `random` draws them. The base scores all questions once, for
every cell. The test questions are used to report and for nothing else: `--pilot` holds out a
quarter of the questions to label instead, and settings are chosen there.

Pilots also buy by `badge`, `disagreement` (half by margin, which a linear head on the answers'
states learns; then where head and base model differ most), `typical` and `doubtful` (coverage of
the prompts' MiniLM vectors, without and with doubt; see `selections.py`).

Two settings are not the product's. `average` 3 scores under the mean of the LoRA updates of three
refits of other seeds, `average` "tail" under their mean over the last third of the steps.
`self_training` 0.5 is the weight of KL(model, teacher) on the labels and on twice as many
unlabelled questions, in as many steps (see `taught`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

GATES = ("margin", "random")
BUDGETS = (0.05, 0.1, 0.25, 0.5)
SELECTIONS = 1000  # seeds from here on compare selections
Row = dict[str, Any]
Cell = dict[tuple[int, int], Row]  # by quarter (0: the test file) and seed
OF_CELL = ("gate", "budget", "seed", "settings", "pilot")


@dataclass(eq=False)
class Task:
    """The questions to label and to judge on, and the base model's scores at temperature 1."""

    items: list[Any]
    gold: NDArray[np.int64]
    judged: list[Any]
    judged_gold: NDArray[np.int64]
    pool: list[NDArray[np.float64]]
    base: float

    @cached_property
    def states(self) -> NDArray[np.float64]:
        """φ of every option to label, (n, K, d), of the base model."""
        model = model_of({}, 0)
        model.fit(self.items)
        phi = model.transform(self.items).phi
        return phi.reshape(len(self.items), -1, phi.shape[1]).astype(np.float64)

    @cached_property
    def prompts(self) -> NDArray[np.float32]:
        """Sentence vectors of the questions to label."""
        from stacksl.features.sentences import SentenceEncoder

        return SentenceEncoder("minilm").encode([item.prompt for item in self.items])

    @cached_property
    def words(self) -> NDArray[np.float32]:
        """The same by hashed words, the features without an encoder."""
        from stacksl.features.hashing import HashingEncoder

        encoder, texts = HashingEncoder(), [item.prompt for item in self.items]
        encoder.fit(texts)
        return encoder.encode(texts)


def model_of(more: Row, seed: int) -> Any:
    """The sample model as a run with these settings has it."""
    from stacksl.lm import LanguageModel
    from stacksl.runs.items.intake import OF_SAMPLE
    from stacksl.runs.settings.fields import Settings
    from stacksl.runs.settings.language import choices_of

    settings = Settings(**{**OF_SAMPLE, "adapt": "lora", **more})
    return LanguageModel(choices_of(settings, {"lm_threads": 1}), seed=seed)


def task_of(pilot: int, kept: Path | None) -> Task:
    """The questions, scored once by the base model; its scores are `kept` in a file if named.

    With `pilot` 1 to 4 that quarter of the questions to label is judged on instead of the test's.
    """
    from stacksl.lm.sample.questions import questions

    data, test = questions()
    if kept is not None and kept.exists():
        scores = [list(np.load(kept)[name]) for name in ("pool", "test")]
    else:
        model = model_of({}, 0)
        scores = [model.scores(each.items)["pmi"] for each in (data, test)]
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


def bought(task: Task, gate: str, count: int, seed: int) -> NDArray[np.int64]:
    """The questions that a cell buys, in their order."""
    import selections

    from stacksl.core.losses import softmax
    from stacksl.core.rng import generator
    from stacksl.lm.scoring.normalise import prior_temperature

    if gate == "random":
        return np.argsort(generator(seed, "pool/random").random(len(task.items)))[:count]
    scale = prior_temperature(task.pool)
    policy = np.array([softmax(each / scale) for each in task.pool])
    if gate == "badge":
        return selections.badge(policy, task.states, count, generator(seed, "pool/badge"))
    if gate in ("typical", "typical-hashing"):
        prompts = task.prompts if gate == "typical" else task.words
        return selections.covering(prompts, np.ones(len(policy)), count)
    if gate == "half":
        first = selections.covering(task.prompts, np.ones(len(policy)), count // 2)
        order = selections.margin(policy)
        return np.concatenate([first, order[~np.isin(order, first)]])[:count]
    if gate == "doubtful":
        best = np.sort(policy, axis=1)
        return selections.covering(task.prompts, 1 - best[:, -1] + best[:, -2], count)
    order = selections.margin(policy)
    if gate == "two":
        first = order[: count // 2]
        lessons, scale = lessons_of(task, first)
        _, model = refitted(lessons, len(first), {}, seed, scale)
        rest = np.setdiff1d(np.arange(len(policy)), first)
        anew = model.scores([task.items[row] for row in rest])["pmi"]
        policy = np.array([softmax(each / scale) for each in anew])
        return np.concatenate([first, rest[selections.margin(policy)]])[:count]
    if gate == "disagreement":
        first = order[: count // 2]
        apart = selections.disagreement(policy, head_of(task, first, seed))
        order = np.concatenate([first, apart[~np.isin(apart, first)]])
    return order[:count]


def head_of(task: Task, rows: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """What a linear head on the answers' states says of all questions after labels of `rows`."""
    from stacksl.core.heads.logistic import fit_pairs
    from stacksl.core.losses import softmax

    options = task.states.shape[1]
    offsets = np.arange(len(rows) + 1) * options
    phi = task.states[rows].reshape(-1, task.states.shape[2])
    theta, _ = fit_pairs(phi, offsets, task.gold[rows], seed, tune=True)
    return np.array([softmax(each @ theta) for each in task.states])


def measure(cell: Row, task: Task) -> Row:
    """Buy, train, judge."""
    begin = time.monotonic()
    count = int(len(task.items) * cell["budget"])
    rows = bought(task, cell["gate"], count, cell["seed"])
    more = dict(cell["settings"])
    average, weight = more.pop("average", 1), more.pop("self_training", None)
    lessons, temperature = lessons_of(task, rows, more.get("temperature"))
    if weight is not None:
        lessons = taught(task, lessons, more, cell["seed"], temperature)
        more |= {"objective": "stacksl", "clip": "none", "kl_weight": weight, "batch_size": 24}
    trained, model = refitted(lessons, count, more, cell["seed"], temperature, average)
    predicted = [int(np.argmax(each)) for each in model.scores(task.judged)["pmi"]]
    right = np.array(predicted) == task.judged_gold
    return {
        **cell,
        "labels": count,
        "n": len(right),
        "accuracy": float(right.mean()),
        "right": np.packbits(right).tobytes().hex(),
        "temperature": round(temperature, 3),
        "loss": trained.loss,
        "seconds": round(time.monotonic() - begin, 1),
    }


def lessons_of(
    task: Task, rows: NDArray[np.int64], fixed: float | None = None
) -> tuple[list[Any], float]:
    """What a refit learns of the questions `rows`, and its temperature, fitted unless `fixed`."""
    from stacksl.lm import Lesson
    from stacksl.lm.scoring.normalise import fitted_temperature, prior_temperature

    scores, gold = [task.pool[row] for row in rows], task.gold[rows].tolist()
    temperature = fixed or fitted_temperature(scores, gold, prior_temperature(task.pool))
    lessons = [
        Lesson(task.items[row], label, tuple(range(len(own))), tuple((own / temperature).tolist()))
        for row, label, own in zip(rows, gold, scores, strict=True)
    ]
    return lessons, temperature


def taught(task: Task, lessons: list[Any], more: Row, seed: int, temperature: float) -> list[Any]:
    """The labels and twice as many unlabelled questions, with a teacher's scores for all.

    The teacher is trained on four fifths of the labels, its temperature fitted to the other fifth.
    """
    from stacksl.core.rng import generator
    from stacksl.lm import Lesson
    from stacksl.lm.scoring.normalise import fitted_temperature

    count, known = len(lessons), {each.item.id for each in lessons}
    most = [each for n, each in enumerate(lessons) if n % 5]
    _, teacher = refitted(most, count, more, seed, temperature)
    rest = [item for item in task.items if item.id not in known]
    drawn = generator(seed, "self-training").permutation(len(rest))[: 2 * count]
    items = [each.item for each in lessons] + [rest[n] for n in drawn]
    scores, labels = teacher.scores(items)["pmi"], [each.label for each in lessons]
    own = fitted_temperature(scores[:count:5], labels[::5], temperature)
    return [
        Lesson(item, label, tuple(range(len(each))), tuple((each / own).tolist()))
        for item, label, each in zip(items, labels + [None] * len(drawn), scores, strict=True)
    ]


def refitted(
    lessons: list[Any], key: int, more: Row, seed: int, temperature: float, average: Any = 1
) -> tuple[Any, Any]:
    """A refit and its model, under a mean of LoRA updates where `average` asks for one."""
    updates: list[dict[str, Any]] = []

    def note(step: int, total: int) -> None:
        if step == total or (average == "tail" and 3 * step > 2 * total):
            layers = model.worker.adapter.model.named_modules()
            found = [(name, at) for name, at in layers if hasattr(at, "get_delta_weight")]
            updates.append({name: at.get_delta_weight("default").detach() for name, at in found})

    for number in range(1 if average == "tail" else average):
        model = model_of(more, seed + 1000 * number)
        model.rescale(temperature)
        trained = model.refit(lessons, key, None, note)
    if average != 1:
        adapter = model.worker.adapter
        adapter.restore({n: own * ("lora_B" not in n) for n, own in adapter.state().items()})
        for name, layer in adapter.model.named_modules():
            if name in updates[0]:
                mean = sum(each[name] for each in updates) / len(updates)
                layer.get_base_layer().weight.data.add_(mean)
    return trained, model


def interval(values: Any) -> tuple[float, float]:
    """Mean and half-width of its 95 % t-interval over seeds."""
    from scipy.stats import t

    n = len(values)
    half = t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n) if n > 1 else float("nan")
    return float(np.mean(values)), float(half)


def table(kept: Row) -> str:
    """What labels bought, with 95 % intervals over seeds; the goal; what was tried on the pilot."""
    cells: dict[Any, Cell] = defaultdict(dict)
    for row in kept["rows"]:
        key = (json.dumps(row["settings"]), row["budget"], row["gate"])
        cells[key][row["pilot"], row["seed"]] = row
    test = {key[1:]: of_quarter(0, own) for key, own in cells.items() if key[0] == "{}"}
    n, base = next(iter(test[0.1, "margin"].values()))["n"], kept["base"]["test"]
    lines = [
        f"{kept['items']:,} questions to label, {n} to test on, chance 0.250. Base model"
        f" {base:.3f} (standard error {(base * (1 - base) / n) ** 0.5:.3f}).",
        "",
        "| labels | bought by | seeds | test accuracy | over random, by seeds | by questions |",
        "|---|---|---|---|---|---|",
    ]
    for (budget, gate), found in sorted(test.items()):
        if not found:
            continue
        other = test[budget, "random"] if gate != "random" else {}
        more = f"{difference(found, other)} | {of_questions(found, other):.3f}" if other else " | "
        accuracy = shown(*interval([row["accuracy"] for row in found.values()]))
        labels = next(iter(found.values()))["labels"]
        lines.append(f"| {budget:.0%} ({labels}) | {gate} | {len(found)} | {accuracy} | {more} |")
    ours, random = test[0.1, "margin"], test[0.25, "random"]
    lines += [
        "",
        f"10 % by margin less 25 % at random: {difference(ours, random)} over seeds,"
        f" ± {of_questions(ours, random):.3f} over questions.",
        "",
        "The last quarter of the questions to label, held out (base model"
        f" {kept['base']['4']:.3f}), at random:",
        "",
        "| settings | labels | seeds | accuracy | over the defaults, ± over questions |",
        "|---|---|---|---|---|",
    ]
    for key, own in sorted(cells.items()):
        found = {at: row for at, row in of_quarter(4, own).items() if at[1] < SELECTIONS}
        if found:
            settings = ", ".join(f"`{k}={v}`" for k, v in json.loads(key[0]).items())
            each = ", ".join(f"{row['accuracy']:.3f}" for _, row in sorted(found.items()))
            seeds = ", ".join(str(seed) for _, seed in sorted(found))
            more = over(found, cells["{}", *key[1:]]) if settings else ""
            name = settings or "the defaults"
            lines.append(f"| {name} | {key[1]:.0%} | {seeds} | {each} | {more} |")
    pilots = {key[2]: own for key, own in cells.items() if key[:2] == ("{}", 0.1)}
    return "\n".join([*lines, *selected(pilots)])


def of_quarter(quarter: int, own: Cell) -> Cell:
    """The rows judged on one quarter of the questions to label; 0 is the test file."""
    return {at: row for at, row in own.items() if at[0] == quarter}


def selected(cells: dict[str, Cell]) -> list[str]:
    """What chose 10 % of three quarters, with 95 % intervals over the questions of the fourth."""
    own = {
        gate: {at: row for at, row in found.items() if at[0] and at[1] >= SELECTIONS}
        for gate, found in cells.items()
    }
    lines = [
        "",
        "One batch of 10 % of three quarters of these questions, judged on the fourth, in each"
        " quarter the mean of two or three seeds:",
        "",
        "| bought by | quarters 1 to 4 | over `margin` | over `random` |",
        "|---|---|---|---|",
    ]
    for gate, found in sorted(own.items()):
        means = []
        for quarter in (1, 2, 3, 4):
            rows = of_quarter(quarter, found).values()
            means.append(f"{np.mean([row['accuracy'] for row in rows]):.3f}" if rows else "-")
        more = ["" if gate == other else over(found, own[other]) for other in ("margin", "random")]
        if found:
            lines.append(f"| `{gate}` | {', '.join(means)} | {' | '.join(more)} |")
    return lines


def difference(one: Cell, other: Cell) -> str:
    """The mean difference of accuracy over seeds that both have."""
    both = sorted(set(one) & set(other))
    return shown(*interval([one[s]["accuracy"] - other[s]["accuracy"] for s in both]), sign=True)


def over(found: Cell, plain: Cell) -> str:
    """The mean difference over seeds that both have, with its 95 % interval over questions."""
    return shown(float(gap(found, plain).mean()), of_questions(found, plain), sign=True)


def of_questions(one: Cell, other: Cell) -> float:
    """Half the 95 % interval of the same difference over the drawing of the questions."""
    found = gap(one, other)
    return float(1.96 * found.std(ddof=1) / len(found) ** 0.5)


def gap(one: Cell, other: Cell) -> NDArray[np.float64]:
    """The difference of `rights` over seeds that both have, quarter by quarter."""
    both = sorted(set(one) & set(other))
    quarters = sorted({quarter for quarter, _ in both})
    return np.concatenate(
        [
            rights([one[at] for at in both if at[0] == quarter])
            - rights([other[at] for at in both if at[0] == quarter])
            for quarter in quarters
        ]
    )


def rights(rows: list[Row]) -> NDArray[np.float64]:
    """How often each question was answered rightly, over seeds."""
    bits = [np.unpackbits(np.frombuffer(bytes.fromhex(r["right"]), np.uint8)) for r in rows]
    return np.mean(bits, axis=0)[: rows[0]["n"]]


def shown(mean: float, half: float, *, sign: bool = False) -> str:
    return f"{mean:{'+' if sign else ''}.3f} ± {half:.3f}"


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
    kept = json.loads(words.json.read_text()) if words.json and words.json.exists() else {}
    task = task_of(words.pilot, words.base)
    for seed in seeds:
        for gate, share in named:
            values = (gate, float(share), seed, words.settings, words.pilot)
            cell = dict(zip(OF_CELL, values, strict=True))
            if any(all(row[k] == cell[k] for k in OF_CELL) for row in kept.get("rows", [])):
                continue
            kept = with_row(kept, measure(cell, task), task)
            shown = {k: v for k, v in kept["rows"][-1].items() if k != "right"}
            print(json.dumps(shown), file=sys.stderr, flush=True)
            if words.json:
                words.json.write_text(json.dumps(kept, indent=1) + "\n")


def with_row(kept: Row, row: Row, task: Task) -> Row:
    """What is kept, and one row more."""
    import stacksl
    from stacksl.lm.sample.questions import made_from

    about = {"version": stacksl.__version__, "questions": made_from(), **kept}
    if not row["pilot"]:
        about["items"] = len(task.items)
    base = {**kept.get("base", {}), str(row["pilot"] or "test"): task.base}
    return {**about, "base": base, "rows": [*kept.get("rows", []), row]}


if __name__ == "__main__":
    main()
