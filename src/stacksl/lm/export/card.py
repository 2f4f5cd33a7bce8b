"""What an adapted language model was made from and for, and its card, the folder's README.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stacksl import __version__
from stacksl.lm.export.tasks import command
from stacksl.lm.loading import Weights
from stacksl.lm.prompt.format import AnswerFormat, PmiContext, PromptFormat
from stacksl.lm.prompt.tokens import Limits
from stacksl.lm.quantized import QUANTIZED, unquantized
from stacksl.lm.scoring.normalize import Normalization
from stacksl.report.facts import Facts
from stacksl.report.language import Scoring
from stacksl.report.sentences import scoring_rows
from stacksl.types import copied


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What an adapted model was made from and for: the content of `lm.json`.

    Attributes:
        name, source, revision: the base as it was named, and where `from_pretrained` finds it: a
            hub name or an absolute folder.
        fingerprint, stamp: of the base's weights, in hex (`lm.loading.Weights`).
        license: the base's, where it says one.
        template: the text itself.
        pmi_context: the premise of `pmi`.
        max_len_prompt, max_len_choice, positions: the limits in tokens, None for none.
        dtype: the base's in the run.
        classes: the fixed label set; None where items have their own options.
        columns: how a file of items is read.
        verdict: which scoring path was checked, and with what.
        stacksl: the version that wrote the file.
    """

    name: str
    source: str
    fingerprint: str
    stamp: str
    answer_format: AnswerFormat
    template: str
    normalization: Normalization
    temperature: float
    dtype: str
    pmi_context: PmiContext
    chat: bool = False
    system: str | None = None
    chat_arguments: Mapping[str, Any] = field(default_factory=dict)
    revision: str | None = None
    license: str | None = None
    max_len_prompt: int | None = None
    max_len_choice: int | None = None
    positions: int | None = None
    classes: tuple[str, ...] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    verdict: str = ""
    stacksl: str = __version__

    @property
    def base(self) -> str:
        """What to load the base by: `name` where it is one of ours, which moves with us."""
        commit = f"@{self.revision}" if self.revision else ""
        return self.name if self.name == "sample" else self.source + commit

    @property
    def shown_name(self) -> str:
        """What readers call the base: a folder by its own name, since hubs know no path.

        A hub's name is without the revision, which is a field of its own.
        """
        source = Path(self.source)
        return source.name if source.is_absolute() else self.name.partition("@")[0]

    @property
    def weights(self) -> Weights:
        """What identifies the base's weights."""
        return Weights(self.fingerprint, self.stamp)

    @property
    def limits(self) -> Limits:
        """How long token rows may be."""
        return Limits(self.max_len_prompt, self.max_len_choice, self.positions)

    def form(self, tokenizer: Any) -> PromptFormat:
        """How items are put to the model; `tokenizer` is the base's, for its chat form."""
        return copied(PromptFormat, self, chat=tokenizer if self.chat else None)


def model_arguments(about: About, folder: Path | str) -> dict[str, str | bool]:
    """What lm-eval's `--model_args` takes to score with the adapted model of `folder`."""
    found: dict[str, str | bool] = {"pretrained": about.source, "peft": str(folder)}
    if about.revision is not None:
        found["revision"] = about.revision
    found["dtype"] = unquantized(about.dtype)
    if about.chat:  # the chat template has written every special token
        found["add_bos_token"] = False
    return found


def card_text(
    about: About, facts: Facts | None, tasks: Sequence[str] = (), *, merged: bool = False
) -> str:
    """The card, in Markdown with front matter; equal for equal arguments.

    Args:
        about: what the weights were made from and for.
        facts: of the run, if they are known.
        tasks: the names of lm-eval's tasks in the folder `lm_eval` next to the card.
        merged: whether base and adapter are one model here.
    """
    parts = (
        _front_matter(about, merged),
        _opening(about, facts, merged),
        _loading(about, merged),
        _scoring(about),
        *(() if facts is None else _measured(facts)),
        _evaluating(about, tasks, merged),
        *(() if facts is None else (_table("Training", _training(facts)),)),
        _limits(about, () if facts is None else facts.warnings),
    )
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _front_matter(about: About, merged: bool) -> list[str]:
    library = "transformers" if merged else "peft"
    lines = ["---", f"base_model: {json.dumps(about.shown_name)}", f"library_name: {library}"]
    if about.license is not None:
        lines.append(f"license: {json.dumps(about.license)}")
    tags = ["lora", "label-budget", "active-learning", "multiple-choice", "stacksl"]
    return [*lines, "tags:", *(f"- {tag}" for tag in tags), "---"]


def _opening(about: About, facts: Facts | None, merged: bool) -> list[str]:
    what = "A LoRA adapter added into the weights of" if merged else "A LoRA adapter for"
    base = _code(about.shown_name)
    base += f", revision {_code(about.revision)}" if about.revision else ""
    data = "" if facts is None else f" to {_plain(facts.data.name)}"
    lines = [
        f"# {_plain(about.shown_name)}, adapted{data}",
        "",
        f"{what} {base}, made by stacksl {about.stacksl} with a fixed number of labels."
        " It ranks the candidate answers of an item by their likelihood.",
        "",
    ]
    license = f"is {_plain(about.license)}" if about.license else "is not stated in its folder"
    return [*lines, f"The license of the base {license}; it holds for what is made from it, too."]


def _loading(about: About, merged: bool) -> list[str]:
    library, name = ("peft", "AutoPeftModelForCausalLM")
    if merged:
        library, name = ("transformers", "AutoModelForCausalLM")
    lines = [
        "## Load",
        "",
        "Nothing of stacksl is needed. In this folder:",
        "",
        "```python",
        f"from {library} import {name}",
        "",
        f'model = {name}.from_pretrained(".", dtype="{unquantized(about.dtype)}")',
        "```",
    ]
    if merged:
        return lines
    lines += ["", "The tokenizer is the base's."]
    if Path(about.source).is_absolute():
        lines += [
            "",
            "The base is in a local folder, and PEFT keeps its absolute path,"
            f" {_code(about.source)}, in `adapter_config.json`: on another machine,"
            " or after it was moved, correct `base_model_name_or_path` there.",
        ]
    lines += ["", "`stacksl export RUN --merge OUT` writes base and adapter as one model, which"]
    return [*lines, "names no path: the portable form."]


def _scoring(about: About) -> list[str]:
    fence = "`" * (3 if "```" not in about.template else 8)
    rows: dict[str, Any] = {**scoring_rows(copied(Scoring, about)), "Computed in": about.dtype}
    if about.classes is not None:
        rows["Classes"] = len(about.classes)
    lines = _table("Prompt and score", rows)
    return [*lines, "", "The template:", "", f"{fence}text", *about.template.split("\n"), fence]


def _measured(facts: Facts) -> Iterator[list[str]]:
    """The labels, and the result."""
    budget, language, test = facts.budget, facts.language, facts.test
    assert language is not None
    labels = {"Budget": budget.labels, "Bought": budget.spent, "Left": budget.left}
    objective = {row.name: row.value for row in language.training if row.name == "Objective"}
    yield _table("Label budget", labels | {"Gate": facts.method.gate} | objective)
    if test is None:
        kept = f"{budget.audit} labels were kept to measure it: the run's report has its accuracy."
        yield ["## Result", "", kept if budget.audit else "Its accuracy was not measured."]
        return
    found = {"Test items": test.n, f"Accuracy by {language.scoring.normalization}": test.accuracy}
    yield _table("Result", {**found, "The same of the base": facts.curve[0].accuracy})


def _training(facts: Facts) -> dict[str, Any]:
    assert facts.language is not None
    rows = {row.name: row.value for row in facts.language.training}
    return {"Refits": len(facts.language.refits), **rows}


def _evaluating(about: About, tasks: Sequence[str], merged: bool) -> list[str]:
    lines = ["## Evaluate with lm-eval", ""]
    if tasks and not merged:
        line = command(model_arguments(about, "."), tasks, "lm_eval")
        lines += ["In this folder:", "", "```sh", line, "```", ""]
    own = {"sum": "acc", "char_mean": "acc_norm", "pmi": "acc_pmi", "token_mean": "acc_token_mean"}
    if about.pmi_context == "empty":
        own["pmi"] = "acc_mutual_info"
    return [
        *lines,
        f"The run's own score is `{own[about.normalization]}`.",
        "`stacksl export RUN --task FILE OUT` writes any file of items with answers as a task and",
        "prints the command. `acc` is the score `sum`, `acc_norm` is `char_mean`,"
        " `acc_mutual_info` is `pmi` behind",
        "no premise (behind another one it is `acc_pmi`),",
        "and `acc_token_mean` comes with the task. In float32 the predictions are the same item by",
        "item where no limit cut an item.",
    ]


def _limits(about: About, warnings: Iterable[str]) -> list[str]:
    quantized = [
        f"- It was trained and measured over a base quantized to {about.dtype} by bitsandbytes;"
        " over the base as it is, scores differ."
    ]
    if about.dtype not in QUANTIZED:
        quantized = []
    return [
        "## Limits",
        "",
        "- The labels it learned from are not a uniform sample: a gate chose them.",
        "- It ranks given candidates; it was not trained to write text.",
        *quantized,
        *(f"- {_plain(warning)}" for warning in warnings),
    ]


def _table(title: str, rows: Mapping[str, Any]) -> list[str]:
    head = [f"## {title}", "", _row(["", ""]), _row(["---", "---"])]
    return [*head, *(_row([name, value]) for name, value in rows.items())]


def _row(cells: Iterable[Any]) -> str:
    return f"| {' | '.join(_cell(each) for each in cells)} |"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return _plain(str(value)) if value != "---" else "---"


def _plain(text: str) -> str:
    """`text` on one line, with the marks that would format it escaped."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>|" else c for c in " ".join(str(text).split()))


def _code(text: str) -> str:
    return f"`{' '.join(text.split()).replace('`', '')}`"
