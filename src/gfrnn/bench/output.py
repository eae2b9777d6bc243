"""A bench's results as tables for people, and as files."""

import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gfrnn.bench.targets import show
from gfrnn.storage.files import replace_file

WIDTH = 160
HOW = (
    "Contenders took turns; median [quartiles] of the rounds, ratios taken round by round. Of machine: the operations "
    "(or bytes of weights) the model needs, over the rate of a large matrix product (or of reading as many bytes)."
)
Results = dict[str, Any]


def as_text(results: Results) -> str:
    """Every table, the targets last, as plain text."""
    console = plain_console()
    where = results["environment"]
    console.print(
        f"gfrnn {where['gfrnn']} ({(results['commit'] or 'no commit')[:12]}), torch {where['torch']}, {where['cpu']}, "
        f"threads: {where['threads']}; {results['plan']['name']} bench, {results['seconds']:.0f} s"
    )
    console.print(HOW + "\n")
    for section in dict.fromkeys(group["section"] for group in results["groups"]):
        console.print(timings([group for group in results["groups"] if group["section"] == section], section), "")
    exponents = [(g["name"], *item) for g in results["groups"] for item in g["exponents"].items()]
    if exponents:
        console.print(growth(exponents), "")
    if results["memory"]:
        console.print(memory(results["memory"]), "")
    if results["bits_per_character"]:
        bpc = results["bits_per_character"]
        console.print(
            f"BPC of {bpc['model']}: {bpc['exact']:.5f} exact, {bpc['half']:.5f} with half-precision weights\n"
        )
    console.print(targets(results["targets"]))
    checks = results["checks"]
    if checks:
        worst = max(checks, key=lambda check: check["error"] / check["allowed"])
        console.print(
            f"\n{len(checks)} checks of equality passed before timing; the closest call: {worst['contender']} of "
            f"{worst['model']}, {worst['what']}: {worst['error']:.2g} of {worst['allowed']:.2g}"
        )
    for note in results["notes"]:
        console.print(note)
    return printed(console)


def plain_console() -> Console:
    return Console(file=io.StringIO(), width=WIDTH, color_system=None, markup=False, highlight=False)


def printed(console: Console) -> str:
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def to_text(parts: list[Any]) -> str:
    """Lines and tables, as plain text."""
    console = plain_console()
    for part in parts:
        console.print(part)
    return printed(console)


def plain_table(title: str, *columns: str, left: int = 1) -> Table:
    """A table without lines: the first `left` columns are words, the others numbers."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right", no_wrap=True)
    return table


def timings(groups: list[Results], section: str) -> Table:
    table = plain_table(
        section,
        "",
        "contender",
        "parameters",
        "ms [quartiles]",
        "rate",
        "x loop",
        "of machine",
        "rounds",
        left=2,
    )
    for group in groups:
        about = group["about"]
        shape = f", {about['rows']} x {about['steps']}" if "rows" in about and "steps" in about else ""
        for number, timed in enumerate(group["timed"]):
            table.add_row(
                f"{group['name']}{shape}" if number == 0 else "",
                timed["name"],
                f"{timed['parameters']:,}" if timed["parameters"] else "",
                spread(timed["seconds_spread"], 1000, "{:.4g}"),
                rate(timed),
                over(timed, "loop", "characters"),
                over(timed, "sgemm", "flops") or over(timed, "read", "bytes"),
                str(len(timed["seconds"])),
            )
    return table


def spread(values: Results, factor: float, form: str) -> str:
    median, low, high = (form.format(values[key] * factor) for key in ("median", "low", "high"))
    return f"{median} [{low} {high}]"


def rate(timed: Results) -> str:
    for by, factor, unit in (("characters", 1e-3, "k char/s"), ("flops", 1e-9, "GF/s"), ("bytes", 1e-9, "GB/s")):
        if timed[by]:
            return f"{timed[f'{by}_per_second']['median'] * factor:.4g} {unit}"
    return ""


def over(timed: Results, start: str, by: str) -> str:
    """The multiple of the yardstick whose name starts with `start`."""
    for name, values in timed["over"].items():
        if name.startswith(start) and not timed["name"].startswith(start) and values["by"] == by:
            return show(values["median"], by)
    return ""


def growth(exponents: list[tuple[str, str, Results]]) -> Table:
    table = plain_table("growth of the training step", "with the", "contender", "exponent [quartiles]", left=2)
    for axis, series, values in exponents:
        table.add_row(axis, series, spread(values, 1, "{:.3f}"))
    return table


def memory(rows: list[Results]) -> Table:
    table = plain_table(
        "memory of a training step, MB",
        "",
        "contender",
        "kept for the backward",
        "x activations once",
        "peak above the model",
        left=2,
    )
    for row in rows:
        table.add_row(
            f"{row['model']}, {row['rows']} x {row['steps']}",
            row["contender"],
            f"{row['kept_bytes'] / 1e6:.1f}",
            "" if row["contender"].startswith("nn.") else f"{row['kept_bytes'] / row['activations_once_bytes']:.2f}",
            "" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e6:.1f}",
        )
    return table


def targets(verdicts: list[Results]) -> Table:
    table = plain_table("targets", "", "target", "measured [quartiles]", "")
    for row in verdicts:
        by, found = row["target"]["by"], row["measured"]
        shown = (
            "" if found is None else "{} [{} {}]".format(*(show(found[key], by) for key in ("median", "low", "high")))
        )
        table.add_row(row["target"]["what"], row["bound"], shown, row["verdict"])
    return table


def save(results: Results, folder: Path) -> None:
    """bench.json with everything, bench.txt with the tables."""
    replace_file(folder / "bench.json", (json.dumps(results, indent=1) + "\n").encode())
    replace_file(folder / "bench.txt", (as_text(results) + "\n").encode())
