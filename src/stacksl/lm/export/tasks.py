"""Items as a task of lm-eval, so that a model can be evaluated without this package.

The task has one metric, `accuracy`: by the run's own score. lm-eval counts no tokens, so what the
log-likelihood of an option is divided by is kept in `items.jsonl`. For `pmi` each item is there
twice, behind its prompt and behind its premise, whose score is taken off. The file is found next to
`metrics.py`, so the folder may be moved, and lm-eval started anywhere.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stacksl.lm.prompt.format import PromptFormat
from stacksl.lm.prompt.tokens import Tokenizing
from stacksl.lm.scoring.normalize import Normalization, divisors
from stacksl.types import Item
from stacksl.version import __version__

METRICS = '''"""What the task in this folder needs: its items, and the run's own score."""

import json
from pathlib import Path


def items(**settings):
    """The items in this folder, wherever lm-eval was started."""
    import datasets

    lines = Path(__file__).with_name("items.jsonl").read_text(encoding="utf-8").split("\\n")
    return {"test": datasets.Dataset.from_list([json.loads(line) for line in lines if line])}


def score(doc, results):
    """What `accuracy` needs of an item, or of its premise."""
    scores = [total / by for (total, _), by in zip(results, doc["divisors"], strict=True)]
    return {"accuracy": (doc["id"], doc["premise"], scores, doc["answer"])}


def accuracy(rows):
    """The share of items whose answer has the highest score, less that of the premise if any."""
    alone = {name: scores for name, premise, scores, _ in rows if premise}
    right = []
    for name, premise, scores, answer in rows:
        if not premise:
            less = alone.get(name, [0.0] * len(scores))
            gains = [a - b for a, b in zip(scores, less, strict=True)]
            right.append(gains.index(max(gains)) == answer)
    return sum(right) / len(right)
'''
"""The text of `metrics.py`."""

_TASK = """\
# {count} items with answers, written by stacksl {version}; items.jsonl and metrics.py belong to it
task: {name}
custom_dataset: !function metrics.items
test_split: test
output_type: multiple_choice
doc_to_text: prompt
doc_to_choice: choices
doc_to_target: answer
target_delimiter: {delimiter}
num_fewshot: 0
process_results: !function metrics.score
metric_list:
  - metric: accuracy
    aggregation: !function metrics.accuracy
    higher_is_better: true
metadata:
  version: 1.0
"""


def write_task(
    folder: Path,
    name: str,
    items: Sequence[Item],
    answers: Mapping[str, int],
    form: PromptFormat,
    tokenizer: Any,
    normalization: Normalization,
) -> str:
    """Write a task of `items` into `folder`: a YAML file, `items.jsonl`, `metrics.py`; its name.

    Prompts are rendered here, chat form included, so lm-eval needs no template of its own. It reads
    them whole: its numbers for an item that the run's limits cut are not ours.

    Args:
        folder: made where it is absent; files of the same names are overwritten.
        name: becomes part of the task's name; what is no letter, digit or underscore becomes `_`.
        items, form, tokenizer: what to ask, and how the run does.
        answers: item id to the index of its gold candidate.
        normalization: of the run's own score.

    Raises:
        OSError: the folder cannot be written.
    """
    label = f"stacksl_{re.sub('[^0-9A-Za-z_]+', '_', name).strip('_') or 'items'}"
    rows = _rows(items, answers, form, tokenizer, normalization)
    delimiter = json.dumps("" if form.chat else " ")
    texts = {
        "metrics.py": METRICS,
        "items.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows),
        f"{label}.yaml": _TASK.format(
            count=len(items), version=__version__, name=label, delimiter=delimiter
        ),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8", newline="\n")
    return label


def command(arguments: Mapping[str, str | bool], name: str, folder: str) -> str:
    """The line that scores a model on the task `name`; a shell takes it as it is.

    `arguments` are what `--model_args` takes; see `folder.model_arguments`.
    """
    values = list(arguments.values())
    plain = all(isinstance(value, bool) or re.fullmatch(r"[\w./:@+-]+", value) for value in values)
    model_args = (
        ",".join(f"{key}={value}" for key, value in arguments.items())
        if plain
        else json.dumps(dict(arguments))  # a comma or a space in a path would end it
    )
    call = ["lm_eval", "--model", "hf", "--model_args", model_args, "--tasks", name]
    return shlex.join([*call, "--include_path", folder])


def _rows(
    items: Sequence[Item],
    answers: Mapping[str, int],
    form: PromptFormat,
    tokenizer: Any,
    normalization: Normalization,
) -> Iterator[dict[str, Any]]:
    """The lines of `items.jsonl`: each item and, for `pmi`, its premise."""
    ways = [form.render, form.render_alone] if normalization == "pmi" else [form.render]
    for premise, render in enumerate(ways):
        prompts = [render(item) for item in items]
        tokens = Tokenizing(tokenizer).items(prompts)
        for prompt, row in zip(prompts, tokens, strict=True):
            pairs = zip(prompt.continuations, prompt.lengths, strict=True)
            yield {
                "id": prompt.id,
                "premise": bool(premise),
                "prompt": prompt.text,
                "choices": [text[len(text) - length :] for text, length in pairs],
                "divisors": divisors(row, normalization),
                "answer": answers[prompt.id],
            }
