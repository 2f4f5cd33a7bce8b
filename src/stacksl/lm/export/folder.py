"""The export of an adapted language model: a folder that PEFT loads, with its card, README.md.

`lm.json` next to the weights says what they were made from and for: the base, the prompt, the
scores. The weights load without this package; `lm.json` is for scoring with them as the run did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stacksl import __version__
from stacksl.errors import RunError
from stacksl.features.weights import file_hash
from stacksl.files import formats
from stacksl.files.atomic import replace_file
from stacksl.lm.export.tasks import command, write_task
from stacksl.lm.loading import Weights
from stacksl.lm.quantized import unquantized
from stacksl.lm.scoring.normalize import Normalization
from stacksl.lm.settings import Asking
from stacksl.report.facts import Facts
from stacksl.report.html import environment
from stacksl.report.wording import count, number

if TYPE_CHECKING:
    from stacksl.data import Dataset
    from stacksl.lm.training.adapters import Adapter

ABOUT = "lm.json"
FILES = "files"  # of lm.json: the SHA-256 of each file that decides a score, by name
_REMEDY = "restore the folder from a copy, or delete it and `stacksl resume` makes it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance(Asking):
    """What an adapted model was made from and for: the content of `lm.json`.

    Attributes:
        name, source, revision: the base as it was named, and where `from_pretrained` finds it: a
            hub name or an absolute folder.
        fingerprint, stamp: of the base's weights, in hex (`lm.loading.Weights`).
        license: the base's, where it says one.
        positions: the most tokens that the base takes, None for any number.
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
    normalization: Normalization
    temperature: float
    dtype: str
    revision: str | None = None
    license: str | None = None
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


def write_model(
    folder: Path,
    adapter: Adapter,
    provenance: Provenance,
    facts: Facts,
    test: Dataset | None = None,
) -> None:
    """Write weights, card and `lm.json` into `folder`; `lm.json` last.

    Args:
        folder: absent, empty, or a model's, which is then replaced.
        facts: of the run, for the card.
        test: items with answers to leave as a task of lm-eval in the folder's `lm_eval`.

    Raises:
        RunError: if the folder cannot be written.
    """
    adapter.save(folder)
    task = ""
    try:
        if test is not None:
            tokenizer = adapter.base.tokenizer
            task = write_task(
                folder / "lm_eval",
                test.name,
                test.items,
                test.answers,
                provenance.form(tokenizer),
                tokenizer,
                provenance.normalization,
            )
        replace_file(folder / "README.md", card_text(provenance, facts, task).encode())
        table = {formats.FORMAT: formats.LANGUAGE_MODEL, **asdict(provenance)}
        description = formats.to_json({**table, FILES: _digests(folder)})
        replace_file(folder / ABOUT, description.encode())
    except OSError as fault:
        raise RunError(
            f"cannot write the model into {folder}: {fault.strerror or fault}; free some space or"
            " give another folder"
        ) from fault


def read_provenance(folder: Path) -> Provenance:
    """What `write_model` wrote down in `folder`.

    Raises:
        RunError: there is none, it is damaged, or another version of stacksl wrote it.
    """
    table = _described(folder)
    del table[FILES]
    classes = table.pop("classes")
    return Provenance(classes=None if classes is None else tuple(classes), **table)


def expect_whole(folder: Path) -> None:
    """Hold that weights and settings in `folder` are those that `write_model` left.

    Raises:
        RunError: a file is missing or has other content.
    """
    recorded, actual = _described(folder)[FILES], _digests(folder)
    for name, digest in recorded.items():
        if actual.get(name) != digest:
            raise RunError(
                f"{folder / name} is missing or does not match its SHA-256 in {ABOUT}: {_REMEDY}"
            )


def _described(folder: Path) -> dict[str, Any]:
    path = folder / ABOUT
    try:
        return formats.read(path, formats.LANGUAGE_MODEL)
    except FileNotFoundError:
        raise RunError(
            f"{folder} holds no adapted language model (it has no {ABOUT}): give a run made with"
            " --adapt that has finished"
        ) from None
    except (OSError, ValueError) as fault:
        raise RunError(f"{path} cannot be read ({fault}): {_REMEDY}") from fault


def _digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file of `folder`, but for card and description."""
    files = (path for path in sorted(folder.iterdir()) if path.is_file())
    return {path.name: file_hash(path) for path in files if path.name not in ("README.md", ABOUT)}


# The card ------------------------------------------------------------------------------------


def model_arguments(provenance: Provenance, folder: str) -> dict[str, str | bool]:
    """What lm-eval's `--model_args` takes to score with the adapted model of `folder`."""
    arguments: dict[str, str | bool] = {"pretrained": provenance.source, "peft": folder}
    if provenance.revision is not None:
        arguments["revision"] = provenance.revision
    arguments["dtype"] = unquantized(provenance.dtype)
    if provenance.chat:  # the chat template has written every special token
        arguments["add_bos_token"] = False
    return arguments


def card_text(provenance: Provenance, facts: Facts, task: str = "") -> str:
    """The card, in Markdown with front matter; equal for equal arguments.

    Args:
        task: the name of lm-eval's task in the folder `lm_eval` next to the card.
    """
    scoring: dict[str, Any] = {**scoring_rows(provenance), "Computed in": provenance.dtype}
    if provenance.classes is not None:
        scoring["Classes"] = len(provenance.classes)
    training: dict[str, Any] = {}
    if facts.language is not None:
        training = {"Refits": len(facts.language.refits)}
        training |= {row.name: row.value for row in facts.language.training}
    markdown = (
        environment()
        .get_template("adapter.md.j2")
        .render(
            about=provenance,
            facts=facts,
            dtype=unquantized(provenance.dtype),
            local=Path(provenance.source).is_absolute(),
            scoring=scoring,
            command=command(model_arguments(provenance, "."), task, "lm_eval") if task else "",
            training=training,
        )
    )
    return markdown.rstrip("\n") + "\n"


def scoring_rows(provenance: Provenance) -> dict[str, str]:
    """How items are presented to a model, and how their likelihoods become scores."""
    prompt, option = provenance.max_len_prompt, provenance.max_len_choice
    positions = provenance.positions
    return {
        "Answer format": provenance.answer_format,
        "Chat form": "the base tokenizer's" if provenance.chat else "none",
        "Normalization": provenance.normalization,
        "Premise of pmi": provenance.pmi_context,
        "Temperature": number(provenance.temperature, 4),
        "Tokens of a prompt, at most": count(prompt) if prompt else "as many as the model takes",
        "Tokens of an option, at most": count(option) if option else "no limit",
        "Positions of the model": count(positions) if positions else "not stated",
    }
