"""The tables of `gpu_check.py`: its rows as Markdown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

Row = dict[str, Any]

ALIKE = ("labels", "adapters", "features")
KERNELS = {
    "attention": ("attention", "fmha", "flash", "attn"),
    "matrix products": ("gemm", "cutlass", "nvjet", "xmma", "mm_"),
    "softmax and its gradient": ("softmax",),
    "optimizer": ("adam", "foreach", "multi_tensor"),
}


def tables(found: Row) -> str:
    """The rows as Markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    lines = [f"{found['device']}; {versions}.", ""]
    rows = found["rows"]
    by: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if "failed" not in row:
            by[row["job"]].append(row)
    names = (
        "model, dtype, `batch_tokens`, pass, items a second, tokens a second, seconds, "
        "estimated GB, measured GB, estimate is"
    )
    lines += [head(names)]
    for r in by["passes"]:
        pace = r["items"] / r["seconds"] if r["pass"].startswith("score") else None
        each = "" if pace is None else f"{pace:.0f}"
        cells = [r["model"], r["dtype"], f"{r['batch_tokens']:,}", r["pass"], each,
                 f"{r['tokens'] / r['seconds']:,.0f}", f"{r['seconds']:.1f}",
                 f"{r['estimated'] / 1e9:.2f}"]  # fmt: skip
        if r["measured"]:
            share = r["estimated"] / r["measured"] - 1
            cells += [f"{r['measured'] / 1e9:.2f}", f"{share:+.0%}"]
        lines.append("| " + " | ".join([*cells, "", ""][:10]) + " |")
    lines += ["", head("dtype, path, off `naive`, off float32 on the CPU, gradient off `naive`")]
    for r in by["paths"]:
        if "fault" in r:
            cells = [r["dtype"], r["path"], r["fault"], "", ""]
        else:
            pairs = [f"{r[f'{name}_largest']:.1e}, {r[f'{name}_mean']:.1e}"
                     for name in ("naive", "cpu")]  # fmt: skip
            cells = [r["dtype"], r["path"], *pairs, f"{r['gradient']:.1e}"]
        lines.append("| " + " | ".join(cells) + " |")
    lines += own_tables(by)
    names = "model, run, dtype, seconds, peak GB, compared with, same labels, same adapters"
    lines += ["", head(f"{names}, same feature files, same test results, replayed")]
    for r in by["runs"]:
        what = f"{r['run']}, resumed" if r["kind"] == "resume" else r["run"]
        peak = r["peak_memory"]  # None on a CPU
        cells = [r["model"], what, r["dtype"], f"{r['seconds']:.0f}",
                 f"{peak / 1e9:.1f}" if peak else "", r.get("beside", "")]  # fmt: skip
        cells += ["{} of {}".format(*r[name]) if name in r else "" for name in ALIKE]
        cells += ["", f"{r['replayed']} labels"]
        if "tested" in r:
            cells[-2] = "yes" if r["tested"] else "no"
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *(f"FAILED: {r['job']} {r['words']}: {r['failed']}" for r in failed(rows))]
    return "\n".join(lines).rstrip()


def own_tables(by: Mapping[str, list[Row]]) -> list[str]:
    """The tables of the other jobs, as far as they were measured."""
    lines = []
    if by["window"]:
        lines += ["", head("window, dtype, path, off `naive`, items a second")]
    for r in by["window"]:
        gaps, pace = f"{r['naive_largest']:.1e}, {r['naive_mean']:.1e}", r["items"] / r["seconds"]
        lines.append(f"| {r['model']} | {r['dtype']} | {r['path']} | {gaps} | {pace:.0f} |")
    if by["options"]:
        lines += ["", head("options of an item, command, passes, seconds")]
    for r in by["options"]:
        cells = [str(r["options"]), r["kind"], f"{r['passes']:,}", f"{r['seconds']:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    if by["kinds"]:
        lines += ["", head("architecture, dtype, path, off `naive`, loss of a refit")]
    for r in by["kinds"]:
        cells = [r["model"], r["dtype"], r.get("fault", r.get("path", ""))]
        cells += [f"{r['naive_largest']:.1e}, {r['naive_mean']:.1e}", f"{r['loss']:.2f}"] if (
            "path" in r) else ["", ""]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    if by["sample"]:
        columns = "sample model on, dtype, refits, seconds, same labels as on the CPU, base, run"
        lines += ["", head(columns)]
    for r in by["sample"]:
        cells = [r["device"], r["dtype"], str(r["refits"]), f"{r['seconds']:.0f}"]
        cells += ["{} of {}".format(*r["labels"])]
        cells += [f"{r['base']:.3f}", f"{r['accuracy']:.3f}"]
        lines.append("| " + " | ".join(cells) + " |")
    if by["steps"]:
        lines += ["", head("steps of a refit, seconds, waits of the host")]
    for r in by["steps"]:
        lines.append(f"| {r['steps']} | {r['seconds']:.1f} | {r['waits']} |")
    if by["kernels"]:
        kinds = [*KERNELS, "other"]
        columns = ", ".join(kinds)
        lines += ["", head(f"pass, seconds, seconds that the GPU works, {columns}")]
    for r in by["kernels"]:
        shares = [f"{r['shares'].get(kind, 0):.0%}" for kind in kinds]
        cells = [r["pass"], f"{r['seconds']:.2f}", f"{r['busy']:.2f}", *shares]
        lines.append("| " + " | ".join(cells) + " |")
    if by["compiled"]:
        lines += ["", head("layers, pass, seconds of the first, seconds, off `plain`")]
    for r in by["compiled"]:
        cells = [f"{r[k]:.1f}" if k in r else "" for k in ("before", "seconds")]
        gaps = f"{r['naive_largest']:.1e}, {r['naive_mean']:.1e}" if "naive_mean" in r else ""
        lines.append(f"| {r['kind']} | {r['pass']} | {' | '.join(cells)} | {gaps} |")
    return lines


def head(names: str) -> str:
    """The first two lines of a table with these columns."""
    columns = names.split(", ")
    return "| " + " | ".join(columns) + " |\n|" + "---|" * len(columns)


def failed(rows: list[Row]) -> list[Row]:
    """The jobs that did not end well."""
    return [row for row in rows if "failed" in row]
