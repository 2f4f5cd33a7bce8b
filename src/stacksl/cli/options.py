"""The options that verbs share: those made from the settings, and those of the program.

An option of a setting passes on the text that was typed. What the text means is for the settings to
say, so that a flag, a config file and a Python call are refused with the same sentence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeVar

import typer
from typer.core import TyperCommand

from stacksl.cli.printing import warn
from stacksl.errors import SettingsError

if TYPE_CHECKING:
    from stacksl.api import Run

SPEND = "Labels and money"
DATA = "Reading files"
LEARN = "How it learns"
MODEL = "A language model"
_OUTPUT = "Output"
PANELS = (SPEND, DATA, LEARN, MODEL, _OUTPUT)
"""The groups of options, in the order of the help."""

_FOR_RESEARCH = ("report_to", "preset", "config", "engine")  # of `run`, in `--help-all` alone
EVERYTHING = "stacksl.everything"
"""Where a context notes that every option is to be shown."""

READING = (
    *("read.format", "read.worksheet", "read.header"),
    *("columns.prompt", "columns.label", "columns.id"),
)
"""The settings that say how a file is read again."""


class Flag(NamedTuple):
    """The option of a setting on the command line; without one, a setting is given by `--set`.

    `metavar` names the value in the help (None for a switch), under `panel`; the short `--help`
    lists what is `common`, `--help-all` every option.
    """

    word: str
    metavar: str | None
    panel: str
    common: bool = False


FLAGS: Mapping[str, Flag] = {
    "budget": Flag("budget", "B", SPEND, True),
    "price": Flag("price", "P", SPEND, True),
    "labeler": Flag("labeler", "NAME", SPEND, True),
    "server.url": Flag("url", "URL", SPEND),
    "server.allow_send": Flag("allow-send", None, SPEND),
    "server.batch_api": Flag("batch-api", None, SPEND),
    "open_questions": Flag("open-questions", "N", SPEND),
    "annotators": Flag("annotators", "A,B", SPEND, True),
    "audit": Flag("audit", "N", SPEND, True),
    "second_look": Flag("second-look", None, SPEND),
    "stop_when": Flag("stop-when", "RULE", SPEND, True),
    "owned": Flag("owned", "NAME", SPEND),
    "model_labels": Flag("model-labels", "NAME", SPEND, True),
    "sheets.overlap": Flag("overlap", "M", SPEND),
    "sheets.dir": Flag("ask-dir", "DIR", SPEND),
    "sheets.mode": Flag("ask-mode", "OCTAL", SPEND),
    "sheets.format": Flag("sheets", "FORMAT", SPEND),
    "classes": Flag("classes", "FILE", DATA, True),
    "columns.prompt": Flag("prompt-column", "NAME", DATA, True),
    "columns.label": Flag("label-column", "NAME", DATA, True),
    "columns.id": Flag("id-column", "NAME", DATA),
    "owned_columns": Flag("owned-columns", "ROLE=NAME", DATA),
    "test_columns": Flag("test-columns", "ROLE=NAME", DATA),
    "read.format": Flag("format", "NAME", DATA),
    "read.worksheet": Flag("worksheet", "NAME", DATA),
    "read.header": Flag("header", None, DATA),
    "read.max_candidates": Flag("max-candidates", "N", DATA),
    "features": Flag("features", "SPEC", LEARN, True),
    "seed": Flag("seed", "N", LEARN, True),
    "mode": Flag("mode", "MODE", LEARN),
    "class_names": Flag("class-names", None, LEARN),
    "gate.name": Flag("gate", "NAME", LEARN),
    "scorer.name": Flag("scorer", "NAME", LEARN),
    "lm.model": Flag("model", "NAME_OR_DIR", LEARN, True),
    "lm.adapt": Flag("adapt", "HOW", MODEL),
    "lm.adapter": Flag("adapter", "NAME_OR_DIR", MODEL),
    "lm.template": Flag("template", "NAME|FILE", MODEL),
    "lm.chat": Flag("chat", None, MODEL),
    "lm.answer_format": Flag("answer-format", "NAME", MODEL),
    "lm.normalization": Flag("normalization", "NAME", MODEL),
    "lm.pmi_context": Flag("pmi-context", "NAME", MODEL),
    "lm.device": Flag("device", "NAME", MODEL),
    "lm.dtype": Flag("dtype", "NAME", MODEL),
    "lm.objective": Flag("objective", "NAME", MODEL),
    "lm.refit_at": Flag("refit-at", "SHARES", MODEL),
    "lm.epochs": Flag("epochs", "N", MODEL),
    "lm.batch_tokens": Flag("batch-tokens", "N", MODEL),
}

Verb = TypeVar("Verb", bound=Callable[..., None])

_UsageError: type[Any] = typer.BadParameter.__mro__[1]  # typer may include its own copy of click


def takes(*names: str, **texts: str) -> Callable[[Verb], Verb]:
    """Give a verb an option for each of the settings `names`; without names, for all with a flag.

    What it means there, where that differs, is in `texts`.
    The verb finds what was typed in `context.obj`: a value by the name of its setting.
    """

    def registered(verb: Verb) -> Verb:
        COMMANDS[verb] = type(
            "SettingsCommand", (SettingsCommand,), {"names": names, "texts": texts}
        )
        return verb

    return registered


class SettingsCommand(TyperCommand):
    """A command with options made from settings, once they are needed: most verbs need none."""

    names: ClassVar[tuple[str, ...]] = ()
    texts: ClassVar[Mapping[str, str]] = {}

    def get_params(self, ctx: Any) -> list[Any]:
        """The command's own parameters and those of its settings, by the panel of the help."""
        everything = bool(self.names) or EVERYTHING in ctx.meta
        parameters: list[Any] = super().get_params(ctx)
        for option in (parameter for parameter in parameters if parameter.name in _FOR_RESEARCH):
            option.hidden = not everything
        of_settings = _options_of_settings(self.names, *self.texts.items(), everything=everything)
        return sorted([*of_settings, *parameters], key=_place)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The words left over.

        Raises:
            SettingsError: an option that would be a setting's, if that had one.
        """
        try:
            return super().parse_args(ctx, args)
        except _UsageError as fault:
            option = getattr(fault, "option_name", None)
            if option is not None and any(parameter.name == "set_" for parameter in self.params):
                _refuse_setting(option)
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; the settings typed are in `ctx.obj`."""
        wanted = self.names or FLAGS
        typed = {name: ctx.params.pop(_parameter(name), None) for name in wanted}
        ctx.obj = {name: value for name, value in typed.items() if value is not None}
        return super().invoke(ctx)


COMMANDS: dict[Callable[..., None], type[TyperCommand]] = {}
"""The class of the command of a verb with options made from settings."""


def _parameter(name: str) -> str:
    return FLAGS[name].word.replace("-", "_")


@cache
def _options_of_settings(
    names: tuple[str, ...], *texts: tuple[str, str], everything: bool = True
) -> list[Any]:
    """The options of the settings `names`, or of all settings with a flag.

    Those that are not common are hidden unless `everything` is to be shown.
    """
    from stacksl.runs.settings.fields import FIELDS, help_text

    def settings(**_: Any) -> None: ...

    parameters = []
    for name in names or FLAGS:
        flag, field = FLAGS[name], FIELDS[name]
        switch = flag.metavar is None and field.default is not False
        off = f"/--no-{flag.word}" if switch else ""
        option = typer.Option(
            None,
            f"--{flag.word}{off}",
            metavar=flag.metavar,
            rich_help_panel=flag.panel,
            help=dict(texts).get(name) or help_text(field),
            hidden=not (everything or flag.common),
        )
        kind = bool | None if flag.metavar is None else str | None
        only = inspect.Parameter.KEYWORD_ONLY
        parameters.append(
            inspect.Parameter(_parameter(name), only, default=option, annotation=kind)
        )
    settings.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    settings.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app = typer.Typer(add_completion=False)
    app.command()(settings)
    return list(typer.main.get_command(app).params)


def _place(parameter: Any) -> int:
    panel = getattr(parameter, "rich_help_panel", None)
    return PANELS.index(panel) if panel in PANELS else -1


def _refuse_setting(option: str) -> None:
    """The message for a setting that was typed as an `option` but has none."""
    from stacksl.runs.settings.resolve import named

    name = next(iter(named(option.lstrip("-").replace("-", "_"))), None)
    if name is None or (name in FLAGS and option == f"--{FLAGS[name].word}"):  # it lacks a value
        return
    if name in FLAGS:
        raise SettingsError(f"{option} is not an option: it is called --{FLAGS[name].word}")
    raise SettingsError(f"{option} is not an option: give --set {name}=VALUE")


def reading(context: typer.Context) -> dict[str, str]:
    """How a file is to be read, of what was typed: `format`, and a column by its role."""
    return {name.partition(".")[2]: context.obj[name] for name in READING if name in context.obj}


def open_run(path: Path) -> Run:
    """The run in a folder; the interface is loaded here, since no help needs it."""
    from stacksl.api import Run
    from stacksl.cli.heads import check_head, keep_at_end

    run = Run.open(path)
    keep_at_end(path)
    if (lost := check_head(run.folder)) is not None:
        warn([lost])
    return run


def _show_everything(context: typer.Context, asked: bool) -> None:
    if asked:
        context.meta[EVERYTHING] = True
        typer.echo(context.get_help())
        raise typer.Exit


def option(help: str, metavar: str | None, *words: str, panel: str | None = None) -> Any:
    """An option of a verb, under a panel of its help; `metavar` names its value, if it has one."""
    return typer.Option(*words, metavar=metavar, rich_help_panel=panel, help=help)


RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run's folder, as `stacksl ls` lists it.")
]
File = Annotated[str, typer.Argument(metavar="FILE", help="A file of items.")]

Yes = Annotated[bool, option("Do not ask before buying.", None, "--yes", "-y", panel=SPEND)]
DryRun = Annotated[
    bool,
    option(
        "Print what the command would do, gain and cost; write nothing.",
        None,
        "--dry-run",
        panel=SPEND,
    ),
]
Preset = Annotated[
    str | None,
    option("A named set of settings; `stacksl ls presets` lists them.", "NAME", panel=LEARN),
]
Config = Annotated[
    Path | None,
    option(
        "A run's folder or a TOML file, whose settings are used; flags override them.",
        "RUN|FILE",
        panel=LEARN,
    ),
]
Set = Annotated[
    list[str] | None,
    option(
        "Any other setting, as `stacksl ls settings` lists them.",
        "NAME=VALUE",
        "--set",
        panel=LEARN,
    ),
]
Test = Annotated[
    str | None, option("A file with answers, to test the model on.", "FILE", panel=DATA)
]
Out = Annotated[Path | None, option("The run's folder (runs/DATE-NAME).", "DIR", panel=_OUTPUT)]
Json = Annotated[bool, option("Print the result as JSON.", None, "--json", panel=_OUTPUT)]
ReportTo = Annotated[
    str | None,
    option(
        "Also report accuracy, labels and cost of each refit to mlflow or tensorboard.",
        "NAME",
        panel=_OUTPUT,
    ),
]
Quiet = Annotated[bool, option("No progress on stderr.", None, "--quiet", "-q", panel=_OUTPUT)]
Debug = Annotated[bool, option("Show the traceback of an error.", None, "--debug", panel=_OUTPUT)]
Engine = Annotated[
    str | None, option("Where texts are encoded: local or ray.", "NAME", panel=_OUTPUT)
]
HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all",
        callback=_show_everything,
        is_eager=True,
        help="Show every option, also those for research, and exit.",
    ),
]
