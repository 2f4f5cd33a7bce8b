"""What an adapted language model was made from and for, and its card, the folder's README.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stacksl import __version__
from stacksl.lm.export.tasks import command
from stacksl.lm.loading import Weights
from stacksl.lm.prompt.format import AnswerFormat, PmiContext, PromptFormat
from stacksl.lm.prompt.tokens import Limits
from stacksl.lm.quantized import unquantized
from stacksl.lm.scoring.normalize import Normalization
from stacksl.report.adapted import scoring_rows
from stacksl.report.facts import Facts
from stacksl.report.html import environment
from stacksl.report.language import Scoring
from stacksl.types import copied


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
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


def model_arguments(about: Provenance, folder: Path | str) -> dict[str, str | bool]:
    """What lm-eval's `--model_args` takes to score with the adapted model of `folder`."""
    arguments: dict[str, str | bool] = {"pretrained": about.source, "peft": str(folder)}
    if about.revision is not None:
        arguments["revision"] = about.revision
    arguments["dtype"] = unquantized(about.dtype)
    if about.chat:  # the chat template has written every special token
        arguments["add_bos_token"] = False
    return arguments


def card_text(about: Provenance, facts: Facts | None, tasks: Sequence[str] = ()) -> str:
    """The card, in Markdown with front matter; equal for equal arguments.

    Args:
        tasks: the names of lm-eval's tasks in the folder `lm_eval` next to the card.
    """
    scoring: dict[str, Any] = {**scoring_rows(copied(Scoring, about)), "Computed in": about.dtype}
    if about.classes is not None:
        scoring["Classes"] = len(about.classes)
    training: dict[str, Any] = {}
    if facts is not None and facts.language is not None:
        training = {"Refits": len(facts.language.refits)}
        training |= {row.name: row.value for row in facts.language.training}
    pmi = "acc_mutual_info" if about.pmi_context == "empty" else "acc_pmi"
    metrics = {"sum": "acc", "char_mean": "acc_norm", "token_mean": "acc_token_mean", "pmi": pmi}
    markdown = (
        environment()
        .get_template("adapter.md.j2")
        .render(
            about=about,
            facts=facts,
            dtype=unquantized(about.dtype),
            local=Path(about.source).is_absolute(),
            scoring=scoring,
            command=command(model_arguments(about, "."), tasks, "lm_eval") if tasks else "",
            metric=metrics[about.normalization],
            training=training,
            cell=_cell,
            code=lambda text: f"`{' '.join(text.split()).replace('`', '')}`",
        )
    )
    return markdown.rstrip("\n") + "\n"


def _cell(value: Any) -> str:
    """A value on one line, with the marks that would format it escaped."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "".join(f"\\{c}" if c in "\\`*_[]<>|" else c for c in " ".join(str(value).split()))
