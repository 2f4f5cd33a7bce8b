"""What readers of replies make of the forms that models use: ours, lm-eval's and Instructor's.

The replies are those of `tests/labelers/chat/reply_cases.py`: to questions with four options that
have letters, and to a question with 28 classes. Each reader gets one reply as it is.

- `stacksl` removes thoughts and reads the rest (`stacksl.labelers.chat.replies`).
- lm-eval's filters are used with the settings that its tasks give them, behind lm-eval's own
  removal of thoughts with the end token `</think>`: `multi_choice_regex` as `flexible-extract` of
  mmlu_flan_cot_zeroshot, and `regex` as `custom-extract` of mmlu_pro. Both read letters alone.
- Instructor gets the reply as a chat completion and returns a model of pydantic with one field, an
  enum of the letters or of the classes. `MD_JSON` looks for JSON in the reply; `JSON_SCHEMA`
  expects nothing else. It would ask again after a reply that it cannot use, which this does not.

A reply that names an option is read as that option (right), as another one (wrong), or as none
(lost). Of the replies that name none, those that a reader takes for an option are counted apart.
The peers are not installed with stacksl: `pip install lm-eval instructor`.

    python benchmarks/reply_filters.py --json benchmarks/results/reply_filters.json
    python benchmarks/reply_filters.py --from benchmarks/results/reply_filters.json
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
from collections.abc import Callable, Sequence
from enum import Enum
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from stacksl.labelers.chat.replies import LETTERS, place_in, thought_away
from stacksl.version import __version__

CASES = Path(__file__).parents[1] / "tests" / "labelers" / "chat" / "reply_cases.py"
MMLU_FLAN = {  # lm_eval/tasks/mmlu/flan_cot_zeroshot/_mmlu_flan_cot_zeroshot_template_yaml
    "regex_pattern": r"(\([A-Z]\))",
    "group_select": -1,
    "ignore_case": True,
    "ignore_punctuation": True,
}
MMLU_PRO = {"regex_pattern": r"answer is \(?([ABCDEFGHIJ])\)?"}  # tasks/mmlu_pro
MODES = ("MD_JSON", "JSON_SCHEMA")
PEERS = ("lm_eval", "instructor")

Reader = Callable[[str], int | None]
Replies = list[tuple[str, int | None]]
Row = dict[str, Any]


def cases() -> tuple[tuple[list[str], Replies], tuple[list[str], Replies]]:
    """Options and replies with the place that each names: with letters, and by texts."""
    spec = importlib.util.spec_from_file_location("reply_cases", CASES)
    assert spec is not None
    assert spec.loader is not None
    made: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    known = {name: place for place, name in enumerate(made.CLASSES)}
    texts = [(said, None if name is None else known[name]) for said, name in made.TEXTS]
    return (made.OPTIONS, made.LETTERS), (made.CLASSES, texts)


def ours(shown: Sequence[str], *, letters: bool) -> Reader:
    """The reader of a run."""

    def read(said: str) -> int | None:
        after = thought_away(said)
        return None if after is None else place_in(after, shown, letters=letters)

    return read


def filtered(name: str, settings: Row, shown: Sequence[str]) -> Reader:
    """One of lm-eval's filters, which give a letter, bare or in brackets."""
    from lm_eval.filters.extraction import MultiChoiceRegexFilter, RegexFilter
    from lm_eval.models.utils import postprocess_generated_text

    kinds = {"multi_choice_regex": MultiChoiceRegexFilter, "regex": RegexFilter}
    reader = kinds[name](**settings)

    def read(said: str) -> int | None:
        after = postprocess_generated_text(said, stop=None, think_end_token="</think>")
        ((found,),) = reader.apply([[after]], [{"choices": list(shown)}])
        place = LETTERS.find(found.strip("()").upper()) if len(found.strip("()")) == 1 else -1
        return place if 0 <= place < len(shown) else None

    return read


def validated(mode: str, shown: Sequence[str], *, letters: bool) -> Reader:
    """Instructor's patch of a function that returns the reply as a completion."""
    import instructor
    import pydantic
    from openai.types.chat import ChatCompletion

    values = list(LETTERS[: len(shown)]) if letters else list(shown)
    choice = Enum("choice", [(f"option_{n}", value) for n, value in enumerate(values)], type=str)
    answer = pydantic.create_model("Answer", answer=(choice, ...))

    def read(said: str) -> int | None:
        message = {"role": "assistant", "content": said}
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        whole = {"id": "1", "created": 1, "model": "m", "object": "chat.completion"}
        completion = ChatCompletion.model_validate({**whole, "choices": choices})
        create = instructor.patch(create=lambda **_: completion, mode=instructor.Mode[mode])
        asked = [{"role": "user", "content": "Which option is right?"}]
        try:
            reply = create(response_model=answer, messages=asked, model="m", max_retries=0)
        except instructor.core.InstructorRetryException:
            return None
        return values.index(reply.answer.value)

    return read


def counted(reader: str, form: str, read: Reader, replies: Replies) -> Row:
    """How a reader reads the replies of one form."""
    results = [(place, read(said)) for said, place in replies]
    named = [(place, own) for place, own in results if place is not None]
    right = sum(own == place for place, own in named)
    lost = sum(own is None for _, own in named)
    none = [own for place, own in results if place is None]
    return {
        "reader": reader,
        "form": form,
        "named": len(named),
        "right": right,
        "wrong": len(named) - right - lost,
        "lost": lost,
        "none": len(none),
        "taken": sum(own is not None for own in none),
    }


def rows_of_ours() -> list[Row]:
    """The rows of our own reader, which need no peer."""
    forms = zip(("letters", "texts"), cases(), strict=True)
    return [
        counted("stacksl", form, ours(shown, letters=form == "letters"), replies)
        for form, (shown, replies) in forms
    ]


def measure() -> Row:
    """Every reader on every form that it reads, with the versions."""
    logging.disable(logging.ERROR)  # Instructor logs each reply that it cannot use
    (options, lettered), (classes, texts) = cases()
    rows = rows_of_ours()
    for name, settings in (("multi_choice_regex", MMLU_FLAN), ("regex", MMLU_PRO)):
        shown = f"lm-eval, `{name}` of {'MMLU' if settings is MMLU_FLAN else 'MMLU-Pro'}"
        rows.append(counted(shown, "letters", filtered(name, settings, options), lettered))
    for mode in MODES:
        read = validated(mode, options, letters=True)
        rows.append(counted(f"Instructor, `{mode}`", "letters", read, lettered))
        read = validated(mode, classes, letters=False)
        rows.append(counted(f"Instructor, `{mode}`", "texts", read, texts))
    return {"versions": {"stacksl": __version__, **{p: metadata.version(p) for p in PEERS}}} | {
        "rows": rows
    }


def table(found: Row) -> str:
    """The rows, letters first."""
    lines = [
        "| replies | reader | right | wrong | lost | named none, but read as an option |",
        "|---|---|---|---|---|---|",
    ]
    for row in sorted(found["rows"], key=lambda row: row["form"]):
        lines.append(
            f"| {row['form']} | {row['reader']} | {row['right']} of {row['named']} |"
            f" {row['wrong']} | {row['lost']} | {row['taken']} of {row['none']} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, or print the table of a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where the numbers are written")
    parser.add_argument("--from", dest="source", type=Path, help="print the table of a file")
    words = parser.parse_args()
    missing = [peer for peer in PEERS if importlib.util.find_spec(peer) is None]
    if missing and words.source is None:
        parser.error(f"{' and '.join(missing)} should be installed: pip install lm-eval instructor")
    record = json.loads(words.source.read_text()) if words.source else measure()
    if words.json:
        words.json.write_text(json.dumps(record, indent=1) + "\n")
    print(table(record))


if __name__ == "__main__":
    main()
