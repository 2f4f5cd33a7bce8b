"""Every setting of a run, stated once: its type, default, meaning and range, in groups.

What everybody sets is in `Settings` itself. The rest is in the group of what it belongs to, and its
name begins with the group's: `gate.floor`, `lm.lora_rank`. A group checks what its settings must be
to each other; `conflicts` compares groups.

The help of the command line is made from this module, so it imports nothing heavy.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Self, TypeAlias, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.fields import FieldInfo

from stacksl.errors import SettingsError


def _checked(module: str, name: str) -> AfterValidator:
    """A validator that refuses a text in the words of the function `name` of a module."""

    def validator(text: str) -> str:
        try:
            getattr(import_module(module), name)(text)
        except SettingsError as fault:
            raise ValueError(str(fault)) from fault
        return text

    return AfterValidator(validator)


_BUDGET = "stacksl.runs.settings.budget"
Price: TypeAlias = Annotated[str, _checked(_BUDGET, "micro_units")]


def _joined(several: object, field: ValidationInfo) -> object:
    """Texts or numbers with commas between, of a list of them, as Python and TOML have it."""
    if not isinstance(several, list | tuple):
        return several
    parts = [str(part) for part in several if isinstance(part, str | int | float)]
    if not parts or len(parts) < len(several) or "," in "".join(parts):
        raise ValueError(f"{field.field_name} should be names, each a text without a comma")
    return ",".join(parts)


def _paired(arguments: object) -> object:
    """NAME=VALUE with commas between, of a dict."""
    if not isinstance(arguments, Mapping):
        return arguments
    try:
        return ",".join(f"{name}={json.dumps(value)}" for name, value in arguments.items())
    except TypeError as fault:
        raise ValueError("lm.chat_arguments should have values that JSON has") from fault


def _by_role(columns: object) -> object:
    """ROLE=COLUMN with commas between, of a dict."""
    if not isinstance(columns, Mapping):
        return columns
    return ",".join(f"{role}={name}" for role, name in columns.items())


Names: TypeAlias = Annotated[str, BeforeValidator(_joined)]
ByRole: TypeAlias = Annotated[
    str, BeforeValidator(_by_role), _checked("stacksl.data.columns", "roles_of")
]


class Group(BaseModel):
    """Settings that belong together."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        coerce_numbers_to_str=True,
        use_attribute_docstrings=True,
    )

    def __init__(self, **values: Any) -> None:
        """Raises a `SettingsError` with a sentence on each value that is wrong."""
        for name, value in values.items():
            if isinstance(value, os.PathLike):
                values[name] = os.fspath(value)
        try:
            super().__init__(**values)
        except ValidationError as fault:
            hint = ": correct that or leave it out" if isinstance(self, Settings) else ""
            raise SettingsError("; ".join(map(self.sentence, fault.errors())) + hint) from fault

    @staticmethod
    def sentence(error: Any, group: str = "", unknown: Any = "unknown setting '{}'".format) -> str:
        """What is wrong with a value of a `group`, whose name ends in a dot, or `unknown` in it."""
        if error["type"] == "value_error":
            return str(error["ctx"]["error"])
        name = f"{group}{error['loc'][0]}"
        if error["type"] == "extra_forbidden":
            return str(unknown(name))
        expected = error["msg"].partition(",")[0].removeprefix("Input should be ")
        if error["type"] == "string_pattern_mismatch":
            expected = "permissions that let the owner read and write, such as 0640"
        return f"{name} must be {expected}, not {error['input']!r}"


class Columns(Group):
    """The columns of a file."""

    prompt: str | None = None
    """The column that holds the text."""
    label: str | None = None
    """The column that holds the answer."""
    id: str | None = None
    """The column that names each row, if it is not called id or ticket_id."""


class Read(Group):
    """How a file is read."""

    format: str | None = None
    """The format of the file, if it is not recognized by its content and name."""
    worksheet: str | None = None
    """The sheet of a workbook (.xlsx), if several sheets have rows."""
    header: bool | None = None
    """Whether the first row of a CSV file or a workbook has the names of the columns; guessed if
    absent."""
    max_candidates: int = Field(default=2000, ge=2)
    """Items with more candidates are unusable (2000)."""


class Sheets(Group):
    """The sheets of people who answer by file."""

    format: Literal["xlsx", "csv"] = "xlsx"
    """The sheets of people: xlsx, with choice lists, or csv."""
    dir: str | None = None
    """Where sheets are written for colleagues; RUN/ask, private, if absent."""
    mode: str = Field(default="0600", pattern=r"^0?[67][0-7]{2}$")
    """The permissions of sheets, such as 0640 (0600 by default); needs --ask-dir."""
    overlap: int = Field(default=0, ge=0)
    """How many rows two annotators get, to see whether they agree; each answer is paid."""

    @model_validator(mode="after")
    def _shared(self) -> Self:
        if self.mode.lstrip("0") != "600" and self.dir is None:
            raise ValueError(
                "sheets.mode opens sheets to others, and a run's folder is private: give sheets.dir"
            )
        return self


class Server(Group):
    """A model on a server that answers."""

    url: Annotated[str, _checked("stacksl.labelers.chat.endpoint", "address")] | None = None
    """The server of openai:MODEL, such as http://127.0.0.1:8000/v1; its key is read from
    STACKSL_API_KEY."""
    allow_send: bool = False
    """Let the run send prompts and options to --url; --dry-run shows one."""
    label_template: str | None = None
    """A file with {prompt} and {options}: how the model on a server is asked for a label."""
    shots: int = Field(default=0, ge=0, le=32)
    """How many labeled examples a prompt to the server has, owned or bought to train (0)."""
    input_price: Price | None = None
    """The price of a million tokens that the model on a server reads, such as 0.15."""
    output_price: Price | None = None
    """The price of a million tokens that the model on a server writes."""
    answer_tokens: int | None = Field(default=None, ge=1)
    """The most tokens of an answer of the server, with its reasoning; set by the options if
    absent."""
    batch_api: bool = False
    """Ask in batches at half the price, by OpenAI's batch API; the run waits for them."""
    concurrency: int = Field(default=4, ge=1, le=64)
    """How many requests to the server are open at the same time (4)."""
    timeout: float = Field(default=60.0, gt=0)
    """The time limit of a request to the server, in seconds (60)."""

    @model_validator(mode="after")
    def _both_prices(self) -> Self:
        if (self.input_price is None) != (self.output_price is None):
            raise ValueError(
                "server.input_price and server.output_price go together: give both, 0 where one is"
                " free"
            )
        return self


class Gate(Group):
    """How labels are chosen: the settings of every gate, and those of the one that is named."""

    name: str = "margin"
    """How labels are chosen: coverage (the default for fixed classes), margin (the default
    elsewhere), information, random, first, llf (`stacksl ls gates` names all)."""

    @model_validator(mode="after")
    def _makes_a_gate(self) -> Self:
        from stacksl.core.gates.registry import gate_type, make_gate

        if (kind := gate_type(self.name)) is not None:
            names = {field.name for field in fields(kind)}
            values = {name: value for name, value in self if name in names and value is not None}
            try:
                make_gate(kind.name, **values)
            except SettingsError as fault:
                raise ValueError(str(fault)) from fault
        return self


class CalibratedGate(Gate):
    """The gate `llf`, whose constant c is calibrated."""

    kappa: float = Field(default=1.0, gt=0)
    """The constant c of the gate llf, in medians of the spreads that calibrate it; the paper has
    0.5 to 1.5."""
    warmup: int | None = Field(default=None, ge=1)
    """How many items calibrate c of the gate llf: max(1, min(500, T/20)) of T items if absent."""


def gate_group(name: object) -> type[Gate]:
    """The settings of the gate called `name`: its fields are settings of the group.

    Absent values of theirs are None, which means the gate's own default.
    """
    from stacksl.core.gates.registry import gate_type

    kind: Any = gate_type(name) if isinstance(name, str) else None
    return Gate if kind is None else _with_fields_of(kind)


@cache
def _with_fields_of(kind: Any) -> type[Gate]:
    from pydantic import create_model

    base = CalibratedGate if kind.name == "llf" else Gate
    hints, docs = get_type_hints(kind), documented(kind)
    definitions: dict[str, Any] = {
        field.name: (Optional[hints[field.name]], Field(None, description=docs.get(field.name, "")))  # noqa: UP045
        for field in fields(kind)
        if field.name not in base.model_fields
    }
    group: type[Gate] = create_model("Gate", __base__=base, **definitions)
    return group


def documented(kind: type[Any]) -> dict[str, str]:
    """What the docstring of `kind` says of each of its arguments, under `Args:`."""
    listed = (getdoc(kind) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
    arguments = re.findall(r"^    (\w+): (.+(?:\n {5,}.+)*)", listed, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in arguments}


class Scorer(Group):
    """What learns, and how it is confident."""

    name: str | None = None
    """What learns: ridge for fixed classes, newton for pairs, or sgd (`stacksl ls scorers`)."""
    ridge: float = Field(default=1.0, ge=1e-6)
    """λ: V is λI before the first label; the paper has 1e-3 to 1, and the theory needs 1."""
    delta: float = Field(default=0.05, gt=0, lt=1)
    """δ: confidence sets hold with probability 1 − δ; the paper has 0.05 or 0.1."""
    noise: float = Field(default=1.0, ge=0)
    """σ, the sub-Gaussian scale of the noise; 1 for labels."""
    norm_bound: float = Field(default=1.0, ge=0)
    """S, a bound on the norm of the unknown parameter θ*."""
    covariance_rows: Literal["labeled", "all"] = "labeled"
    """The rounds whose rows enter V: those with a label, or all, as the paper prints it
    (docs/paper.md, D2)."""
    radius_counts: Literal["learned", "rounds"] = "learned"
    """The n of the confidence radius: the number of labels learned (learned), or of rounds so far,
    as the paper prints it (docs/paper.md, D2)."""
    action: Literal["greedy", "ucb"] = "greedy"
    """The candidate that is chosen: the one with the largest score (greedy), or with the largest
    upper confidence bound (ucb; docs/paper.md, D6)."""


class Update(Group):
    """How a label changes the policy: a step of the scorer sgd, a refit of a language model."""

    learning_rate: float = Field(default=0.1, gt=0, le=100)
    """The learning rate: of the steps of sgd (0.1), or the peak of AdamW's for a language model
    (2e-4)."""
    kl_weight: float = Field(default=0.1, ge=0)
    """λ of the term that keeps the policy near its reference by KL."""
    kl_on_skips: bool = False
    """Whether a skipped round of a stream makes a step with only the KL term."""
    reference: Literal["frozen", "previous"] = "frozen"
    """What the KL term refers to: the policy at the start (frozen) or before the step (previous;
    docs/paper.md, D3)."""
    clip: Literal["scale", "literal", "none"] = "scale"
    """How the loss of a label is clipped at ρ: its gradient is scaled (scale), the loss is cut as
    the paper prints it (literal), or nothing is clipped (none; docs/paper.md, D10)."""
    clip_level: float | None = Field(default=None, gt=0)
    """ρ in nats, above which losses are clipped; the 95% quantile of the last losses if absent."""


class LanguageModel(Group):
    """A language model: how it is asked, read and trained."""

    model: str | None = None
    """The causal language model to adapt: a folder, a name on the hub (or NAME@REVISION), or
    sample."""
    adapter: str | None = None
    """An adapter of PEFT to start from, a folder or a name on the hub; it says base and shape."""
    adapt: Literal["lora"] | None = None
    """How to adapt the language model: lora. Without DATA and model, the sample model is adapted to
    its own questions."""
    template: str | None = None
    """The template of a prompt: answer (the prompt, then 'Answer:', the default), plain, question,
    letters, or a file with {prompt} in it."""
    chat: bool = False
    """Wrap prompts in the tokenizer's chat template."""
    answer_format: Literal["option", "letter"] = "option"
    """What the model is asked for: option (a candidate's text, the default) or letter."""
    normalization: Literal["token_mean", "sum", "char_mean", "pmi", "auto"] = "token_mean"
    """How an option's log-likelihood becomes its score: auto (a file's default: by --owned or the
    first 25 labels), token_mean, sum, char_mean or pmi."""
    system: str | None = None
    """The text of a system turn, with --chat."""
    chat_arguments: Annotated[str, BeforeValidator(_paired)] | None = None
    """Further arguments of the chat template, such as enable_thinking=false."""
    pmi_context: Literal["template", "last_line", "empty"] = "template"
    """The premise of pmi: template (the template without the prompt, the default), last_line (with
    the prompt's last line) or empty."""
    device: str = "auto"
    """The device of the model: auto (the default), cpu, cuda or cuda:N."""
    dtype: str = "auto"
    """The dtype of the weights: auto (float32, or bfloat16 on a GPU), float16 or nf4."""
    temperature: float | None = Field(default=None, gt=0)
    """The number that scores are divided by; fitted if absent, at first without labels."""
    max_len_prompt: int | None = Field(default=None, ge=1)
    """The most tokens of a prompt; a longer one loses its beginning."""
    max_len_choice: int | None = Field(default=None, ge=1)
    """The most tokens of an option; a longer one loses its end."""
    batch_tokens: int = Field(default=4096, ge=1)
    """The most tokens of one forward pass (4096)."""
    state_dim: int = Field(default=128, ge=1)
    """How many dimensions of the states of options are the features of a head that ranks
    (docs/paper.md, D12)."""
    objective: Literal["sft", "ce", "ce-hard", "stacksl"] = "ce"
    """What a refit minimizes: ce (the default), stacksl, ce-hard or sft; `stacksl ls objectives`
    explains them."""
    refit_at: Annotated[Names, _checked(_BUDGET, "refit_shares")] = "0.05,0.1,0.25,0.5,1"
    """The shares of the budget at which the adapter is trained: 0.05,0.1,0.25,0.5,1, and 1 for the
    pool of a file."""
    epochs: int = Field(default=3, ge=1)
    """How many passes a refit makes over its labels (3)."""
    lora_rank: int = Field(default=16, ge=1)
    """The rank of the adapter (16)."""
    lora_alpha: float = Field(default=32.0, gt=0)
    """α of LoRA: the adapter's update is scaled by α/rank."""
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    """The share of the adapter's inputs that training leaves out."""
    lora_targets: Names | None = None
    """The layers that are adapted, separated by commas; all linear layers but the output if
    absent."""
    batch_size: int = Field(default=8, ge=1)
    """How many labels a step of the optimizer has (8)."""
    warmup_share: float = Field(default=0.1, ge=0, lt=1)
    """The share of a refit's steps in which the learning rate rises to its peak."""
    weight_decay: float = Field(default=0.01, ge=0)
    """The weight decay of AdamW in a refit."""
    gradient_checkpointing: bool = False
    """Drop activations in training and compute them a second time, which saves memory."""


class Settings(Group):
    """Everything that decides what a run does. `None` means: chosen from the data or the scorer."""

    # what is bought
    budget: str = "0.1"
    """The most labels: 10% of rows (default), 0.1, 500, '$40' or all."""
    price: str | None = None
    """The price of a label, such as 2.50."""
    labeler: str = "oracle"
    """Who answers: oracle (the file's own answers, the default), file (people), openai:MODEL (at
    --url) or hf:NAME (on this machine)."""
    open_questions: int = Field(default=25, ge=1)
    """How many questions are open at the same time, in people's sheets or in a batch (25)."""
    annotators: Names = "anna"
    """The people who fill in sheets, with --labeler file."""
    audit: int | None = Field(default=None, ge=0)
    """How many of the labels only measure the final model; 0 for none."""
    second_look: bool | None = None
    """Ask further people about the audited rows on which people and model differ, and about some on
    which they agree, so that people's errors do not count as the model's; the default with two
    people and 150 labels."""
    stop_when: str | None = None
    """Stop earlier: right=97% (of the table, by people and model), accuracy=0.9 (by the audit),
    gain=0.01/100 (the next 100 labels gain less) or time=2h (until you resume)."""
    owned: str | None = None
    """Labels that you already have, learned first and outside the budget: a file, or the column of
    the data that has them in some of its rows."""
    model_labels: str | None = None
    """A column of the data whose labels people judge and correct; or a file or a run with a
    model's labels, which are weighted by how often people agree."""
    sheets: Sheets = Field(default_factory=Sheets.model_construct)
    server: Server = Field(default_factory=Server.model_construct)

    # what is read
    classes: str | None = None
    """The classes, one per line, with examples; or a run."""
    columns: Columns = Field(default_factory=Columns.model_construct)
    owned_columns: ByRole | None = None
    """The columns of the file of owned labels where the data has others, such as
    text=message,label=topic."""
    test_columns: ByRole | None = None
    """The columns of the test file where the data has others, such as text=message,label=topic."""
    read: Read = Field(default_factory=Read.model_construct)

    # what is learned
    features: str = "hashing"
    """How texts become vectors: sentences:minilm+tokens (the default if minilm is installed),
    hashing, or sentences:NAME_OR_DIR."""
    seed: int = Field(default=0, ge=0)
    """The seed of all random choices; 0, or drawn if people answer."""
    mode: Literal["stream", "pool"] = "stream"
    """pool (all items are ranked; the default for a file with fixed classes or a language model) or
    stream (items come one by one, and are decided at once)."""
    class_names: bool = True
    """Let the names of classes and the unlabeled items help the final model (the default)."""
    order: Literal["shuffled", "file"] = "shuffled"
    """The order of a stream's items: shuffled by the seed, or as the file has them."""
    top_k: int | None = Field(default=None, ge=1)
    """Present an item with the K + 1 candidates that score highest; with all of them if absent
    (docs/paper.md, D13)."""
    refit: bool = True
    """Whether the final model is fitted to convergence on all bought labels, or is the online
    policy."""
    gate: Gate = Field(default_factory=Gate.model_construct)
    scorer: Scorer = Field(default_factory=Scorer.model_construct)
    update: Update = Field(default_factory=Update.model_construct)
    lm: LanguageModel = Field(default_factory=LanguageModel.model_construct)

    # the run itself
    checkpoint_every: int = Field(default=1000, ge=1)
    """After how many rounds a stream saves the learner's arrays."""
    plugins: Names | None = None
    """Your own modules with gates, labelers or features, separated by commas."""

    @property
    def adapts(self) -> bool:
        """Whether a language model is adapted."""
        return any(value is not None for value in (self.lm.model, self.lm.adapt, self.lm.adapter))

    @property
    def people(self) -> list[str]:
        """The annotators, where people answer by file; else nobody."""
        names = self.annotators.split(",") if self.labeler == "file" else []
        return [name.strip() for name in names]

    @property
    def several_people(self) -> bool:
        """Whether two people answer or more, so that their errors can be measured."""
        return len(self.people) > 1

    @property
    def labeler_kind(self) -> str:
        """Who answers: the name of the labeler without what follows a colon."""
        return self.labeler.partition(":")[0]

    @property
    def column(self) -> str | None:
        """The column of the data whose labels are judged: `model_labels` that are no place."""
        return _no_place(self.model_labels)

    @property
    def owned_column(self) -> str | None:
        """The column of the data with labels that are held: `owned` that is no place."""
        return _no_place(self.owned)

    @property
    def accuracy_mark(self) -> float | None:
        """The accuracy that is to be shown before the run stops; None for another rule."""
        return self._stops_at("accuracy")

    @property
    def promised_share(self) -> float | None:
        """The share of the table's rows that is to be right; None for another rule."""
        return self._stops_at("right")

    def _stops_at(self, rule: str) -> float | None:
        from stacksl.runs.settings.budget import stop_rule

        kind, value, _ = stop_rule(self.stop_when)
        return value if kind == rule else None

    def flat(self) -> dict[str, Any]:
        """Every setting by its dotted name, in their order."""
        values: dict[str, Any] = {}
        for name, value in self:
            if name in GROUPS:
                values |= {f"{name}.{key}": field_value for key, field_value in value}
            else:
                values[name] = value
        return values

    def replaced(self, values: Mapping[str, Any]) -> Settings:
        """These settings with other `values` by dotted name, which are not checked."""
        changes: dict[str, Any] = {}
        for name, value in values.items():
            group, _, key = name.rpartition(".")
            if group:
                group_settings = changes.get(group, getattr(self, group))
                changes[group] = group_settings.model_copy(update={key: value})
            else:
                changes[name] = value
        return self.model_copy(update=changes)


GROUPS: Mapping[str, type[Group]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Group)
}
"""The groups of settings by name."""


_ALL: Mapping[str, type[Group]] = {"": Settings, **GROUPS}
FIELDS: Mapping[str, FieldInfo] = {
    f"{group}.{name}" if group else name: field
    for group, kind in _ALL.items()
    for name, field in kind.model_fields.items()
    if name not in GROUPS
}
"""The settings of every run by dotted name."""


def _no_place(source: str | None) -> str | None:
    """`source`, if it is no absolute path, as all those of files are in a run."""
    return None if source is None or Path(source).is_absolute() else source


def help_text(field: FieldInfo) -> str:
    """What a setting is, in one line."""
    return " ".join((field.description or "").split())


def descriptions() -> dict[str, str]:
    """What every setting is, by dotted name; those of all gates among them."""
    from stacksl.core.gates.registry import GATES

    gate_names: dict[str, dict[str, list[str]]] = {}  # by setting and by its text
    for gate in GATES:
        for name, field in gate_group(gate).model_fields.items():
            if name not in Gate.model_fields:
                texts = gate_names.setdefault(f"gate.{name}", {})
                texts.setdefault(help_text(field).rstrip("."), []).append(gate)
    gate_texts = {
        name: "; ".join(
            f"{text} (gate {', '.join(gates)})".lstrip() for text, gates in by_text.items()
        )
        for name, by_text in sorted(gate_names.items())
    }
    return {name: help_text(field) for name, field in FIELDS.items()} | gate_texts
