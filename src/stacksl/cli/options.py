"""The options that the verbs share, each defined once.

Their values are passed through as typed: what a budget or a name means is for the settings to say,
so that a flag, a config file and a Python call are refused with the same sentence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "SETTINGS",
    "Adapt",
    "Aim",
    "Budget",
    "Chat",
    "Classes",
    "Config",
    "Debug",
    "Device",
    "DryRun",
    "Dtype",
    "Epochs",
    "Features",
    "File",
    "Follower",
    "Format",
    "Gate",
    "Json",
    "K",
    "LabelColumn",
    "Labeler",
    "MaxCandidates",
    "MaxLenChoice",
    "MaxLenPrompt",
    "Mode",
    "Model",
    "Names",
    "Normalisation",
    "Objective",
    "Order",
    "Out",
    "Preset",
    "Price",
    "PromptColumn",
    "Protocol",
    "Quiet",
    "RefitAt",
    "Rounds",
    "RunFolder",
    "Scorer",
    "Seed",
    "Set",
    "Strict",
    "Temperature",
    "Template",
    "Test",
    "Yes",
]

SETTINGS = (
    "budget",
    "price",
    "aim",
    "gate",
    "scorer",
    "follower",
    "k",
    "labeler",
    "batch",
    "annotators",
    "overlap",
    "ask_dir",
    "ask_mode",
    "audit",
    "min_per_class",
    "owned",
    "classes",
    "names",
    "features",
    "mode",
    "order",
    "rounds",
    "seed",
    "strict",
    "max_candidates",
    "prompt_column",
    "label_column",
    "format",
    "model",
    "adapt",
    "protocol",
    "template",
    "chat",
    "normalisation",
    "temperature",
    "max_len_prompt",
    "max_len_choice",
    "device",
    "dtype",
    "objective",
    "refit_at",
    "epochs",
)
"""The flags of `run` that are settings; those not typed are left to the config, preset and aim."""

_SPEND = "Labels and money"
_LEARN = "How it learns"
_DATA = "Reading files"
_MODEL = "A language model"
_OUTPUT = "Output"

RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run's folder, as `stacksl ls` lists it.")
]
File = Annotated[str, typer.Argument(metavar="FILE", help="A file of items.")]

Budget = Annotated[
    str | None,
    typer.Option(
        metavar="B",
        rich_help_panel=_SPEND,
        help="Labels to buy at most: 0.1 or 10% of the items (the default), 500, '$40' with a "
        "price, or all.",
    ),
]
Price = Annotated[
    str | None,
    typer.Option(
        metavar="P",
        rich_help_panel=_SPEND,
        help="What one label costs, such as 2.50; anna=3,ben=2 where people have prices of their "
        "own.",
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", rich_help_panel=_SPEND, help="Do not ask before buying.")
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", rich_help_panel=_SPEND, help="Print labels and cost and stop; write nothing."
    ),
]
Labeler = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_SPEND,
        help="Who answers: oracle (the file's own answers, the default), file (people, in sheets "
        "that any spreadsheet opens) or noisy:P.",
    ),
]
Classes = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=_DATA,
        help="The classes, one a line, each with a description if you like: for a file without "
        "labels.",
    ),
]
Names = Annotated[
    bool | None,
    typer.Option(
        "--names/--no-names",
        rich_help_panel=_LEARN,
        help="Let the names of classes and the unlabelled rest help the final model (the default).",
    ),
]
Aim = Annotated[
    str | None,
    typer.Option(
        metavar="AIM",
        rich_help_panel=_LEARN,
        help="What the labels are for: model (the final model, the default) or regret (the "
        "decisions on the way).",
    ),
]
Gate = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_LEARN,
        help="When to buy a label: margin, contested, random, first, llf "
        "(`stacksl ls gates` names all).",
    ),
]
Scorer = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_LEARN,
        help="What learns; `stacksl ls scorers` names them.",
    ),
]
Follower = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_LEARN,
        help="Who chooses the candidates shown: given (all, the default) or hard.",
    ),
]
K = Annotated[
    int | None,
    typer.Option(
        "--k", metavar="K", rich_help_panel=_LEARN, help="Negatives that the follower hard shows."
    ),
]
Features = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC",
        rich_help_panel=_LEARN,
        help="hashing (the default), sentences:minilm, or sentences:NAME_OR_DIR.",
    ),
]
Mode = Annotated[
    str | None,
    typer.Option(
        metavar="MODE",
        rich_help_panel=_LEARN,
        help="pool (all items are ranked, the default for a file of classes) or stream (each item "
        "seen once, in an order).",
    ),
]
Order = Annotated[
    str | None,
    typer.Option(
        metavar="ORDER", rich_help_panel=_LEARN, help="shuffled (by the seed, the default) or file."
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_LEARN,
        help="A named set of settings; `stacksl ls presets` names them.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=_LEARN,
        help="Settings from a TOML file, such as another run's run.toml; flags go before it.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        rich_help_panel=_LEARN,
        help="Any other setting, such as ridge=0.1; `run --dry-run --json` names them all.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(metavar="N", rich_help_panel=_LEARN, help="Fixes the order and every draw (0)."),
]
Test = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", rich_help_panel=_DATA, help="Items with answers, to test the model on."
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_DATA,
        help="How to read the file, where guessing from its content and name goes wrong.",
    ),
]
PromptColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", rich_help_panel=_DATA, help="The column that holds the text."),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", rich_help_panel=_DATA, help="The column that holds the answer."),
]
Rounds = Annotated[
    int | None,
    typer.Option(
        metavar="N", rich_help_panel=_DATA, help="Items to take from standard input (DATA is -)."
    ),
]
MaxCandidates = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=_DATA,
        help="Items with more candidates are set aside (2000).",
    ),
]
Strict = Annotated[
    bool | None,
    typer.Option("--strict", rich_help_panel=_DATA, help="Stop at the first unusable row."),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME_OR_DIR",
        rich_help_panel=_MODEL,
        help="The causal language model to adapt: a folder, a name on the hub, or sample.",
    ),
]
Adapt = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        rich_help_panel=_MODEL,
        help="What moves: lora (an adapter, the default with a model) or full (all weights). "
        "With neither DATA nor a model: the sample model on its own questions.",
    ),
]
Protocol = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_MODEL,
        help="What the model is asked for: option (a candidate's text, the default) or letter.",
    ),
]
Template = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        rich_help_panel=_MODEL,
        help="How a prompt is put: answer (the prompt, then 'Answer:', the default), plain, "
        "question, letters, or a file with {prompt} in it.",
    ),
]
Chat = Annotated[
    bool | None,
    typer.Option(
        "--chat", rich_help_panel=_MODEL, help="Wrap prompts in the tokenizer's chat template."
    ),
]
Normalisation = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_MODEL,
        help="How an option's log-likelihood becomes its score: token_mean (the default), sum, "
        "char_mean or pmi; a report shows all four.",
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        metavar="T",
        rich_help_panel=_MODEL,
        help="What scores are divided by; brought to the scale of sums where none is given.",
    ),
]
MaxLenPrompt = Annotated[
    int | None,
    typer.Option(
        metavar="N", rich_help_panel=_MODEL, help="Tokens of a prompt at most; its end is kept."
    ),
]
MaxLenChoice = Annotated[
    int | None,
    typer.Option(metavar="N", rich_help_panel=_MODEL, help="Tokens of an option at most."),
]
Device = Annotated[
    str | None,
    typer.Option(metavar="NAME", rich_help_panel=_MODEL, help="auto (the default), cpu, cuda."),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_MODEL,
        help="auto (float32, bfloat16 on a GPU), float32, bfloat16 or float16.",
    ),
]
Objective = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_MODEL,
        help="What a refit minimises: stacksl (the default), ce, ce-hard or sft; `stacksl ls "
        "objectives` explains them.",
    ),
]
RefitAt = Annotated[
    str | None,
    typer.Option(
        metavar="SHARES",
        rich_help_panel=_MODEL,
        help="Shares of the budget at which the adapter is trained again: 0.05,0.1,0.25,0.5,1.",
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(metavar="N", rich_help_panel=_MODEL, help="Passes of a refit over its labels."),
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", rich_help_panel=_OUTPUT, help="The run's folder (runs/DATE-NAME)."),
]
Json = Annotated[
    bool, typer.Option("--json", rich_help_panel=_OUTPUT, help="Print the result as JSON.")
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", rich_help_panel=_OUTPUT, help="No progress on stderr."),
]
Debug = Annotated[
    bool,
    typer.Option("--debug", rich_help_panel=_OUTPUT, help="Show the traceback of an error."),
]
