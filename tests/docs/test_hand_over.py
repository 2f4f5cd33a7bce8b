"""The lines of FastAPI in docs/hand-over.md, over a folder that was exported."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stacksl
from stacksl.api.labeling import write_model
from stacksl.features.weights import minilm_lacks

from .pages_cases import BLOCK, PAGES, ROOT, rows_under

pytest.importorskip("fastapi", reason="fastapi is not installed (the extra 'label')")
pytest.importorskip("onnx", reason="the extra 'minilm' is not installed")
needs_weights = pytest.mark.skipif(
    minilm_lacks(), reason="the weights of 'minilm' are not installed"
)
CLIENTS = {"1": "1 client", "16": "16 clients"}
TEXTS = ["the wave and the tide", "bread dough"]


@pytest.fixture(scope="module")
def handed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the server's lines in `serve.py`."""
    rng, words = random.Random(0), ("wave tide ship salt", "bread dough oven flour")
    labels = [number % 2 for number in range(40)]
    texts = [f"{' '.join(rng.sample(words[at].split(), 3))} {n}" for n, at in enumerate(labels)]
    out = tmp_path_factory.mktemp("handed")
    options: dict[str, Any] = {
        "classes": ("sea", "bread"),
        "features": "sentences:minilm",
        "budget": 12,
    }
    run = stacksl.run(texts, labels, out=out / "run", **options)
    found = [
        code for kind, code in BLOCK.findall(PAGES["docs/hand-over.md"]) if "FastAPI()" in code
    ]
    write_model(run, out / "model")
    (out / "model" / "serve.py").write_text("\n".join(found), encoding="utf-8")
    return out / "model"


@pytest.fixture
def client(handed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from starlette.testclient import TestClient

    monkeypatch.syspath_prepend(handed)
    before = set(sys.modules)
    import serve  # type: ignore[import-not-found]

    yield TestClient(serve.app)
    for name in {*sys.modules} - before & {"serve", "use"}:
        del sys.modules[name]


@needs_weights
def test_the_lines_answer(handed, client) -> None:
    said = client.post("/predict", json={"texts": TEXTS})
    assert said.status_code == 200
    expected = stacksl.load(handed).predict(TEXTS)
    assert said.json() == expected
    assert [row["choice"] for row in expected] == ["sea", "bread"]


@needs_weights
@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"texts": []}, "at least 1 item"),
        ({"texts": ["a"] * 65}, "at most 64 items"),
        ({"texts": ["a" * 20_001]}, "at most 20000 characters"),
    ],
)
def test_a_request_beyond_the_limits_is_told_why(client, body, words) -> None:
    said = client.post("/predict", json=body)
    assert said.status_code == 422
    assert words in said.json()["detail"][0]["msg"]


@needs_weights
def test_a_body_that_is_too_large_is_not_read(client) -> None:
    assert client.post("/predict", content=b"[" + b" " * 4_000_000).status_code == 413
    said = client.post("/predict", content=iter([b"{}"]))  # in chunks, of no known length
    assert said.status_code == 413
    assert "at most 4 MB" in said.json()["detail"]


def test_the_table_of_speeds_is_the_record() -> None:
    record = json.loads((ROOT / "benchmarks" / "results" / "serving.json").read_text("utf-8"))
    names = {"FastAPI": "fastapi", "MLflow": "mlflow", "same lines": "sentence_transformers"}
    rows = rows_under(PAGES["docs/hand-over.md"], "server")
    assert len(rows) == len(CLIENTS) * len(names)
    for server, clients, *cells in rows:
        name = next(key for word, key in names.items() if word in server)
        found = record["servers"][name][CLIENTS[clients]]
        keys = ("requests_a_second", "p99_ms", "cpu_ms")
        assert cells == [f"{found[key]:g} ({found[f'{key}_ratio']:.2f})" for key in keys]
