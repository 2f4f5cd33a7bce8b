"""Every setting of a run, stated once: its type, default, meaning, and option.

The help of the command line is made from this module, so it imports nothing but pydantic.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from stacksl.runs.settings.marks import DATA, LEARN, MODEL, SPEND, Flag, Only

_PEOPLE, _MODEL, _SGD, _LLF = Only("people"), Only("model"), Only("sgd"), Only("llf")
_SERVER = Only("server")


class Settings(BaseModel):
    """Everything that decides what a run does. `None` means: chosen from the data or the scorer.

    The fields of the gate are settings, too: `settings.settings_type` adds them.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True
    )

    # what is bought
    budget: Annotated[str, Flag(SPEND, "B", common=True)] = Field(
        "0.1",
        description="Labels to buy at most: 0.1 or 10% of the items (the default), 500, '$40' with "
        "a price, or all.",
    )
    price: Annotated[str | None, Flag(SPEND, "P", common=True)] = Field(
        None,
        description="What one label costs, such as 2.50; anna=3,ben=2 where people have prices of "
        "their own.",
    )
    labeler: Annotated[str, Flag(SPEND, "NAME", common=True)] = Field(
        "oracle",
        description="Who answers: oracle (the file's own answers, the default), file (people, in "
        "sheets that any spreadsheet opens), openai:MODEL (a model at --url), hf:NAME_OR_DIR (a "
        "language model on this machine) or noisy:P.",
    )
    url: Annotated[str | None, Flag(SPEND, "URL"), _SERVER] = Field(
        None,
        description="The server of openai:MODEL, such as http://127.0.0.1:8000/v1; its "
        "key is read from STACKSL_API_KEY.",
    )
    allow_send: Annotated[bool, Flag(SPEND), _SERVER] = Field(
        False, description="Let the run send prompts and options to --url; --dry-run shows one."
    )
    label_template: Annotated[str | None, _SERVER] = Field(
        None, description="A file with {prompt} and {options}: how the model is asked for a label."
    )
    shots: Annotated[int, _SERVER] = Field(
        0, ge=0, le=32, description="Labelled examples in a prompt, owned or bought to train (0)."
    )
    input_price: Annotated[str | None, _SERVER] = Field(
        None, description="The price of a million tokens that the model reads, such as 0.15."
    )
    output_price: Annotated[str | None, _SERVER] = Field(
        None, description="The price of a million tokens that it writes."
    )
    answer_tokens: Annotated[int | None, _SERVER] = Field(
        None, ge=1, description="Tokens of its answer at most, thoughts included; by the options."
    )
    concurrency: Annotated[int, _SERVER] = Field(
        4, ge=1, le=64, description="Requests that are under way at a time (4)."
    )
    timeout: Annotated[float, _SERVER] = Field(
        60.0, gt=0, description="Seconds for a request and its answer (60)."
    )
    batch: Annotated[int, Flag(SPEND, "N", common=True)] = Field(
        25,
        ge=1,
        description="Purchases open in all: the rows of people's sheets, or what a pool ranks at a "
        "time (25).",
    )
    annotators: Annotated[str, Flag(SPEND, "A,B", common=True), _PEOPLE] = Field(
        "anna",
        description="Who fills in sheets, with --labeler file: each gets rows of their own.",
    )
    audit: Annotated[int | None, Flag(SPEND, "N", common=True)] = Field(
        None,
        ge=0,
        description="Labels of the budget that measure the final model and never train it; by the "
        "budget if absent, 0 for none.",
    )
    until: Annotated[str | None, Flag(SPEND, "gain=G/N")] = Field(
        None,
        description="Stop when the next N labels are to gain less than G, such as gain=0.01/100; "
        "or this command after a time, such as time=2h, until it is resumed.",
    )
    owned: Annotated[str | None, Flag(SPEND, "FILE", common=True)] = Field(
        None,
        description="Items with labels that you hold already: learnt first, outside the budget.",
    )
    model_labels: Annotated[str | None, Flag(SPEND, "FILE_OR_RUN")] = Field(
        None,
        description="A model's labels of a pool with classes, in a file or bought by another run, "
        "weighed by how often people agree.",
    )
    min_per_class: Annotated[int, Flag(SPEND, "M")] = Field(
        0,
        ge=0,
        description="Labels to buy of each class at least, as far as it can be found: at most half "
        "of each batch; needs --mode pool.",
    )
    overlap: Annotated[int, Flag(SPEND, "M"), _PEOPLE] = Field(
        0,
        ge=0,
        description="Rows that two annotators get, to see whether they agree; each answer is paid.",
    )
    ask_dir: Annotated[str | None, Flag(SPEND, "DIR"), _PEOPLE] = Field(
        None,
        description="Where sheets are written for colleagues; RUN/ask, private, if absent.",
    )
    ask_mode: Annotated[str, Flag(SPEND, "OCTAL"), _PEOPLE] = Field(
        "0600", description="Permissions of sheets, such as 0640 (0600); needs --ask-dir."
    )
    sheets: Annotated[Literal["xlsx", "csv"], Flag(SPEND, "FORMAT"), _PEOPLE] = Field(
        "xlsx",
        description="xlsx, with choice lists, or csv.",
    )

    # what is read
    classes: Annotated[str | None, Flag(DATA, "FILE", common=True)] = Field(
        None,
        description="The classes, one a line, each with a description and examples if you like: "
        "for a file without labels.",
    )
    bank: Annotated[str | None, Flag(DATA, "FILE", common=True)] = Field(
        None,
        description="A bank of answers that all items choose from: each is given the k nearest "
        "ones (64), to be ranked.",
    )
    prompt_column: Annotated[str | None, Flag(DATA, "NAME", common=True)] = Field(
        None, description="The column that holds the text."
    )
    label_column: Annotated[str | None, Flag(DATA, "NAME", common=True)] = Field(
        None, description="The column that holds the answer."
    )
    id_column: Annotated[str | None, Flag(DATA, "NAME", common=True)] = Field(
        None, description="The column that names each row, if it is not called id or ticket_id."
    )
    format: Annotated[str | None, Flag(DATA, "NAME", common=True)] = Field(
        None,
        description="How to read the file, where guessing from its content and name goes wrong.",
    )
    rounds: Annotated[int | None, Flag(DATA, "N")] = Field(
        None, ge=1, description="Items to take from standard input (DATA is -)."
    )
    max_candidates: Annotated[int, Flag(DATA, "N")] = Field(
        2000, ge=2, description="Items with more candidates are set aside (2000)."
    )
    strict: Annotated[bool, Flag(DATA)] = Field(
        False, description="Stop at the first unusable row."
    )

    # what is learnt
    features: Annotated[str, Flag(LEARN, "SPEC", common=True)] = Field(
        "hashing",
        description="sentences:minilm (the default where it is installed), hashing (the default "
        "elsewhere and for the sample), or sentences:NAME_OR_DIR.",
    )
    seed: Annotated[int, Flag(LEARN, "N", common=True)] = Field(
        0, ge=0, description="Fixes the order and every draw (0)."
    )
    mode: Annotated[Literal["stream", "pool"], Flag(LEARN, "MODE")] = Field(
        "stream",
        description="pool (all items are ranked, the default for a file of classes or with a "
        "language model) or stream (each item seen once, in an order).",
    )
    names: Annotated[bool, Flag(LEARN)] = Field(
        True,
        description="Let the names of classes and the unlabelled rest help the final model (the "
        "default).",
    )
    aim: Annotated[Literal["model", "regret"], Flag(LEARN, "AIM")] = Field(
        "model",
        description="What the labels are for: model (the final model, the default) or regret (the "
        "decisions on the way).",
    )
    gate: Annotated[str, Flag(LEARN, "NAME")] = Field(
        "margin",
        description="How labels are chosen: coverage (the default for fixed classes), margin (the "
        "default elsewhere), contested, random, first, llf (`stacksl ls gates` names all).",
    )
    scorer: Annotated[str | None, Flag(LEARN, "NAME")] = Field(
        None,
        description="What learns: ridge for fixed classes, newton for pairs, or sgd (`stacksl ls "
        "scorers`).",
    )
    order: Literal["shuffled", "file"] = Field("shuffled", description="Order of a stream (D19).")
    follower: str = Field(
        "given", description="Who chooses the candidates: given, hard (D13) or, of a bank, nearest."
    )
    k: int | None = Field(
        None, ge=1, description="Negatives that hard shows; answers that nearest retrieves (64)."
    )
    refit: bool = Field(True, description="Refit on all bought labels at the end (D15).")

    # confidence
    ridge: float = Field(1.0, ge=1e-6, description="Paper: 1e-3 to 1; 1 is the theory's floor.")
    delta: float = Field(0.05, gt=0, lt=1, description="Paper: 0.05 or 0.1.")
    noise: float = Field(1.0, ge=0, description="σ; 1 for labels (D5).")
    norm_bound: float = Field(1.0, ge=0, description="S, a bound on ‖θ*‖.")
    track: Literal["labelled", "all"] = Field("labelled", description="What enters V (D2).")
    radius_counts: Literal["learnt", "rounds"] = Field(
        "learnt", description="What the radius counts (D2)."
    )
    action: Literal["greedy", "ucb"] = Field("greedy", description="What is played (D6).")
    width_scale: float | None = Field(
        None, description="α of the gate score and of contested; σ√d if absent (D8)."
    )

    # the calibration of llf's c
    kappa: Annotated[float, _LLF] = Field(
        1.0, gt=0, description="c in median spreads; paper: 0.5 to 1.5."
    )
    warmup: Annotated[int | None, _LLF] = Field(
        None, ge=1, description="Items that calibrate c: max(1, min(500, T/20)) if absent."
    )

    # the update of sgd, and of a language model's refits
    learning_rate: Annotated[float, _SGD] = Field(
        0.1, gt=0, description="η of sgd; 2e-4 for a language model."
    )
    kl_weight: Annotated[float, _SGD] = Field(0.1, ge=0, description="λ of the KL term.")
    kl_target: Annotated[float | None, _SGD] = Field(
        None, gt=0, description="τ; adjusts kl_weight (D16)."
    )
    kl_on_skips: Annotated[bool, _SGD] = Field(
        False, description="The KL-only step on skipped rounds."
    )
    reference: Annotated[Literal["frozen", "ema", "previous"], _SGD] = Field(
        "frozen", description="What the KL term refers to (D3)."
    )
    ema_decay: Annotated[float, _SGD] = Field(
        0.99, ge=0, lt=1, description="Of the reference ema; paper: 0.9 to 0.999."
    )
    clip: Annotated[Literal["scale", "literal", "none"], _SGD] = Field(
        "scale", description="How a loss is clipped (D10)."
    )
    clip_level: Annotated[float | None, _SGD] = Field(
        None, gt=0, description="ρ in nats; the 95 % quantile if absent."
    )
    clip_multiple: Annotated[float | None, _SGD] = Field(
        None, gt=0, description="ρ as a multiple of the median."
    )
    inner_steps: Annotated[int, _SGD] = Field(
        1, ge=1, description="Gradient steps a label (sgd; D3, proximal)."
    )

    # a language model: how it is asked (D11)
    model: Annotated[str | None, Flag(MODEL, "NAME_OR_DIR", common=True)] = Field(
        None,
        description="The causal language model to adapt: a folder, a name on the hub, or sample.",
    )
    adapt: Annotated[Literal["lora"] | None, Flag(MODEL, "HOW", common=True)] = Field(
        None,
        description="Adapt a language model through lora. With neither DATA nor a model: the "
        "sample model on its own questions.",
    )
    template: Annotated[str | None, Flag(MODEL, "NAME|FILE", common=True), _MODEL] = Field(
        None,
        description="How a prompt is put: answer (the prompt, then 'Answer:', the default), plain, "
        "question, letters, or a file with {prompt} in it.",
    )
    chat: Annotated[bool, Flag(MODEL, common=True), _MODEL] = Field(
        False, description="Wrap prompts in the tokenizer's chat template."
    )
    protocol: Annotated[Literal["option", "letter"], Flag(MODEL, "NAME"), _MODEL] = Field(
        "option",
        description="What the model is asked for: option (a candidate's text, the default) or "
        "letter.",
    )
    normalisation: Annotated[
        Literal["token_mean", "sum", "char_mean", "pmi", "auto"], Flag(MODEL, "NAME"), _MODEL
    ] = Field(
        "token_mean",
        description="How an option's log-likelihood becomes its score: auto (a file's default: by "
        "--owned or the first 25 labels), token_mean, sum, char_mean or pmi; a report shows all.",
    )
    system: Annotated[str | None, _MODEL] = Field(
        None, description="The text of a system turn, with chat."
    )
    chat_arguments: Annotated[str | None, _MODEL] = Field(
        None, description="What the chat template takes besides, such as enable_thinking=false."
    )
    pmi_context: Annotated[
        Literal["template", "last_line", "empty"], Flag(MODEL, "NAME"), _MODEL
    ] = Field(
        "template",
        description="The premise of pmi: template (around no prompt, the default), last_line "
        "(around the prompt's last line) or empty.",
    )
    device: Annotated[str, Flag(MODEL, "NAME"), _MODEL] = Field(
        "auto", description="auto (the default), cpu, cuda or cuda:N."
    )
    dtype: Annotated[str, Flag(MODEL, "NAME"), _MODEL] = Field(
        "auto", description="auto: float32, or bfloat16 on a GPU; float16, nf4 or int8."
    )
    temperature: Annotated[float | None, _MODEL] = Field(
        None,
        gt=0,
        description="What scores are divided by; fitted if absent, first without labels.",
    )
    max_len_prompt: Annotated[int | None, _MODEL] = Field(
        None, ge=1, description="Tokens of a prompt at most; its end is kept."
    )
    max_len_choice: Annotated[int | None, _MODEL] = Field(
        None, ge=1, description="Tokens of an option at most."
    )
    path: Annotated[Literal["auto", "packed", "padded", "naive"], _MODEL] = Field(
        "auto", description="How options are scored; auto checks the fastest against naive."
    )
    batch_tokens: Annotated[int, _MODEL] = Field(
        4096, ge=1, description="Tokens of one forward pass, at most (4096)."
    )
    state_dim: Annotated[int, _MODEL] = Field(
        128, ge=1, description="Directions of option states kept (D12)."
    )

    # a language model: how it is trained
    objective: Annotated[
        Literal["sft", "ce", "ce-hard", "stacksl"], Flag(MODEL, "NAME"), _MODEL
    ] = Field(
        "ce",
        description="What a refit minimises: ce (the default), stacksl, ce-hard or sft; `stacksl "
        "ls objectives` explains them.",
    )
    refit_at: Annotated[str, Flag(MODEL, "SHARES"), _MODEL] = Field(
        "0.05,0.1,0.25,0.5,1",
        description="Shares of the budget at which the adapter is trained again: "
        "0.05,0.1,0.25,0.5,1; in the pool of a file 1.",
    )
    epochs: Annotated[int, Flag(MODEL, "N"), _MODEL] = Field(
        3, ge=1, description="Passes of a refit over its labels (3)."
    )
    lora_rank: Annotated[int, _MODEL] = Field(16, ge=1, description="The rank of the adapter (16).")
    lora_alpha: Annotated[float, _MODEL] = Field(
        32.0, gt=0, description="α of LoRA; its update is scaled by α/rank."
    )
    lora_dropout: Annotated[float, _MODEL] = Field(
        0.0, ge=0, lt=1, description="Dropout before LoRA."
    )
    lora_targets: Annotated[str | None, _MODEL] = Field(
        None,
        description="Layers, with commas between; every linear one but the output if absent.",
    )
    batch_size: Annotated[int, _MODEL] = Field(8, ge=1, description="Labels an optimiser's step.")
    warmup_share: Annotated[float, _MODEL] = Field(
        0.1, ge=0, lt=1, description="Share of the steps that warm up."
    )
    weight_decay: Annotated[float, _MODEL] = Field(0.01, ge=0, description="Of AdamW.")
    checkpointing: Annotated[bool, _MODEL] = Field(
        False, description="Drop activations and compute them again."
    )

    # the run itself
    checkpoint_every: int = Field(
        1000, ge=1, description="Rounds of a stream between two saves of the learner's arrays."
    )
    plugins: str | None = Field(
        None,
        description="Modules of your own with gates, labelers or features; commas between.",
    )

    @property
    def adapts(self) -> bool:
        """Whether a language model is adapted."""
        return self.model is not None or self.adapt is not None
