"""The worked examples at the end of every verb's `--help`; a test parses each of them."""

from __future__ import annotations

from collections.abc import Sequence

_TEXT = """\
No classes yet: what is in the file, as a workbook to edit?
    stacksl topics texts.csv

How many of the labels that a model gave are right, by 200 answers of two colleagues?
    stacksl run tickets.xlsx --model-labels gpt_label --audit 200 --annotators anna,ben
What is in the file, and what would a run cost and gain? Nothing is bought or written:
    stacksl run train.csv --budget 10% --price 2.50 --dry-run
No labels yet, and two colleagues answer in spreadsheets:
    stacksl run texts.csv --classes classes.txt --budget 800 --labeler file --annotators anna,ben
A language model (pip install 'stacksl[lm]'):
    stacksl run train.jsonl --model Qwen/Qwen3-4B-Base --adapt lora --budget 0.25

Read the sheet that a colleague filled in:
    stacksl answer runs/first sheets/0001.xlsx
Read several sheets, with the result as JSON:
    stacksl answer runs/first 0001-anna.xlsx 0001-ben.xlsx --json

A page for the annotators of a run:
    stacksl label runs/first
The same, and open it:
    stacksl label runs/first --open

A hundred labels were not enough; what would 200 cost?
    stacksl change runs/first --budget 200 --dry-run
Add new questions, and labels that you already have:
    stacksl change runs/first --items more.csv --owned old.csv
Add a class that your colleagues miss:
    stacksl change runs/first --add-class "Lost card" --description "it cannot be found"
Ben is ill, and the others get his open rows and the next ones:
    stacksl change runs/first --away ben
Nobody can answer two rows, so buy others:
    stacksl change runs/first --key k7f3-q --key m2pw-d --drop

A patient withdrew consent:
    stacksl forget runs/first --id q4711
For a record of what was erased:
    stacksl forget runs/first --id q4711 --json

Continue a run where it stopped:
    stacksl resume runs/first
The same, with the end result as JSON:
    stacksl resume runs/first --json --quiet

Accuracy on a file with answers:
    stacksl evaluate runs/first test.csv
Accuracy on a CSV file whose columns have other names:
    stacksl evaluate runs/first t.csv --prompt-column q --label-column a --json
A file without answers: are its rows like the run's rows, and what is new in them?
    stacksl evaluate runs/first march.csv

Print one JSON object per line:
    stacksl predict runs/first new.csv
Write the file's rows with a label in each row, for a spreadsheet:
    stacksl predict runs/first new.csv --out new-labeled.xlsx
Read from and write to other programs:
    stacksl predict runs/first - --out -

The run's own table with a label in each row, by people or the model:
    stacksl export runs/first --table labeled.xlsx
What people answered, with time and price:
    stacksl export runs/first --labels a.csv
The final model, for somebody without stacksl:
    stacksl export runs/first --model model
One model, base and adapter:
    stacksl export runs/first --merge out
A task of lm-eval:
    stacksl export runs/first --task test.jsonl task

The status of a run, also while it is running:
    stacksl status runs/first
For a script:
    stacksl status runs/first --json

Write the report again and print its path:
    stacksl report runs/first
One to forward, without texts:
    stacksl report runs/first --no-text
The path as JSON:
    stacksl report runs/first --json

The runs in ./runs:
    stacksl ls
The runs of another folder:
    stacksl ls runs --folder ~/experiments
All gates:
    stacksl ls gates

Where the database of a run is:
    stacksl ledger path runs/first
For a script:
    stacksl ledger path runs/first --json

Was any row edited or cut?
    stacksl ledger verify runs/first
For a script (exit code 2 where it was):
    stacksl ledger verify runs/first --json
Against a head that was kept elsewhere:
    stacksl ledger verify runs/first --head 566:9f2c...

What a model was asked, and what it said:
    stacksl ledger requests runs/first
For a script:
    stacksl ledger requests runs/first --json

Rebuild the learner and compare:
    stacksl ledger replay runs/first
For a script:
    stacksl ledger replay runs/first --json
"""
"""What each example is for, and the words to type; an empty line between two verbs."""


def by_verb(text: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """Each verb's examples: what it is for, and the words to type."""
    found = {}
    for part in text.strip().split("\n\n"):
        lines = [line.strip() for line in part.splitlines()]
        _, first, second, *_ = (*lines[1].split(), "")
        verb = f"{first} {second}" if first == "ledger" else first
        found[verb] = tuple(zip(lines[::2], lines[1::2], strict=True))
    return found


EXAMPLES = by_verb(_TEXT)


def examples(rows: Sequence[tuple[str, str]]) -> str:
    """The epilogue of a verb's help, of its examples."""
    shown = (f"[dim]{escaped(why)}[/dim]\n{escaped(words)}" for why, words in rows)
    return "\n".join(("[bold]Examples[/bold]", *shown))


def prose(doc: str | None) -> str:
    """A docstring as help: its paragraphs without the line breaks of the source."""
    paragraphs = (doc or "").strip().split("\n\n")
    return "\n\n".join(escaped(" ".join(each.split())) for each in paragraphs)


def escaped(text: str) -> str:
    """`text` with its square brackets shown, not read as markup."""
    return text.replace("[", "\\[")
