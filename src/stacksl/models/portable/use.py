"""Label texts by the model in this folder.

python use.py "first text" "second text"     or one text a line on standard input

It needs onnxruntime, tokenizers and numpy. README.md says what the model is and how good it is.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

PARTS = 16  # of a long text that are read, each of 256 tokens at most
CHARACTERS = 2048  # of texts that are read at a time: more is no faster


class Model:
    """The model of a folder."""

    def __init__(self, folder: Path) -> None:
        self.about = json.loads((folder / "stacksl.json").read_text(encoding="utf-8"))
        self.classes = self.about["classes"]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # threads sleep
        self.session = onnxruntime.InferenceSession(folder / "model.onnx", options)

    def read(self, texts: list[str]) -> dict[str, Any]:
        """Tokens and mask of the parts of texts, and how many tokens of a text a part has."""
        found = [[each, *each.overflowing][:PARTS] for each in self.tokenizer.encode_batch(texts)]
        parts = [part for text in found for part in text]
        ids = np.array([part.ids for part in parts], np.int32)
        mask = np.array([part.attention_mask for part in parts], np.int32)
        tokens = np.maximum(mask.sum(axis=1) - 2, 1)  # without those that begin and end a part
        owner = np.repeat(np.eye(len(texts)), [*map(len, found)], axis=1)
        return {"ids": ids, "mask": mask, "parts": owner * tokens}

    def probabilities(self, texts: list[str]) -> Any:
        """One row for each text and one column for each class."""
        texts = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        found = np.zeros((len(texts), len(self.classes)))
        order = sorted(range(len(texts)), key=lambda n: len(texts[n]))  # little padding
        while order:
            size = max(1, CHARACTERS // max(1, len(texts[order[-1]])))
            order, batch = order[:-size], order[-size:]
            found[batch] = self.session.run(None, self.read([texts[n] for n in batch]))[0]
        return found

    def predict(self, data: Any) -> list[dict[str, Any]]:
        """The best class of each text of a list, or of the column `text` of a data frame."""
        texts = [str(text) for text in (data["text"] if hasattr(data, "columns") else data)]
        rows, least = [], self.about["abstain_below"]
        for policy in self.probabilities(texts):
            best = int(np.argmax(policy))
            row = {"choice": self.classes[best], "index": best, "probability": float(policy[best])}
            rows.append(row if least is None else {**row, "abstain": row["probability"] < least})
        return rows


def _load_pyfunc(path: str) -> Model:
    """What MLflow calls to load the folder."""
    return Model(Path(path))


if __name__ == "__main__":
    lines = (line.decode(errors="replace").rstrip("\r\n") for line in sys.stdin.buffer)
    for row in Model(Path(__file__).parent).predict(sys.argv[1:] or [*lines]):
        print(f"{row['choice']}\t{row['probability']:.6f}")
