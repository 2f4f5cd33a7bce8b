"""A real server on loopback: `transformers serve` with the sample language model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

import stacksl
from stacksl.labelers.chat.calls import read_calls
from stacksl_lab.sample import FOLDER as SAMPLE

from ...ports import reserved_port
from .test_hostile import expect_books

NAMES = ["green", "red", "blue"]
CHAT = "{% for m in messages %}{{ m['content'] }}{% endfor %}{{ '\\n(' }}"
PARSED = {"defaults": {"role": "assistant"}, "start_anchor": "\n(", "fields": {}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of the server, and the name of its model."""
    for name in ("transformers", "fastapi", "uvicorn", "openai"):
        pytest.importorskip(name, reason=f"`transformers serve` needs the package {name}")
    folder = shutil.copytree(SAMPLE, tmp_path_factory.mktemp("served") / "sample")
    table = json.loads((folder / "tokenizer_config.json").read_text())
    table["response_template"] = {**PARSED, "fields": {"content": {"content": "text"}}}
    (folder / "tokenizer_config.json").write_text(json.dumps({**table, "chat_template": CHAT}))
    command = "import sys; from transformers.cli.transformers import main; main()"
    words = ["serve", "--host", "127.0.0.1", "--device", "cpu", "--port"]
    quiet = subprocess.DEVNULL
    path = os.pathsep.join(each for each in sys.path if each)
    given = {
        **os.environ,
        "PYTHONPATH": path,
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    with (
        reserved_port() as port,
        subprocess.Popen(
            [sys.executable, "-c", command, *words, str(port)],
            env=given,
            stdout=quiet,
            stderr=quiet,
        ) as process,
    ):
        try:
            for _ in range(240):
                try:
                    urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                    break
                except (URLError, OSError):
                    assert process.poll() is None, "the server has ended"
                    time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1", str(folder)
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("classes", [3, 150])
def test_a_run_whose_labeler_is_a_real_server(
    served: tuple[str, str], classes: int, tmp_path: Path
) -> None:
    names = NAMES if classes == 3 else [f"class{n}" for n in range(classes)]
    texts = [f"text {n} of {names[n % classes]}" for n in range(24)]
    url, model = served
    run = stacksl.run(
        texts,
        classes=names,
        labeler=f"openai:{model}",
        server={"url": url, "allow_send": True, "input_price": "100", "output_price": "200"},
        out=tmp_path / "run",
        budget=6,
    )
    for _ in range(9):
        if run.status()["state"] == "finished":
            break
        run.resume()
    found = expect_books(run)
    assert sum(found.values()) == 6
    rows = read_calls(run.path / "run.db")
    ended = [row for row in rows if "request" not in row]
    for row in ended:
        usage = json.loads(row["answer"])["usage"]
        assert "why" not in row
        assert row["cost"] == 100 * usage["prompt_tokens"] + 200 * usage["completion_tokens"]
    if classes == 3:  # the small model does name letters; it names no class of many
        assert found["label"] >= 3
    else:  # the schema is ignored, then the nearest classes are listed
        assert "response_format" in rows[0]["request"]
        assert "response_format" not in [row for row in rows if "request" in row][-1]["request"]
