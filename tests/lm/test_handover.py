"""What leaves a run: the folder of an adapted model, and its card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stacksl.errors import RunError
from stacksl.files import formats
from stacksl.lm.export.folder import (
    Provenance,
    card_text,
    model_arguments,
    read_provenance,
    write_model,
)
from stacksl.models.adapted import AdaptedModel

from ..report.adapted_cases import adapted

RUN = adapted()
FACTS = replace(RUN, data=replace(RUN.data, name="stories | toy"), warnings=("one *odd* thing",))


def about_of(base: Any, **changes: Any) -> Provenance:
    facts: dict[str, Any] = {
        "name": base.name,
        "source": base.source,
        "revision": base.revision,
        "fingerprint": base.fingerprint,
        "stamp": base.weights.stamp,
        "license": base.license,
        "answer_format": "option",
        "template": "{prompt}\nAnswer:",
        "normalization": "token_mean",
        "pmi_context": "last_line",
        "temperature": 0.25,
        "positions": base.positions,
        "dtype": base.dtype,
        "classes": ("no", "yes"),
        "columns": {"prompt": "text"},
    }
    return Provenance(**facts | changes)


def test_what_is_no_model_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no adapted language model .* --adapt"):
        read_provenance(tmp_path)
    for number in (1, 99):
        (tmp_path / "lm.json").write_text(formats.to_json({formats.FORMAT: number}))
        with pytest.raises(RunError, match=f"{formats.LANGUAGE_MODEL}, .* {number}: use the stack"):
            read_provenance(tmp_path)
    for text in ("[]", "{", '{"sha256": "0"}'):
        (tmp_path / "lm.json").write_text(text)
        with pytest.raises(RunError, match="lm.json cannot be read .* or delete it"):
            read_provenance(tmp_path)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_flipped_bit_of_adapter_or_settings_is_refused(
    open_model: Any, tmp_path: Path, name: str
) -> None:
    pytest.importorskip("peft", reason="peft is not installed (the extra lm)")
    from stacksl.lm.settings import LoraSettings
    from stacksl.lm.training.adapters import Adapter

    adapter, other = Adapter(open_model(), LoraSettings(), seed=1), tmp_path / "model"
    about = about_of(adapter.base)
    write_model(other, adapter, about, FACTS)
    assert read_provenance(other) == about
    data = bytearray((other / name).read_bytes())
    data[len(data) // 2] ^= 1
    (other / name).write_bytes(data)
    with pytest.raises(RunError, match=rf"{name} is missing or does not match its SHA-256"):
        AdaptedModel.load(other)
    (other / name).unlink()
    with pytest.raises(RunError, match=rf"{name} is missing or does not match its SHA-256"):
        AdaptedModel.load(other)


TOY = Provenance(
    name="Org/Base-1B",
    source="Org/Base-1B",
    revision="0123abc",
    fingerprint="f" * 64,
    stamp="e" * 64,
    license="apache-2.0",
    answer_format="letter",
    template="```\n{prompt}\n{options}\nAnswer:",
    normalization="sum",
    pmi_context="template",
    temperature=1.0,
    dtype="bfloat16",
)
LOCAL = replace(TOY, name="../models/base", source="/models/base", revision=None, license=None)


def test_the_card_of_a_hub_model() -> None:
    card = card_text(TOY, FACTS)
    front = card.split("---")[1].strip().split("\n")
    assert front[:3] == [
        'base_model: "Org/Base-1B"', "library_name: peft", 'license: "apache-2.0"',
    ]  # fmt: skip
    assert "| Budget | 200 |" in card
    assert "| Left | 0 |" in card
    assert f"the query strategy {FACTS.method.gate} chose them" in card
    assert "| Accuracy by sum | 0.62 |\n| The same of the base | 0.38 |" in card
    assert "| Refits | 2 |\n| LoRA rank | 16 |" in card
    assert "stories \\| toy" in card
    assert "one \\*odd\\* thing" in card
    assert "model.merge_and_unload()" in card
    assert "absolute path" not in card, "that is for a base in a local folder"
    assert "`Org/Base-1B`, revision `0123abc`" in card
    assert card == card_text(replace(TOY, name="Org/Base-1B@0123abc"), FACTS)


def test_labels_of_an_audit_are_bought_labels() -> None:
    budget = replace(FACTS.budget, asked=150, answered=150, audit=40, left=10)
    card = card_text(TOY, replace(FACTS, budget=budget, test=None))
    assert "| Budget | 200 |\n| Bought | 190 |\n| Left | 10 |" in card
    assert "40 labels were kept to measure it" in card


def test_the_card_says_what_a_local_base_means() -> None:
    card = card_text(LOCAL, replace(FACTS, test=None))
    assert "absolute path, `/models/base`" in card
    assert 'base_model: "base"' in card
    assert "\nlicense:" not in card
    assert "is not stated" in card
    assert "accuracy was not measured" in card


def test_a_fence_in_a_template_does_not_end_the_card_s_own() -> None:
    assert "````text\n```\n{prompt}" in card_text(TOY, FACTS)
    nine = replace(TOY, template="`" * 9 + "\n{prompt}")
    assert f"{'`' * 10}text\n{'`' * 9}\n{{prompt}}\n{'`' * 10}\n" in card_text(nine, FACTS)


def test_the_card_holds_the_line_that_evaluates_it() -> None:
    card = card_text(TOY, FACTS, "stacksl_toy")
    assert "--tasks stacksl_toy --include_path lm_eval" in card
    assert "pretrained=Org/Base-1B,peft=.,revision=0123abc,dtype=bfloat16" in card


def test_what_lm_eval_is_told() -> None:
    assert model_arguments(LOCAL, "m") == {
        "pretrained": "/models/base", "peft": "m", "dtype": "bfloat16",
    }  # fmt: skip
    chat = model_arguments(replace(LOCAL, chat=True), "m")
    assert chat["add_bos_token"] is False
