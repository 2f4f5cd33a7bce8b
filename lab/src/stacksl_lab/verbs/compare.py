"""`stacksl-lab compare`: strategies on a labeled file, compared with random labels."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stacksl.cli import options
from stacksl.cli.live import encoding, live
from stacksl.cli.printing import as_json, warn
from stacksl.errors import SettingsError
from stacksl.version import __version__
from stacksl_lab.verbs.reproduce import Figures, Folder, Jobs, check_figures, draw, measured

if TYPE_CHECKING:
    from stacksl_lab.pools.study import Comparison

Strategies = Annotated[
    str | None,
    typer.Option(
        "--strategies",
        metavar="A,B",
        help="The strategies, such as coverage,margin, or all that are installed.",
    ),
]
Budgets = Annotated[
    str, typer.Option("--budgets", metavar="N,M", help="Labels to buy.", show_default=True)
]
Seeds = Annotated[
    int, typer.Option("--seeds", metavar="N", min=1, help="Seeds 0 to N - 1.", show_default=True)
]
PoolSize = Annotated[
    int | None,
    typer.Option(
        "--pool", metavar="N", min=2, help="Rows that each seed draws to choose from (80%)."
    ),
]


@options.takes(*options.READING, "classes", "features", "open_questions")
def compare(
    context: typer.Context,
    data: options.File,
    strategies: Strategies = None,
    budgets: Budgets = "100,200,500",
    seeds: Seeds = 5,
    test: options.Test = None,
    pool: PoolSize = None,
    jobs: Jobs = 1,
    figures: Figures = None,
    out: Folder = Path("runs/studies"),
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Compare query strategies on a labeled file with random labels.

    Every strategy begins without a label, sees the same features and buys in the same batches. Its
    labels train two final models: a logistic regression, and the model of `stacksl run`. Without
    --test a fifth of the rows is tested on. If you stop the command, it continues where it was.

    Compare the default strategies with random labels:
        stacksl-lab compare labeled.csv --budgets 100,200,500
    Compare with strategies of other libraries (pip install 'stacksl[bench]'):
        stacksl-lab compare labeled.csv --strategies coverage,typiclust,badge --seeds 10
    """
    from stacksl_lab.study.bench import Bench
    from stacksl_lab.study.store import Store

    study = _study(context, data, test, strategies, _counts(budgets), pool, seeds, quiet)
    if figures is not None:
        check_figures(study, figures)
    bench = Bench(Store(out / study.store_file()), jobs or os.cpu_count() or 1)
    rows = measured(study, bench, seeds, quiet)
    about = study.about(bench, range(seeds))
    warn(about["failed"].values())
    if json:
        typed = {
            "--test": None if test is None else Path(test).name,
            "--strategies": ",".join(study.strategies),
            "--budgets": budgets,
            "--seeds": seeds,
            "--pool": study.split.size,
            **{f"--{name.replace('_', '-')}": value for name, value in context.obj.items()},
        }
        words = [str(w) for pair in typed.items() if pair[1] is not None for w in pair]
        command = shlex.join(["stacksl-lab", "compare", Path(data).name, *words])
        record = {"study": study.name, "version": __version__, "command": command}
        numbers = {"seeds": list(range(seeds)), "rows": [row.to_json() for row in rows]}
        print(as_json({**record, **about, **numbers}))
    else:
        print(f"{study.title}\n\n{study.as_markdown(rows)}", flush=True)
    if figures is not None:
        draw(study, rows, figures)


def _study(
    context: typer.Context,
    data: str,
    test: str | None,
    strategies: str | None,
    budgets: tuple[int, ...],
    pool: int | None,
    seeds: int,
    quiet: bool,
) -> Comparison:
    """The comparison that was typed, with its features."""
    from stacksl.core.gates.registry import COVERAGE
    from stacksl.data import Layout, read, read_classes
    from stacksl.runs.items.reading import named_columns
    from stacksl.runs.settings.resolve import resolve
    from stacksl_lab.figures.comparison import figures
    from stacksl_lab.pools.split import make_split
    from stacksl_lab.pools.strategies import RANDOM, check_strategies, usable
    from stacksl_lab.pools.study import Comparison
    from stacksl_lab.pools.tables import COMPARISON
    from stacksl_lab.pools.tables import layout as comparison_tables

    settings = resolve(context.obj).settings
    listed = None if settings.classes is None else read_classes(settings.classes).names
    form, layout = settings.read.format, Layout(settings.read.worksheet, settings.read.header)
    train = read(data, format=form, layout=layout, columns=named_columns(settings), classes=listed)
    tested = None
    if test is not None:
        tested = read(test, format=form, layout=layout, classes=train.classes, usual=train.columns)
    fixed = train.classes is not None
    if strategies is None:
        names = [COVERAGE, "margin"] if fixed else ["margin"]
    else:
        names = usable(classes=fixed) if strategies == "all" else strategies.split(",")
    names = list(dict.fromkeys([RANDOM, *(name.strip() for name in names)]))
    check_strategies(names, fixed)
    with live(quiet=quiet) as show:
        split, warnings = make_split(train, tested, settings, pool, budgets[-1], encoding(show))
    warn([*train.warnings, *warnings])
    facts = split.about
    title = (
        f"{facts['data']}: {facts['items']:,} rows, {facts['pool']:,} of them a pool, seeds 0 to"
        f" {seeds - 1}, batches of {facts['batch']}, {facts['features']}; test: {facts['test']}"
        f" ({facts['n_test']:,} rows)."
    )
    claim, cost = "chosen labels are worth more than random ones", "a cell a strategy and seed"
    metrics = ("accuracy", "gain", "labels_to", "saved", "seconds", "recommended")
    return Comparison(
        COMPARISON, title, claim, cost, metrics, seeds, split, tuple(names), budgets,
        table=comparison_tables, figures=figures,
    )  # fmt: skip


def _counts(typed: str) -> tuple[int, ...]:
    """The budgets, ascending."""
    words = [word.strip() for word in typed.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise SettingsError(
            f"--budgets should be numbers of labels >= 1 with commas between, got '{typed}': write"
            " such as 100,200,500"
        )
    return tuple(sorted({int(word) for word in words}))
