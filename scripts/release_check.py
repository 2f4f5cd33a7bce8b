"""Is what would be published installable, complete and free of known trouble?

    python scripts/release_check.py [--out FOLDER]

Wheels and source archives of stacksl and stacksl-lab are built. For each Python of 3.11 to 3.14 on
this machine, the core's wheel is installed into an empty environment, outside the checkout, and
plays the run of the built-in sample; with the first of them the source archive and the laboratory
are installed as well. Each extra is resolved together with the core. The licenses of all that the
core brings are listed, and those of the weights and data that docs/benchmarks.md names; a file of
weights or data in a wheel that is not named there is a failure. pip-audit compares the versions
with the advisories that are known.

The exit status is 1 where a check failed; what could not be checked here is said at the end.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LARGEST = 2_000_000  # bytes of a wheel without weights and data sets
PAGE = ROOT / "docs" / "benchmarks.md"  # with the table of weights and data
OURS = (".py", ".typed", ".j2", ".css", ".js", "MLmodel", "python_env.yaml", "requirements.txt")
LICENSES = """
from importlib.metadata import distributions
for each in sorted(distributions(), key=lambda each: each.name.lower()):
    kinds = [kind for kind in each.metadata.get_all("Classifier") or () if "License ::" in kind]
    said = each.metadata["License-Expression"] or each.metadata["License"] or ""
    license = said.splitlines()[0] if said else ", ".join(k.split(" :: ")[-1] for k in kinds)
    print(f"          {each.name} {each.version}: {license[:60] or 'not stated'}")
"""


class Failed(Exception):
    """A command failed; the message has the end of what it printed."""


def run(*words: object, cwd: Path | None = None) -> str:
    """The output of a command that succeeds."""
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stdout + done.stderr).splitlines()[-12:]
        raise Failed("\n".join([" ".join(command), *last]))
    return done.stdout


def environment(folder: Path, python: str = sys.executable) -> Path:
    """The interpreter of a new, empty environment."""
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def install(inside: Path, *what: object) -> str:
    """Install into an environment, and check that all requirements are met."""
    run(inside, "-m", "pip", "install", "--quiet", *what)
    return run(inside, "-m", "pip", "check").strip()


def play(inside: Path, folder: Path) -> str:
    """Play the sample's run with the installed command, and verify its ledger."""
    folder.mkdir()
    for words in (("run", "--quiet", "--out", "one"), ("ledger", "verify", "one")):
        run(inside.parent / "stacksl", *words, cwd=folder)
    return run(inside.parent / "stacksl", "--version", cwd=folder).strip()


def build(out: Path, inside: Path) -> list[Path]:
    """The core's wheel and source archive, and those of the laboratory."""
    run(inside, "-m", "pip", "install", "--quiet", "build")
    for folder in (ROOT, ROOT / "lab"):
        run(inside, "-m", "build", "--outdir", out, folder)
    wheels = [*out.glob("stacksl-*.whl"), *out.glob("stacksl_lab-*.whl")]
    archives = [*out.glob("stacksl-*.tar.gz"), *out.glob("stacksl_lab-*.tar.gz")]
    if (size := wheels[0].stat().st_size) > LARGEST:
        raise Failed(f"the core's wheel should have at most {LARGEST:,} bytes, but has {size:,}")
    return wheels + archives


def weights_and_data(wheels: list[Path], page: str) -> str:
    """The page's table of weights and data with their licenses, and the files in the wheels.

    Raises:
        Failed: a wheel has a file that is no code and no template, and is not in the table.
    """
    _, _, part = page.partition("## Licenses of weights and data")
    part, _, _ = part.partition("\n## ")
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    said = {name: (where, license) for name, where, license in rows[1:]}
    lines = [f"          {name}: {license} ({where})" for name, (where, license) in said.items()]
    for wheel in wheels:
        for file in zipfile.ZipFile(wheel).namelist():
            if file.endswith(OURS) or ".dist-info/" in file:
                continue
            place = file.rpartition("/")[0] + "/"
            known = [license for where, license in said.values() if f"`{place}`" in where]
            if not known:
                raise Failed(f"{file} in {wheel.name} has no license in {PAGE.relative_to(ROOT)}")
            lines.append(f"          {file} in {wheel.name}: {known[0]}")
    return "\n".join(["their licenses", *lines])


def main() -> None:
    """Check everything, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="keep what is built in this folder")
    asked, failed, left_out = parser.parse_args(), 0, []

    def check(name: str, does: Callable[..., str], *given: object) -> None:
        nonlocal failed
        try:
            print(f"ok      {name}: {does(*given) or 'it resolves'}", flush=True)
        except Failed as fault:
            failed += 1
            print(f"FAILED  {name}\n{fault}", flush=True)

    with tempfile.TemporaryDirectory() as name:
        space = Path(name)
        dist = asked.out.resolve() if asked.out else space / "dist"
        core, lab, archive, _ = build(dist, environment(space / "build"))
        print(f"ok      built: {core.name}, {core.stat().st_size:,} bytes, {lab.name}", flush=True)
        first: Path | None = None
        for version in PYTHONS:
            python = shutil.which(f"python{version}")
            if python is None or subprocess.run([python, "-V"], capture_output=True).returncode:
                left_out.append(f"Python {version}, which is not on this machine")
                continue
            inside = environment(space / version, python)
            check(f"the core in an empty Python {version}", install, inside, core)
            check("it plays the sample's run", play, inside, space / f"run-{version}")
            first = first or inside
        if first is None:
            raise SystemExit("FAILED  none of the Pythons 3.11 to 3.14 is on this machine")
        other = environment(space / "other", str(first))
        check("source archive and laboratory", install, other, archive, lab)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        dry = (first, "-m", "pip", "install", "--quiet", "--dry-run")
        for extra in project["optional-dependencies"]:
            check(f"extra {extra}", run, *dry, f"{core}[{extra}]")
        print(f"        licenses of the core and what it brings:\n{run(first, '-c', LICENSES)}")
        table = PAGE.read_text(encoding="utf-8")
        check("weights and data", weights_and_data, [core, lab], table)
        audit = environment(space / "audit", str(first))
        run(audit, "-m", "pip", "install", "--quiet", "pip-audit")
        site = run(first, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        try:
            run(audit, "-m", "pip_audit", "--path", site, "--skip-editable", "--timeout", "30")
            print("ok      pip-audit: no known vulnerability")
        except Failed as fault:
            if "onnection" in str(fault) or "resolve" in str(fault) or "imed out" in str(fault):
                left_out.append("pip-audit, which could not reach the advisories")
            else:
                failed += 1
                print(f"FAILED  pip-audit\n{fault}")
    for each in left_out:
        print(f"left out: {each}")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
