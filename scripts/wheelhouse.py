"""A folder that installs stacksl on a machine without a network: wheels, checksums, a script.

    python scripts/wheelhouse.py FOLDER [--extras minilm,lm] [--torch torch==X] [--encoder DIR]

The wheels are for this platform and this Python; pip's own settings say where they come from.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUMS = "SHA256SUMS"
NEEDS_TORCH = {"sentences", "minilm", "lm", "lm-eval"}

INSTALL = """#!/bin/sh
# Installs stacksl from this folder alone: sh install.sh [FOLDER OF THE ENVIRONMENT]
# PYTHON names the interpreter; it has to be Python {python}, as the wheels are.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
env=${{1:-"$here/venv"}}
(cd "$here" && sha256sum --check --quiet {sums}) || {{
  echo "a file of this folder differs from its checksum: copy the folder again" >&2
  exit 1
}}
"${{PYTHON:-python3}}" -c 'import sys; v = "%d.%d" % sys.version_info[:2]; sys.exit(
  None if v == "{python}" else "these wheels are for Python {python}, this is " + v
  + ": give another with PYTHON=... sh install.sh")'
"${{PYTHON:-python3}}" -m venv "$env"
"$env/bin/python" -m pip --isolated install --quiet --disable-pip-version-check \\
  --no-index --find-links "$here/wheels" '{what}'
echo "stacksl is $env/bin/stacksl"
"""

ABOUT = """stacksl for a machine without a network

What           {what}
Platform       {platform}, Python {python}
torch          {torch}
Wheels         {count}, {size:,.0f} MB
{encoder}
Install with   sh install.sh [FOLDER OF THE ENVIRONMENT]

The wheels came from the indexes that pip was set up with. A version of torch that ends in +cpu is
the build for processors alone; one without it may bring some gigabytes of libraries for GPUs along.
"""


def main(words: Sequence[str] | None = None) -> None:
    """Make the folder that the command line asks for."""
    given = _arguments(words)
    folder = given.folder
    if folder.exists() and any(folder.iterdir()):
        sys.exit(f"{folder} is not empty: name a folder that is free")
    extras = [] if given.extras == "core" else given.extras.split(",")
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    gather(wheels, extras, given.torch)
    if given.encoder is not None:
        shutil.copytree(given.encoder, folder / "encoder" / given.encoder.resolve().name)
    finish(folder, extras)
    print((folder / "ABOUT.txt").read_text(), end="")


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--extras", default="minilm,lm", help="of pyproject.toml, or core")
    parser.add_argument("--torch", default="torch", help="the exact version, as torch==2.13.0")
    parser.add_argument("--encoder", type=Path, help="a folder of an encoder or model to bring")
    given = parser.parse_args(words)
    if given.encoder is not None and not (given.encoder / "config.json").is_file():
        parser.error(f"{given.encoder} is no folder of a model: it has no config.json")
    return given


def gather(wheels: Path, extras: Sequence[str], torch: str) -> None:
    """Every wheel that `stacksl[extras]` needs, itself among them; what has none is built."""
    wanted = [torch] if NEEDS_TORCH & set(extras) else []
    own = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, "--wheel-dir", str(wheels), own, *wanted], check=True)


def finish(folder: Path, extras: Sequence[str]) -> None:
    """Write the script, what the folder is, and last the checksum of every file."""
    python = ".".join(platform.python_version_tuple()[:2])
    what = f"stacksl[{','.join(extras)}]" if extras else "stacksl"
    wheels = sorted((folder / "wheels").glob("*.whl"))
    torch = next((w.name.split("-")[1] for w in wheels if w.name.startswith("torch-")), "none")
    names = [path.name for path in sorted(folder.glob("encoder/*"))]
    encoder = f"Encoder        encoder/{names[0]}\n" if names else ""
    about = ABOUT.format(
        what=what,
        platform=f"{platform.system()} {platform.machine()}",
        python=python,
        torch=torch,
        count=len(wheels),
        size=sum(wheel.stat().st_size for wheel in wheels) / 1e6,
        encoder=encoder,
    )
    (folder / "ABOUT.txt").write_text(about, encoding="utf-8")
    script = INSTALL.format(what=what, python=python, sums=SUMS)
    (folder / "install.sh").write_text(script, encoding="utf-8")
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != SUMS)
    lines = [f"{_sum(path)}  {path.relative_to(folder).as_posix()}\n" for path in files]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    main()
