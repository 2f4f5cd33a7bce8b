"""The facts of a run that adapted a language model: what `Facts.language` holds.

As in `facts.py`, plain numbers and strings: shares are fractions in 0..1, losses and divergences
are in nats, memory in bytes, times in seconds, and a number that does not exist is None.
"""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from stacksl.report.quality import CONFIG, Named

STARTS_FROM = "Starts from the adapter"  # a row of `training`, which may name a folder


@dataclass(frozen=True, slots=True, config=CONFIG)
class BaseModel:
    """The model that was adapted.

    Attributes:
        name: as it was asked for; a folder by its own name.
        source: where its weights were read from: an absolute folder or a hub name.
        revision: the commit on the hub; None for a folder.
        license: as its README or configuration names it; None where neither does.
    """

    name: str
    source: str
    parameters: int
    revision: str | None = None
    license: str | None = None


@dataclass(frozen=True, slots=True, config=CONFIG)
class Scoring:
    """How an item is presented to the model, and how log-likelihoods become scores.

    Attributes:
        answer_format: `option` or `letter`; template: its text; chat: whether the base tokenizer's
            chat form is put around it.
        pmi_context: the premise of `pmi`.
        max_len_prompt, max_len_choice, positions: the limits in tokens; None for none.
    """

    answer_format: str
    template: str
    chat: bool
    normalization: str
    temperature: float
    max_len_prompt: int | None = None
    max_len_choice: int | None = None
    positions: int | None = None
    pmi_context: str = "empty"


@dataclass(frozen=True, slots=True, config=CONFIG)
class Computed:
    """On what the run was computed, and what it took.

    Attributes:
        device, dtype: as torch names them; path: how options were scored.
        threads: of a process.
        peak_memory: the most bytes that the process which finished the run ever held, all that
            ran in it before included; on a GPU, the most that its tensors held there.
        on_device: whether `peak_memory` is the GPU's.
        seconds: from the start of the run to its end; None where it was interrupted.
    """

    device: str
    dtype: str
    path: str
    threads: int
    processes: int
    peak_memory: int
    on_device: bool = False
    seconds: float | None = None


@dataclass(frozen=True, slots=True, config=CONFIG)
class AdapterRefit:
    """One refit, from the initial weights on all labels learned so far.

    Attributes:
        number: 1-based; labels: learned so far.
        loss, loss_clipped: the mean of a label in the last epoch, before and after clipping (nats).
        kl: mean KL(π ‖ π_ref) in the last epoch (nats); None where none was computed.
        clipped: share of all losses above the clip level.
    """

    number: int
    labels: int
    clipped: float
    seconds: float
    loss: float | None = None
    loss_clipped: float | None = None
    kl: float | None = None


@dataclass(frozen=True, slots=True, config=CONFIG)
class LanguageModel:
    """The language model that a run adapted.

    Attributes:
        trained: how many numbers a refit moves.
        training: the adapter's shape and what fixes a refit.
        refits: in order.
    """

    base: BaseModel
    trained: int
    scoring: Scoring
    computed: Computed
    training: tuple[Named, ...] = ()
    refits: tuple[AdapterRefit, ...] = ()
