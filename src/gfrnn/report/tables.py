"""The paper's tables with ours beside them. A row without a run is empty but for the command that fills it."""

from __future__ import annotations

import csv
from importlib import resources

from gfrnn.campaign.plan import ROWS
from gfrnn.recipes.hutter import sizes
from gfrnn.report.cost import cost_of
from gfrnn.report.document import Block, Paragraph, Table
from gfrnn.report.evidence import Evidence
from gfrnn.report.finished import Group, Run
from gfrnn.report.rules import between_seeds
from gfrnn.report.statistics import mean_interval
from gfrnn.report.wording import UNITS, group_words, row_words, size_words, train_command, unit_of
from gfrnn.training.plan import in_words


def paper_numbers() -> dict[str, str]:
    """The paper's value of each recipe, as printed."""
    return {row["recipe"]: row["value"] for row in quoted() if row["recipe"]}


def quoted() -> list[dict[str, str]]:
    text = resources.files("gfrnn").joinpath("report/paper.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def text_groups(evidence: Evidence) -> list[Group]:
    """Those of Table 2, the longest training first."""
    found = {run.group for run in evidence.runs if run.row in ROWS["table2"]}
    return [group for group in evidence.groups_of(ROWS["table2"]) if group in found]


def program_groups(evidence: Evidence) -> list[Group]:
    """Those of programs, the longest training first."""
    programs = [run for run in evidence.runs if not run.is_text]
    found = {run.group for run in programs}
    return [group for group in evidence.groups_of({run.row for run in programs}) if group in found]


def table1() -> Table:
    known = {row["row"]: row for row in sizes()}
    rows = [
        [row_words(row), spaced(known[row]["paper"]), spaced(known[row]["ours"]), f"{known[row]['parameters']:,}"]
        for row in ROWS["table2"]
    ]
    return Table(
        "Table 1. Sizes, layers x units. Parameters count everything, with one-hot input and softmax over 205 symbols.",
        ["model", "the paper", "ours", "parameters"],
        ["text", "number", "number", "number"],
        rows,
    )


def spaced(size: str | None) -> str:
    return (size or "").replace("x", " x ")


def table2(evidence: Evidence) -> list[Block]:
    """One table for each group of settings and budget. The one in which most rows were trained goes first, and has all
    rows; the others follow, the longest training first, and have the rows of the units that were trained."""
    groups = text_groups(evidence)
    trained = {group: sum(bool(evidence.of(row, group)) for row in ROWS["table2"]) for group in groups}
    groups.sort(key=lambda group: trained[group] < max(trained.values()))  # stable
    shown = [table_of(evidence, group, rows_shown(evidence, group, group == groups[0])) for group in groups]
    return [Paragraph(READ_LIKE_THIS, note=True), *shown] if shown else []


READ_LIKE_THIS = (
    "The tables numbered 2 are in bits per character: lower is better, and of each unit our lowest is in bold, of rows "
    "that have the same seeds. The paper's networks read the text up to 100 times. Intervals are Student's, over "
    "seeds: with one seed there is none. Minus the stack: the difference in test BPC, paired by seed. Validation is on "
    "the whole split."
)


def rows_shown(evidence: Evidence, group: Group, whole: bool) -> list[str]:
    units = {unit_of(row) for row in ROWS["table2"] if whole or evidence.of(row, group)}
    return [row for row in ROWS["table2"] if unit_of(row) in units]


def table_of(evidence: Evidence, group: Group, rows: list[str]) -> Table:
    like = next(run for run in evidence.runs if run.group == group and run.is_text)
    found = {row: evidence.of(row, group) for row in rows}
    best = {attribute: best_rows(found, attribute) for attribute in ("test_bpc", "valid_bpc")}
    flaws = dict.fromkeys(run.clock for runs in found.values() for run in runs.values() if run.clock)
    return Table(
        f"Table 2, ours with {group_words(group)}. {learning_rates(found)}{precisions(found)}"
        + (f" Times do not compare: {'; '.join(flaws)}." if flaws else ""),
        ["model", "units", "the paper, test", "ours, test", "95 %", "minus the stack", "seeds", "ours, validation",
         "time", "command"],
        ["text", "narrow", "number", "number", "narrow", "narrow", "number", "number", "number", "code"],
        [cells_of(row, found[row], evidence.of(f"stacked-{unit_of(row)}", group), like, best) for row in rows],
    )  # fmt: skip


def cells_of(row: str, runs: dict[int, Run], stack: dict[int, Run], like: Run, best: dict[str, set[str]]) -> list[str]:
    test = [run.test_bpc for run in runs.values() if run.test_bpc is not None]
    valid = [run.valid_bpc for run in runs.values() if run.valid_bpc is not None]
    seconds = [run.seconds for run in runs.values()]
    interval = mean_interval(test)
    return [
        row_words(row),
        size_words(row),
        paper_numbers().get(f"hutter-{row}", ""),
        mean_of(test, row in best["test_bpc"]),
        f"{interval.low:.3f} to {interval.high:.3f}" if interval else "",
        "" if row.startswith("stacked-") else difference(runs, stack),
        str(len(runs)) if runs else "",
        mean_of(valid, row in best["valid_bpc"]),
        in_words(sum(seconds) / len(seconds)) if seconds else "",
        train_command(row, next(iter(runs.values()), like), min(runs, default=like.seed)),
    ]


def difference(runs: dict[int, Run], stack: dict[int, Run]) -> str:
    """From the stack in test BPC, with its interval over the seeds that both have."""
    _, differences = between_seeds(stack, runs)
    interval = mean_interval(differences)
    if interval is None:
        return f"{differences[0]:+.3f}" if differences else ""
    return f"{interval.value:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"


def learning_rates(found: dict[str, dict[int, Run]]) -> str:
    """Whether rivals had the same learning rate."""
    rates = {row: sorted({run.config.optimizer.learning_rate for run in runs.values()}) for row, runs in found.items()}
    different = {rate for own in rates.values() for rate in own}
    if len(different) == 1:
        return f"Learning rate: {different.pop():g} for every row."
    said = ", ".join(f"{row} {' and '.join(f'{rate:g}' for rate in own)}" for row, own in rates.items() if own)
    return f"Learning rates: {said}."


def precisions(found: dict[str, dict[int, Run]]) -> str:
    """Who multiplied in bfloat16, if anybody did."""
    rounded = {row: [seed for seed, run in runs.items() if run.precision != "float32"] for row, runs in found.items()}
    names = [
        row if len(seeds) == len(found[row]) else f"{row} (seed {' and '.join(map(str, seeds))})"
        for row, seeds in rounded.items()
        if seeds
    ]
    if not names:
        return ""
    if all(len(seeds) == len(found[row]) for row, seeds in rounded.items()):
        return " Products in bfloat16."
    return f" Products in bfloat16: {', '.join(names)}; the others in float32."


def mean_of(values: list[float], bold: bool = False) -> str:
    mark = "**" if bold else ""
    return f"{mark}{sum(values) / len(values):.3f}{mark}" if values else ""


def best_rows(found: dict[str, dict[int, Run]], attribute: str) -> set[str]:
    """Of each unit the one with the lowest mean, of the two rows or more that have the same seeds."""
    best = set()
    for unit in UNITS:
        alike: dict[tuple[int, ...], dict[str, float]] = {}
        for row, runs in found.items():
            values = [getattr(run, attribute) for run in runs.values()]
            if unit_of(row) == unit and values and None not in values:
                alike.setdefault(tuple(sorted(runs)), {})[row] = sum(values) / len(values)
        means = max(alike.values(), key=len, default={})
        if len(means) > 1:
            best.add(min(means, key=lambda row: means[row]))
    return best


def table3(evidence: Evidence) -> list[Block]:
    """The large model beside the two that the paper quotes."""
    rows = [
        [f"{row['unit']}, {row['architecture']}".replace("lstm", "LSTM"), row["value"], "", ""]
        for row in quoted()
        if row["table"] == "hutter-large" and not row["recipe"]
    ]
    runs = [run for run in evidence.runs if run.row == "large"]
    test = [run.test_bpc for run in runs if run.test_bpc is not None]
    ours = f"{min(test):.3f} ({', '.join(sorted({group_words(run.group) for run in runs}))})" if test else ""
    rows.append(["LSTM, gated feedback, 5 x 700", paper_numbers()["hutter-large"], ours, "gfrnn train hutter-large"])
    caption = "Table 3. The large model, 60.5 M parameters: test BPC, beside those that the paper quotes."
    table = Table(caption, ["model", "the paper", "ours", "command"], ["text", "number", "number", "code"], rows)
    return [table] if test else [table, Paragraph(f"Out of reach here: {cost_of('large', evidence).words}.", note=True)]


def ablation(evidence: Evidence) -> list[Block]:
    """Feedback without gates, between the stack and gated feedback?"""
    rows = []
    for group in text_groups(evidence):
        found = [evidence.of(row, group) for row in ROWS["ablation"]]
        if sum(map(bool, found)) < 2:
            continue
        for split, attribute in (("test", "test_bpc"), ("validation", "valid_bpc")):
            values = [[getattr(run, attribute) for run in runs.values()] for runs in found]
            means = [f"{sum(v) / len(v):.3f}" if v and None not in v else "" for v in values]
            if sum(map(bool, means)) > 1:
                seeds = " / ".join(str(len(runs)) for runs in found)
                rows.append([f"ours, {group_words(group)}: {split}", *means, seeds])
    numbers = [paper_numbers()[f"hutter-{row}"] for row in ROWS["ablation"]]
    caption = "An LSTM stack, feedback with every gate fixed to 1, and gated feedback. Bits per character."
    header = ["", "stacked", "gates fixed to 1", "gated", "seeds"]
    kinds = ["text", "number", "number", "number", "number"]
    return [Table(caption, header, kinds, [["the paper, 100 epochs: test", *numbers, ""], *rows])]  # type: ignore[arg-type]


def programs(evidence: Evidence, group: Group) -> Table:
    """Both accuracies of every program model, over the whole grid."""
    like = next(run for run in evidence.runs if run.group == group and not run.is_text)
    rows = []
    for row in ROWS["heatmaps"]:
        runs = evidence.of(row, group)
        made = [run.grid for run in runs.values() if run.grid]
        shares = [
            f"{100 * sum(grid[name] for grid in made) / len(made):.2f} %" if made else ""
            for name in ("symbol_accuracy", "exact_match")
        ]
        seconds = [run.seconds for run in runs.values()]
        parameters = next((run.parameters for run in runs.values()), None)
        rows.append(
            [
                row_words(row),
                size_words(row),
                f"{parameters / 1e6:.2f} M" if parameters else "",
                *shares,
                str(len(runs)) if runs else "",
                in_words(sum(seconds) / len(seconds)) if seconds else "",
                train_command(row, like, min(runs, default=like.seed)),
            ]
        )
    return Table(
        f"Program evaluation, ours with {group_words(group)}: over all cells of the grid. The paper prints no numbers.",
        ["model", "units", "parameters", "symbols right", "whole answers right", "seeds", "time", "command"],
        ["text", "narrow", "number", "number", "number", "number", "number", "code"],
        rows,
    )
