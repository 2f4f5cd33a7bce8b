"""Items as a task of lm-eval, so that a model can be evaluated without this package.

Two tasks over the same items. `stacksl_NAME` has lm-eval's own metrics: `acc` is our `sum`,
`acc_norm` our `char_mean`, `acc_mutual_info` our `pmi`. `stacksl_NAME_token_mean` has the fourth
through a function in `metrics.py`, since lm-eval counts no tokens: they are counted here, by the
model's own tokenizer, and kept in `items.jsonl`. That file is found next to `metrics.py`, so the
folder may be moved, and lm-eval started anywhere.

lm-eval's `acc_mutual_info` has an empty premise. Where the run's own score is `pmi` behind another
one, a third task, `stacksl_NAME_pmi`, has each item twice, behind its prompt and behind its
premise, and `acc_pmi` is the accuracy by what the answers gain.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stacksl.errors import DataError, RunError
from stacksl.lm.prompt.format import Prompt, PromptFormat
from stacksl.lm.prompt.tokens import Limits, Tokenizing, cuts_of
from stacksl.types import Item
from stacksl.version import __version__

METRICS = '''"""What the tasks in this folder need: their items, and the token mean."""

import json
from pathlib import Path


def items(**settings):
    """The items in this folder, wherever lm-eval was started."""
    import datasets

    lines = Path(__file__).with_name("items.jsonl").read_text(encoding="utf-8").split("\\n")
    return {"test": datasets.Dataset.from_list([json.loads(line) for line in lines if line])}


def pmi_items(**settings):
    """Each item behind its prompt, and then behind its premise."""
    import datasets

    ways, rows = ("prompt", "premise"), items()["test"]
    both = [{**row, "prompt": row[way], "way": way} for row in rows for way in ways]
    return {"test": datasets.Dataset.from_list(both)}


def pmi(doc, results):
    """What `pmi_accuracy` needs of an item or of its premise."""
    return {"acc_pmi": (doc["id"], doc["way"], [total for total, _ in results], doc["answer"])}


def pmi_accuracy(rows):
    """The share of items whose answer gains most over the premise."""
    alone = {name: sums for name, way, sums, _ in rows if way == "premise"}
    right = []
    for name, way, sums, answer in rows:
        if way == "prompt":
            gains = [a - b for a, b in zip(sums, alone[name], strict=True)]
            right.append(gains.index(max(gains)) == answer)
    return sum(right) / len(right)


def token_mean(doc, results):
    """Whether the option with the greatest log-likelihood a token is the answer."""
    scores = [total / tokens for (total, _), tokens in zip(results, doc["tokens"], strict=True)]
    return {"acc_token_mean": float(scores.index(max(scores)) == doc["answer"])}
'''
"""The text of `metrics.py`."""

_TASK = """\
# {count} items with answers, written by stacksl {version}; items.jsonl and metrics.py belong to it
task: {name}
custom_dataset: !function metrics.{source}
test_split: test
output_type: multiple_choice
doc_to_text: prompt
doc_to_choice: choices
doc_to_target: answer
target_delimiter: {delimiter}
num_fewshot: 0
{metrics}metadata:
  version: 1.0
"""
_METRIC = """\
  - metric: {name}
    aggregation: {aggregation}
    higher_is_better: true
"""
_OWN = ("acc", "acc_norm", "acc_mutual_info")


@dataclass(frozen=True, slots=True)
class Task:
    """A task as it was written.

    Attributes:
        folder: what `--include_path` takes.
        unanswered: items left out because no answer is known.
        cuts: what the run's limits cut, if anything; lm-eval reads those items whole, so that its
            numbers for them are not ours.
    """

    folder: Path
    names: tuple[str, ...]
    items: int
    unanswered: int
    cuts: str | None


def write_task(
    folder: Path,
    name: str,
    items: Sequence[Item],
    answers: Mapping[str, int],
    form: PromptFormat,
    tokenizer: Any,
    limits: Limits | None = None,
    normalization: str = "token_mean",
) -> Task:
    """Write the task NAME of `items` into `folder`: YAML files, `items.jsonl`, `metrics.py`.

    Prompts are rendered here, chat form included, so lm-eval needs no template of its own.

    Args:
        folder: made where it is absent; files of the same names are overwritten.
        name: becomes part of the tasks' names; what is no letter, digit or underscore becomes `_`.
        items, form, tokenizer: what to ask, and how the run does.
        answers: item id to the index of its gold candidate.
        limits: the run's, only to count what they cut.
        normalization: of the run's own score.

    Raises:
        DataError: no item has an answer, or two options of an item are alike.
        RunError: the folder cannot be written.
    """
    asked = [item for item in items if item.id in answers]
    if not asked:
        raise DataError(
            f"a task needs items with answers, and none of the {len(items)} items has one: give a"
            " file with answers"
        )
    prompts = [form.render(item) for item in asked]
    alone = [form.render_alone(item).text for item in asked]
    rows = list(_rows(prompts, alone, answers, tokenizer))
    label = f"stacksl_{re.sub('[^0-9A-Za-z_]+', '_', name).strip('_') or 'items'}"
    names: tuple[str, ...] = (label, f"{label}_token_mean")
    texts = {
        "metrics.py": METRICS,
        "items.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows),
        f"{names[0]}.yaml": _yaml(names[0], rows, prompts[0], _OWN),
        f"{names[1]}.yaml": _yaml(names[1], rows, prompts[0], ("acc_token_mean",)),
    }
    if normalization == "pmi" and form.pmi_context != "empty":
        names = (*names, f"{label}_pmi")
        texts[f"{names[2]}.yaml"] = _yaml(names[2], rows, prompts[0], ("acc_pmi",))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
    except OSError as fault:
        raise RunError(
            f"cannot write the task into {folder}: {fault.strerror or fault}; give another folder"
        ) from fault
    cuts = cuts_of(Tokenizing(tokenizer, limits).items(prompts))
    return Task(folder, names, len(rows), len(items) - len(asked), cuts)


def command(arguments: Mapping[str, str | bool], names: Sequence[str], folder: Path | str) -> str:
    """The line that scores a model on the tasks `names`; a shell takes it as it is.

    `arguments` are what `--model_args` takes; see `card.model_arguments`.
    """
    values = list(arguments.values())
    plain = all(isinstance(value, bool) or re.fullmatch(r"[\w./:@+-]+", value) for value in values)
    given = (
        ",".join(f"{key}={value}" for key, value in arguments.items())
        if plain
        else json.dumps(dict(arguments))  # a comma or a space in a path would end it
    )
    words = ["lm_eval", "--model", "hf", "--model_args", given, "--tasks", ",".join(names)]
    return shlex.join([*words, "--include_path", str(folder)])


def _rows(
    prompts: Sequence[Prompt], alone: Sequence[str], answers: Mapping[str, int], tokenizer: Any
) -> Iterator[dict[str, Any]]:
    """A line of `items.jsonl` an item; `tokens` are those of each option with its delimiter."""
    tokens = Tokenizing(tokenizer).items(prompts)
    for prompt, premise, row in zip(prompts, alone, tokens, strict=True):
        pairs = zip(prompt.continuations, prompt.lengths, strict=True)
        yield {
            "id": prompt.id,
            "prompt": prompt.text,
            "premise": premise,
            "choices": [text[len(text) - length :] for text, length in pairs],
            "tokens": [len(option) for option in row.options],
            "answer": answers[prompt.id],
        }


def _yaml(name: str, rows: Sequence[object], prompt: Prompt, metrics: Sequence[str]) -> str:
    first, source, aggregation = prompt.continuations[0], "items", "mean"
    if metrics == ("acc_pmi",):
        source, aggregation = "pmi_items", "!function metrics.pmi_accuracy"
    listed = "".join(_METRIC.format(name=metric, aggregation=aggregation) for metric in metrics)
    listed = f"metric_list:\n{listed}"
    if metrics != _OWN:
        function = metrics[0].removeprefix("acc_")
        listed = f"process_results: !function metrics.{function}\n{listed}"
    return _TASK.format(
        source=source,
        count=len(rows),
        version=__version__,
        name=name,
        delimiter=json.dumps(first[: len(first) - prompt.lengths[0]]),
        metrics=listed,
    )
