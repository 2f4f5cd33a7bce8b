"""Files in parts on a file system that is not local: S3, played by moto on the loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSelector, S3FileSystem

import stacksl
from stacksl.api import Run

moto = pytest.importorskip("moto.server", reason="moto[s3,server] is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
TEXTS = {"card": "my card has not arrived", "cash": "the machine kept my cash"}
ROWS = [(f"{text} {n}", name) for n in range(60) for name, text in TEXTS.items()]
NAMES = ("a.csv", "b.jsonl", "c.parquet")


@pytest.fixture
def address(monkeypatch) -> Iterator[str]:
    """HOST:PORT of an S3 server with the bucket `bucket`."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield ":".join(map(str, server.get_host_and_port()))
    finally:
        server.stop()


@pytest.fixture
def bucket(address: str) -> S3FileSystem:
    """The server with a CSV, a JSONL and a Parquet part in `bucket/in`."""
    made = S3FileSystem(endpoint_override=address, scheme="http", allow_bucket_creation=True)
    made.create_dir("bucket")
    texts = [text for text, _ in ROWS]
    lines = [f'{{"text": "{text}"}}\n' for text in texts[2:5]]
    table = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": texts[5:9]}), table)
    parts = [
        b"ticket,text\n" + "".join(f"t{n},{texts[n]}\n" for n in (0, 1)).encode(),
        "".join(lines).encode(),
        table.getvalue().to_pybytes(),
    ]
    for name, payload in zip(NAMES, parts, strict=True):
        with made.open_output_stream(f"bucket/in/{name}") as stream:
            stream.write(payload)
    return made


@pytest.fixture
def run(tmp_path: Path) -> Run:
    pool = tmp_path / "pool.tsv"
    pool.write_text("text\tlabel\n" + "".join(f"{text}\t{name}\n" for text, name in ROWS))
    return stacksl.run(str(pool), out=tmp_path / "run", budget=30, audit=0, features="hashing")


def contents(system: S3FileSystem, folder: str) -> dict[str, bytes]:
    files = system.get_file_info(FileSelector(folder))
    found = {}
    for file in files:
        with system.open_input_stream(file.path) as stream:
            found[file.base_name] = stream.read()
    return found


@pytest.fixture
def here(bucket: S3FileSystem, run: Run, tmp_path: Path, stacksl: Any) -> dict[str, bytes]:
    """What the parts are labeled as in files of this machine."""
    for name, payload in contents(bucket, "bucket/in").items():
        (tmp_path / name).write_bytes(payload)
        out = tmp_path / "here" / name
        out.parent.mkdir(exist_ok=True)
        assert stacksl("predict", run.path, tmp_path / name, "--out", out).code == 0
    return {name: (tmp_path / "here" / name).read_bytes() for name in NAMES}


@pytest.mark.parametrize("out", ["by-environment", "in-address"])
def test_parts_in_a_bucket_are_labeled_as_files_are(
    out, address, bucket, here, run, stacksl, monkeypatch
) -> None:
    options = f"?endpoint_override={address}&scheme=http"
    if out == "by-environment":
        options = ""
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address}")
    words = (
        "predict",
        run.path,
        f"s3://bucket/in/*{options}",
        "--out",
        f"s3://bucket/{out}{options}",
    )
    assert stacksl(*words).out.count("with labels") == 3
    made = contents(bucket, f"bucket/{out}")
    assert {name: made[name] for name in NAMES} == here
    assert stacksl(*words).out.count("kept") == 3
    csv = stacksl("predict", run.path, f"s3://bucket/in/*.csv{options}", *words[3:])
    assert csv.out == "a.csv  kept\n"
    nowhere = stacksl(*words[:3], "--out", f"s3://nothing/out{options}")
    assert (nowhere.code, nowhere.err.count("\n")) == (2, 1)
    assert "Bucket 'nothing' not found" in nowhere.err


def test_ray_labels_parts_in_a_bucket(address, bucket, here, run, stacksl, monkeypatch) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed (the extra ray)")
    from ray._private import ray_constants

    monkeypatch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", False)  # on the loopback alone
    monkeypatch.setenv("RAY_ADDRESS", "local")
    options = f"?endpoint_override={address}&scheme=http"
    words = (
        "predict",
        run.path,
        f"s3://bucket/in/{options}",
        "--out",
        f"s3://bucket/ray/{options}",
    )
    try:
        assert stacksl(*words).out.count("with labels") == 3
        made = contents(bucket, "bucket/ray")
        assert {name: made[name] for name in NAMES} == here
        assert stacksl(*words).out.count("kept") == 3
    finally:
        ray.shutdown()
