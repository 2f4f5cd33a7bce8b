"""The tables of docs/lm.md from the rows that `language_model.py` keeps."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import numpy as np
from _rows import interval
from numpy.typing import NDArray

SELECTIONS = 1000  # seeds from here on compare selections
Row = dict[str, Any]
Key = tuple[str, float, str]  # settings, budget, gate
Cell = dict[tuple[int, int], Row]  # by quarter (0: the test file) and seed


def table(kept: Row) -> str:
    """What labels bought on the test file, what settings did on a pilot, what selections did."""
    cells: dict[Key, Cell] = defaultdict(dict)
    for row in kept["rows"]:
        key = (json.dumps(row["settings"]), row["budget"], row["gate"])
        cells[key][row["pilot"], row["seed"]] = row
    base = kept["base"]
    parts = [tested(cells, kept["items"], base["test"]), tried(cells, base["4"]), selections(cells)]
    return "\n\n".join("\n".join(part) for part in parts)


def tested(cells: dict[Key, Cell], items: int, base: float) -> list[str]:
    """What labels bought, with 95% intervals over seeds, and the goal."""
    test = {
        (budget, ", ".join((gate, *named(settings)))): of_quarter(0, own)
        for (settings, budget, gate), own in cells.items()
    }
    n = next(iter(test[0.1, "margin"].values()))["n"]
    lines = [
        f"{items:,} questions to label, {n} to test on, chance 0.250. Base model"
        f" {base:.3f} (standard error {(base * (1 - base) / n) ** 0.5:.3f}).",
        "",
        "| labels | bought by | seeds | test accuracy | over random, by seeds | by questions"
        " | over margin, by questions |",
        "|---|---|---|---|---|---|---|",
    ]
    for (budget, gate), found in sorted(test.items()):
        if not found:
            continue
        other = test[budget, "random"] if gate != "random" else {}
        more = f"{difference(found, other)} | {of_questions(found, other):.3f}" if other else " | "
        beside = test[budget, "margin"] if gate not in ("margin", "random") else {}
        more += f" | {over(found, beside)}" if beside else " | "
        accuracy = shown(*interval([row["accuracy"] for row in found.values()]))
        labels = next(iter(found.values()))["labels"]
        lines.append(f"| {budget:.0%} ({labels}) | {gate} | {len(found)} | {accuracy} | {more} |")
    ours, random = test[0.1, "margin"], test[0.25, "random"]
    goal = (
        f"10% by margin less 25% at random: {difference(ours, random)} over seeds,"
        f" ± {of_questions(ours, random):.3f} over questions."
    )
    return [*lines, "", goal]


def tried(cells: dict[Key, Cell], base: float) -> list[str]:
    """What settings other than the defaults did on the last quarter."""
    lines = [
        f"The last quarter of the questions to label, held out (base model {base:.3f}), at random:",
        "",
        "| settings | labels | seeds | accuracy | over the defaults, ± over questions |",
        "|---|---|---|---|---|",
    ]
    for key, own in sorted(cells.items()):
        pilot = sorted(at for at in of_quarter(4, own) if at[1] < SELECTIONS)
        if not pilot:
            continue
        defaults = {at: own[at] for at in pilot}
        settings = ", ".join(named(key[0]))
        weights = ", ".join(f"{row['weight']}" for row in defaults.values() if "weight" in row)
        name = (settings or "the defaults") + (f" ({weights})" if weights else "")
        seeds = ", ".join(str(seed) for _, seed in defaults)
        each = ", ".join(f"{row['accuracy']:.3f}" for row in defaults.values())
        more = over(defaults, cells["{}", *key[1:]]) if settings else ""
        lines.append(f"| {name} | {key[1]:.0%} | {seeds} | {each} | {more} |")
    return lines


def named(settings: str) -> list[str]:
    """Settings as a table names them."""
    return [f"`{name}={value}`" for name, value in json.loads(settings).items()]


def selections(cells: dict[Key, Cell]) -> list[str]:
    """What chose 10% of three quarters, with 95% intervals over the questions of the fourth."""
    own = {
        ", ".join((f"`{gate}`", *named(settings))): {
            at: row for at, row in found.items() if at[0] and at[1] >= SELECTIONS
        }
        for (settings, budget, gate), found in cells.items()
        if budget == 0.1
    }
    lines = [
        "One batch of 10% of three quarters of these questions, judged on the fourth, in each"
        " quarter the mean of one to three seeds:",
        "",
        "| bought by | quarters 1 to 4 | over `margin` | over `random` |",
        "|---|---|---|---|",
    ]
    for gate, found in sorted(own.items()):
        if not found:
            continue
        means = []
        for quarter in (1, 2, 3, 4):
            rows = of_quarter(quarter, found).values()
            means.append(f"{np.mean([row['accuracy'] for row in rows]):.3f}" if rows else "-")
        others = ("`margin`", "`random`")
        more = ["" if gate == other else over(found, own[other]) for other in others]
        lines.append(f"| {gate} | {', '.join(means)} | {' | '.join(more)} |")
    return lines


def of_quarter(quarter: int, own: Cell) -> Cell:
    """The rows judged on one quarter of the questions to label; 0 is the test file."""
    return {at: row for at, row in own.items() if at[0] == quarter}


def difference(one: Cell, other: Cell) -> str:
    """The mean difference of accuracy over seeds that both have."""
    both = sorted(set(one) & set(other))
    return shown(*interval([one[s]["accuracy"] - other[s]["accuracy"] for s in both]), sign=True)


def over(found: Cell, plain: Cell) -> str:
    """The mean difference over seeds that both have, with its 95% interval over questions."""
    return shown(float(gap(found, plain).mean()), of_questions(found, plain), sign=True)


def of_questions(one: Cell, other: Cell) -> float:
    """Half the 95% interval of the same difference over the drawing of the questions."""
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
