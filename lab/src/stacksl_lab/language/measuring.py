"""From settings to cells, and from results to rows of one seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stacksl.errors import RunError
from stacksl_lab.language.cells import Cell, Result, Setting
from stacksl_lab.language.paper import FIXED, KL_WEIGHTS, NEGATIVES, STREAM, llf
from stacksl_lab.study.store import Numbers
from stacksl_lab.study.study import QUICK

if TYPE_CHECKING:
    from stacksl_lab.language.studies import LanguageBench, LanguageStudy
    from stacksl_lab.language.tasks import Task


_ALWAYS = ("accuracy", "macro_f1")  # what a row has even where nothing was measured


def cell_of(setting: Setting, seed: int, bench: LanguageBench) -> Cell:
    """The cell that `setting` means under `seed`.

    Settings of the setup go before the row's, those before `FIXED`. k is cut to the n − 1 negatives
    that an item of n options has, and N to the items there are, so that rows that mean the same
    run are the same cell.

    Raises:
        Wanted: kl_weight and k are chosen first, and that is still to be measured.
    """
    setup, row_settings = bench.setup, dict(setting.settings)
    task = _task(setting, bench)
    if setting.chosen and setup.absent is None:
        picked = choice(bench, seed)
        row_settings |= {"kl_weight": picked.kl_weight, "k": picked.k}
    if "k" in row_settings:
        row_settings["k"] = min(row_settings["k"], task.options - 1)
    base = setting.shots is not None
    merged = {**_of(FIXED, base), **row_settings, **_of(setup.settings, base)}
    takes_all = setting.items is None or setting.items >= len(task.train.items)
    return Cell(
        task=task.name,
        seed=seed if setting.repeats else 0,
        settings={name: value for name, value in merged.items() if value is not None},
        budget_fraction=0.0 if base else setting.budget_fraction,
        items=None if takes_all or base else setting.items,
        permuted=setting.permuted,
        shots=setting.shots,
    )


def measured(setting: Setting, seed: int, bench: LanguageBench) -> tuple[Cell, Result]:
    """The cell of `setting` and its result; its twin's where that bought what `first` buys.

    Raises:
        Wanted: it is still to be measured.
    """
    if setting.twin is not None:
        cell, result = measured(setting.twin, seed, bench)
        if result.first:
            return cell, result
    cell = cell_of(setting, seed, bench)
    return cell, bench.results([cell])[0]


def sample_of(
    study: LanguageStudy, setting: Setting, seed: int, bench: LanguageBench
) -> tuple[Numbers, dict[str, Any]]:
    """The numbers of `setting` under one seed, by metric, and the settings that fixed them.

    Raises:
        Wanted: some are still to be measured.
    """
    cell, result = _measured_or_why(setting, seed, bench)
    settings = _described(setting, cell, result, bench)
    if result.reason is None:
        share = result.asked / result.rounds if result.rounds else 0.0
        return {**study.measure(setting, seed, bench, result), "asked_fraction": share}, settings
    papers = setting.paper if bench.setup.comparable else {}
    return dict.fromkeys((*_ALWAYS, *papers), None), settings


def _measured_or_why(setting: Setting, seed: int, bench: LanguageBench) -> tuple[Cell, Result]:
    try:
        return measured(setting, seed, bench)
    except RunError as fault:  # nothing could be chosen, so there is no cell
        plain = replace(setting, chosen=False, twin=None)
        return cell_of(plain, seed, bench), Result(reason=str(fault))


def accuracies(
    setting: Setting, seed: int, bench: LanguageBench, result: Result
) -> Mapping[str, float | None]:
    """Accuracy and macro-F1: the measure of most studies."""
    return {"accuracy": result.accuracy, "macro_f1": result.macro_f1}


def _task(setting: Setting, bench: LanguageBench) -> Task:
    return bench.setup.main if setting.task is None else bench.setup.task(setting.task)


def _of(settings: Mapping[str, Any], base: bool) -> dict[str, Any]:
    """Settings that a base row has too: none of training."""
    names = (
        "protocol", "template", "chat", "normalization", "pmi_context", "temperature",
        "max_len_prompt", "max_len_choice", "device", "dtype", "batch_tokens",
    )  # fmt: skip
    return {n: v for n, v in settings.items() if not base or n in names}


def _described(
    setting: Setting, cell: Cell, result: Result, bench: LanguageBench
) -> dict[str, Any]:
    """The settings of a row as its JSON has them."""
    return {
        "model": bench.setup.model,
        "task": cell.task,
        "N": result.rounds or None,
        "n_test": result.n or None,
        **({"shots": cell.shots} if cell.shots is not None else {}),
        **({"permuted": True} if cell.permuted else {}),
        **cell.settings,
        "cell": bench.key(cell),
        "marks": _marks(setting, cell, result, bench),
    }


def _marks(setting: Setting, cell: Cell, result: Result, bench: LanguageBench) -> list[str]:
    """What a reader must know of a row, a sentence each."""
    task, marks = _task(setting, bench), list(setting.marks)
    if result.reason is not None:
        return [*marks, f"not measured: {result.reason}"]
    if bench.quick:
        marks.append(QUICK)
    if setting.settings.get("k", 0) > task.options - 1 and not setting.chosen:
        marks.append(
            f"k is cut to {task.options - 1}: {task.options} options have no more negatives"
        )
    if setting.shots is None and cell.items is None and task.paper_size:
        wanted = min(task.paper_size, setting.items or task.paper_size)
        if result.rounds != wanted:
            marks.append(f"N = {result.rounds:,}, not {wanted:,}")
    if setting.chosen:
        marks.append(Choice.mark(bench.paper_selection))
    gate = cell.settings.get("gate")
    if setting.twin is not None and gate != setting.settings["gate"]:
        marks.append(f"bought what '{setting.twin.row}' bought: computed once")
    elif result.first and gate == "llf":
        marks.append("bought the labels of the first rounds, as `first` does")
    return marks


@dataclass(frozen=True, slots=True)
class Choice:
    """The kl_weight and the k that other tables take."""

    kl_weight: float
    k: int

    @staticmethod
    def mark(on_test: bool) -> str:
        """How it was made, for the rows that take it."""
        if on_test:
            return "kl_weight and k chosen on the test set, as the paper did: optimistic"
        return "kl_weight and k chosen on held-out bought labels"


def candidates(bench: LanguageBench, seed: int) -> tuple[list[Cell], list[Cell]]:
    """The cells of both grids on MedQA: kl_weight at k = 4, and k at kl_weight = 0.7.

    Held out, a fifth of the labels is kept from training and measured on; on the test set they
    are the cells of the tables of kl_weight and of k themselves.
    """

    def cell(kl_weight: float, k: int) -> Cell:
        settings = llf(kl_weight, k) | {"protocol": "option"}
        plain = cell_of(Setting("", settings, 0.5, items=STREAM), seed, bench)
        return plain if bench.paper_selection else replace(plain, held=True)

    return [cell(w, 4) for w in KL_WEIGHTS], [cell(0.7, k) for k in NEGATIVES]


def choice(bench: LanguageBench, seed: int) -> Choice:
    """The best kl_weight and the best k of their grids; of equals the smaller.

    Raises:
        Wanted: the grids are still to be measured.
        RunError: one of their cells could not be measured.
    """
    weights, negatives = candidates(bench, seed)
    results = bench.results([*weights, *negatives])
    for result in results:
        if result.reason is not None or result.accuracy is None:
            raise RunError(f"kl_weight and k could not be chosen: {result.reason}")
    scores = [result.accuracy or 0.0 for result in results]
    first = len(weights)
    best_weight = KL_WEIGHTS[_best(scores[:first])]
    return Choice(best_weight, int(negatives[_best(scores[first:])].settings["k"]))


def _best(scores: Sequence[float]) -> int:
    return max(range(len(scores)), key=lambda i: (scores[i], -i))
