"""`stacksl topics`: what is in a file that has no classes yet."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stacksl.cli import options
from stacksl.cli.live import encoding, live
from stacksl.cli.printing import as_json, rejected, table, warn
from stacksl.cli.verbs.run import with_header, word
from stacksl.errors import SettingsError
from stacksl.report.wording import plural

if TYPE_CHECKING:
    from stacksl.data import Dataset
    from stacksl.models.topics import Topic

EDIT = "Change a name to rename a topic, give two the same name to merge them, empty it to drop one"
NO_CLASSES = ("some", "others")  # labels in the file are not used


@options.takes(*options.READING, "features")
def topics(
    context: typer.Context,
    file: options.File,
    about: Annotated[
        int, typer.Option(metavar="N", min=2, show_default=True, help="How many topics to make.")
    ] = 20,
    out: Annotated[
        Path, typer.Option(metavar="FILE", show_default=True, help="A new workbook, to be edited.")
    ] = Path("topics.xlsx"),
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Group the texts of a file by topic, and write a workbook of the topics to edit.

    Each topic has a line with a name made of its own words, its size and six typical texts; a
    second sheet has the topic of every row. Change a name to rename a topic, give two the same name
    to merge them, empty a name to drop one. `stacksl run FILE --classes topics.xlsx` begins with
    what you edited: the names are its classes, and the texts are examples of them.

    No classes yet: what is in the file, as a workbook to edit?
        stacksl topics texts.csv
    """
    from stacksl.data import Dataset, unusable
    from stacksl.features import TextMap, make_features
    from stacksl.files.atomic import write_atomic
    from stacksl.models.topics import find_topics
    from stacksl.runs.items.intake import no_encoder, with_features
    from stacksl.runs.items.reading import read_again
    from stacksl.runs.items.sources import STDIN, stdin_copied
    from stacksl.runs.loop.game import Progress
    from stacksl.runs.settings.resolve import resolve

    resolved = with_features(resolve(context.obj), without_data=False)
    reading = resolved.settings, Dataset("", "", (), {}, NO_CLASSES)  # no columns are known
    with stdin_copied() if file == STDIN else nullcontext(file) as path:
        dataset = with_header(context, lambda: read_again(*reading, path, options.reading(context)))
    if out.suffix.lower() != ".xlsx" or out.exists():
        fault = "exists already" if out.exists() else "is no .xlsx file"
        raise SettingsError(f"'{out}' {fault}: name a new .xlsx file with --out")
    features = make_features(resolved.settings.features, classes=NO_CLASSES)
    if not isinstance(features, TextMap):
        raise SettingsError("topics need features of texts: --features hashing or sentences:NAME")
    texts = [item.prompt for item in dataset.items]
    features.encoder.fit(texts)
    with live(quiet=quiet) as show:
        vectors = features.encoder.encode(texts, encoding(show))
        if show is not None:
            show(Progress("topics", 0, 1))
        groups = find_topics(texts, vectors, about)
    write_atomic(out, _workbook(dataset, groups))
    warn([*no_encoder(resolved), *unusable(dataset)])
    if json:
        listed = [{"name": group.name, "size": len(group.rows)} for group in groups]
        facts = {"file": out, "rows": len(texts), "topics": listed, "rejected": rejected(dataset)}
        print(as_json(facts))
        return
    print(table(("Rows", "Topic"), ((len(group.rows), group.name) for group in groups)))
    print(f"\n{plural(len(groups), 'topic')} of {plural(len(texts), 'row')}, in {out}")
    then = "Then"
    if file == STDIN:  # where nothing is left to read
        file = "texts." + dataset.format.partition(":")[0].replace("lines", "txt")
        then += f" save the rows that you piped in as {file} and run"
    call = f"stacksl run {word(Path(file))} --classes {word(out)} --labeler file --annotators NAMES"
    print(f"{EDIT}. {then}:\n  {call}{_typed(context)}")


def _typed(context: typer.Context) -> str:
    """The options of reading as they were typed, for the command that comes next."""
    words, typed = "", context.obj
    for name, flag in ((name, options.FLAGS[name].word) for name in options.READING):
        if isinstance(value := typed.get(name), str):
            words += f" --{flag} {word(value)}"
        elif value is not None:
            words += f" --{'' if value else 'no-'}{flag}"
    return words


def _workbook(dataset: Dataset, groups: Sequence[Topic]) -> bytes:
    """The workbook to edit: a line for each topic, and the topic of every row."""
    from openpyxl import Workbook

    from stacksl.data.classes import TOPICS
    from stacksl.labelers.sheets.writing import fill, packed
    from stacksl.models.topics import EXAMPLES

    topic_of = {row: group.name for group in groups for row in group.rows}
    lines = [("name", "words", "size", *(f"example {n}" for n in range(1, EXAMPLES + 1)))]
    for group in groups:
        typical = (dataset.items[row].prompt for row in group.examples)
        lines.append((group.name, ", ".join(group.words), str(len(group.rows)), *typical))
    rows = [(item.id, item.prompt, topic_of[row]) for row, item in enumerate(dataset.items)]
    book = Workbook()
    fill(book.worksheets[0], lines, (30, 40, 8, *[40] * EXAMPLES))
    for number, group in enumerate(groups, 2):
        size: Any = book.worksheets[0].cell(number, 3)
        size.value, size.number_format, size.quotePrefix = len(group.rows), "0", False
    fill(book.create_sheet("Rows"), [("id", "text", "topic"), *rows], (14, 80, 30))
    fill(book.create_sheet("How to edit"), [(EDIT,)], (100,), header=False)
    book.worksheets[0].title = TOPICS
    return packed(book)


VERBS = (topics,)
