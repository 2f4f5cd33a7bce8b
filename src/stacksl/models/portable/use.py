"""Label texts by the model in this folder, with onnxruntime, tokenizers and numpy.

python use.py "first text" "second text"     or one text a line on standard input
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


class Model:
    """The model of a folder, of which README.md says what it is and how good."""

    def __init__(self, folder: str | Path) -> None:
        self.about = json.loads(Path(folder, "stacksl.json").read_text(encoding="utf-8"))
        self.tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # threads sleep
        self.session = onnxruntime.InferenceSession(Path(folder, "model.onnx"), options)

    def probabilities(self, data: object) -> np.ndarray:
        """A row per text, a column per class of `about["classes"]`; `data` as for `predict`."""
        texts = np.atleast_1d(np.asarray(getattr(data, "text", data), object)).tolist()
        if odd := [n for n, t in enumerate(texts) if not isinstance(t, str) or not t.strip()]:
            raise ValueError(f"give texts or a column 'text', item {odd[0]} is empty or no text")
        probabilities = np.zeros((len(texts), len(self.about["classes"])))
        order = sorted(range(len(texts)), key=lambda n: len(texts[n]))  # little padding
        while order:
            size = 1 + 2048 // (1 + len(texts[order[-1]]))  # a long text has a batch of its own
            batch, order[-size:] = order[-size:], []
            clean = [texts[n].encode("utf-8", "replace").decode() for n in batch]
            encoded = enumerate(self.tokenizer.encode_batch(clean))
            rows = [(n, part) for n, text in encoded for part in [text, *text.overflowing][:16]]
            fed = {"ids": [p.ids for _, p in rows], "mask": [p.attention_mask for _, p in rows]}
            probabilities[batch] = self.session.run(None, fed | {"text": [n for n, _ in rows]})[0]
        return probabilities

    def predict(self, data: object) -> list[dict[str, str | int | float]]:
        """The best class of each text: of one, of a list, or of the column `text` of a frame."""
        probs = self.probabilities(data)
        best = zip(probs.argmax(axis=1).tolist(), probs.max(axis=1).tolist(), strict=True)
        return [{"choice": self.about["classes"][k], "index": k, "probability": p} for k, p in best]


_load_pyfunc = Model  # the name that MLflow calls

if __name__ == "__main__":
    lines = (line.decode(errors="replace").rstrip("\r\n") for line in sys.stdin.buffer)
    texts = sys.argv[1:] or [*lines]
    rows = iter(Model(Path(__file__).parent).predict([text for text in texts if text.strip()]))
    for row in (next(rows) if text.strip() else None for text in texts):
        print(f"{row['choice']}\t{row['probability']:.6f}" if row else "")
