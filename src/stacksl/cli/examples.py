"""The worked examples at the end of every verb's `--help`; a test parses each of them."""

from __future__ import annotations

from collections.abc import Sequence

_TEXT = """\
No classes yet: what is in the file, as a workbook to edit?
    stacksl topics texts.csv

The built-in sample, a tenth of its labels:
    stacksl run
Your file, 500 labels, tested on another file:
    stacksl run train.csv --budget 500 --test test.csv
What is in the file, what would it cost and bring? Nothing is bought or written:
    stacksl run train.csv --test test.csv --budget 10% --price 2.50 --dry-run
What would a language model need in memory, disk and time?
    stacksl run train.jsonl --model Qwen/Qwen3-4B-Base --adapt lora --dry-run
Spend at most 40 dollars, without being asked:
    stacksl run train.csv --budget '$40' --price 0.05 --yes
Without the sentence encoder, as for text that is not English:
    stacksl run train.csv --features hashing
Adapt a language model (pip install 'stacksl[lm]'); without a file, the sample model:
    stacksl run train.jsonl --model Qwen/Qwen3-4B-Base --adapt lora --budget 0.25
No labels yet: two colleagues answer in spreadsheets:
    stacksl run texts.csv --classes classes.txt --budget 800 --labeler file --annotators anna,ben
The same, with the topics that you edited as classes:
    stacksl run texts.csv --classes topics.xlsx --budget 800 --labeler file
Questions as they come, the next thousand of them:
    stacksl run - --rounds 1000 --classes classes.txt --labeler file < questions.jsonl
Rank the answers of a bank, of which each question names one by id or text:
    stacksl run faq.csv --bank answers.csv --features sentences:minilm --budget 400
The paper's Algorithm 2:
    stacksl run train.jsonl --preset paper
An earlier run again, with another seed:
    stacksl run --config runs/first --seed 1

Take what a colleague filled in:
    stacksl answer runs/first sheets/0001.xlsx
Of several, with the result as JSON:
    stacksl answer runs/first 0001-anna.xlsx 0001-ben.xlsx --json

A page for the annotators of a run:
    stacksl label runs/first
The same, and open it:
    stacksl label runs/first --open

A hundred labels were not enough; what would 200 cost?
    stacksl change runs/first --budget 200 --dry-run
New questions, and labels held elsewhere:
    stacksl change runs/first --items more.csv --owned old.csv
Two colleagues miss a class:
    stacksl change runs/first --add-class "Lost card" --description "it cannot be found"
Ask once more where none of the old classes fitted:
    stacksl change runs/first --reopen
A third colleague:
    stacksl change runs/first --add-annotator carl=2.50
Ben is ill; his rows go to the others, and the next ones, too:
    stacksl change runs/first --away ben
Ben is back:
    stacksl change runs/first --back ben
Two rows nobody can answer; buy others:
    stacksl change runs/first --key k7f3-q --key m2pw-d --drop
Train on the audit's labels after its result was shown:
    stacksl change runs/first --train-on-audit

A patient withdrew consent:
    stacksl forget runs/first --id q4711
For a record of what was erased:
    stacksl forget runs/first --id q4711 --json

Go on where a run stopped:
    stacksl resume runs/first
The same, with the end result as JSON:
    stacksl resume runs/first --json --quiet
A refit ran out of memory; the labels are kept:
    stacksl resume runs/first --set lm.batch_tokens=1024 --set lm.gradient_checkpointing=true

Accuracy on a file with answers:
    stacksl evaluate runs/first test.csv
A CSV whose columns have other names:
    stacksl evaluate runs/first t.csv --prompt-column q --label-column a --json

One JSON object a line, on stdout:
    stacksl predict runs/first new.csv
The file's rows with a label each, for a spreadsheet:
    stacksl predict runs/first new.csv --out new-labelled.xlsx
From and to other programs:
    stacksl predict runs/first - --out -

The run's own table with a label in each row, by people or the model:
    stacksl export runs/first --table labelled.xlsx
What people answered, with time and price:
    stacksl export runs/first --labels a.csv
For Label Studio:
    stacksl export runs/first --labels tasks.json
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

The runs below ./runs:
    stacksl ls
The runs of another folder:
    stacksl ls runs --folder ~/experiments
The gates there are:
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

One row a purchase, as CSV:
    stacksl ledger export runs/first
The same as JSON lines:
    stacksl ledger export runs/first --json

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
    return "[bold]Examples[/bold]\n\n" + "\n\n".join(shown)


def prose(doc: str | None) -> str:
    """A docstring as help: its paragraphs without the line breaks of the source."""
    paragraphs = (doc or "").strip().split("\n\n")
    return "\n\n".join(escaped(" ".join(each.split())) for each in paragraphs)


def escaped(text: str) -> str:
    """`text` with its square brackets shown, not read as markup."""
    return text.replace("[", "\\[")
