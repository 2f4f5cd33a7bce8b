"""Label texts by the model in this folder, with onnxruntime, tokenizers and numpy.

python use.py "first text" "second text"     or one text a line on standard input
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


class Model:
    """The model of a folder, of which README.md says what it is and how good."""

    def __init__(self, folder: str | Path) -> None:
        self.about = json.loads(Path(folder, "stacksl.json").read_text(encoding="utf-8"))
        self.classes = self.about["classes"]
        self.tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # threads sleep
        self.session = onnxruntime.InferenceSession(Path(folder, "model.onnx"), options)

    def probabilities(self, data: Any) -> Any:
        """One row for each text and one column for each class; `data` as for `predict`."""
        if hasattr(data, "columns"):
            data = data["text"] if "text" in data.columns else None
        texts = [data] if isinstance(data, str) or not hasattr(data, "__iter__") else [*data]
        for number, text in enumerate(texts, 1):
            if not isinstance(text, str):
                raise ValueError(
                    "expected a text, a list of texts, or a frame with texts in its column 'text',"
                    f" got {text!r:.40} in place of text {number}: give a text, or leave it out"
                )
        texts = [str.encode(text, "utf-8", "replace").decode("utf-8") for text in texts]
        probabilities = np.zeros((len(texts), len(self.classes)))
        order = sorted(range(len(texts)), key=lambda n: len(texts[n]))  # little padding
        while order:
            size = 1 + 2048 // (1 + len(texts[order[-1]]))  # a long text has a batch of its own
            batch, order[-size:] = order[-size:], []
            read = self.tokenizer.encode_batch([texts[n] for n in batch])  # in parts
            rows = [(n, p) for n, text in enumerate(read) for p in [text, *text.overflowing][:16]]
            fed = {"ids": [p.ids for _, p in rows], "mask": [p.attention_mask for _, p in rows]}
            probabilities[batch] = self.session.run(None, fed | {"text": [n for n, _ in rows]})[0]
        return probabilities

    def predict(self, data: Any) -> list[dict[str, Any]]:
        """The best class of each text: of one, of a list, or of the column `text` of a frame."""
        rows, least = [], self.about["abstain_below"]
        for policy in self.probabilities(data):
            best = int(policy.argmax())
            row = {"choice": self.classes[best], "index": best, "probability": float(policy[best])}
            rows.append(row if least is None else {**row, "abstain": row["probability"] < least})
        return rows


_load_pyfunc = Model  # the name that MLflow calls

if __name__ == "__main__":
    lines = (line.decode(errors="replace").rstrip("\r\n") for line in sys.stdin.buffer)
    for row in Model(Path(__file__).parent).predict(sys.argv[1:] or [*lines]):
        print(f"{row['choice']}\t{row['probability']:.6f}")
