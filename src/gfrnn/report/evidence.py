"""What there is to report on: every run below some folders, with what its own files say of it.

Nothing is run here; what cannot be read or compared is named and left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gfrnn.errors import DataError, GfrnnError
from gfrnn.report.finished import RATE, Group, Run
from gfrnn.storage.files import read_small
from gfrnn.storage.run_folder import CONFIG, METRICS
from gfrnn.training.config import Config
from gfrnn.training.runlog import read_metrics

TRIAL = "a trial: no other row was trained with these settings and this budget, so it compares nothing"
NOT_EVIDENCE = "trials.txt"  # in a folder whose runs were made for something else; it says for what
DEPTH = 3  # folders within folders that are looked into


@dataclass(frozen=True)
class Evidence:
    """All runs, and what was left out and why."""

    runs: tuple[Run, ...]
    left_out: tuple[tuple[Path, str], ...] = ()
    folders: tuple[Path, ...] = ()

    @property
    def groups(self) -> list[Group]:
        """(settings, budget), those with the most characters read first."""
        return self.groups_of({run.row for run in self.runs})

    def groups_of(self, rows: Collection[str]) -> list[Group]:
        """All of them, those in which these rows have read most first: an epoch of programs is not one of text."""
        most = {run.group: 0 for run in self.runs}
        for run in self.runs:
            if run.row in rows:
                most[run.group] = max(most[run.group], run.characters)
        return sorted(most, key=lambda group: (-most[group], group))

    def of(self, row: str, group: Group) -> dict[int, Run]:
        """The runs of a row by seed."""
        return {run.seed: run for run in self.runs if run.row == row and run.group == group}

    def name(self, folder: Path) -> str:
        """A run as it is called in the folder that was asked for."""
        inside = [folder.relative_to(top) for top in self.folders if folder.is_relative_to(top)]
        return str(inside[0]) if inside and str(inside[0]) != "." else folder.name


def collect(folders: Iterable[Path]) -> Evidence:
    """Every run below these folders."""
    folders = tuple(dict.fromkeys(folders))
    runs: list[Run] = []
    left_out: list[tuple[Path, str]] = []
    for folder in folders:
        if not folder.is_dir():
            raise DataError(f"{folder} is no folder")
        for place in run_folders(folder):
            try:
                if (place / NOT_EVIDENCE).exists():
                    why = read_small(place / NOT_EVIDENCE, 1 << 10).decode("utf-8", "replace")
                    left_out.append((place, " ".join(why.split()) or "trials"))
                else:
                    runs.append(read(place))
            except (GfrnnError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                left_out.append((place, str(error)))
    runs, alone = without_repetitions_and_trials(rates_by_row(runs))
    same_text(runs)
    same_programs(runs)
    return Evidence(tuple(runs), (*left_out, *alone), folders)


def run_folders(folder: Path, depth: int = DEPTH) -> Iterator[Path]:
    """Runs, and folders of trials, which are not looked into."""
    if any((folder / name).exists() for name in (CONFIG, METRICS, NOT_EVIDENCE)):
        yield folder
    elif depth:
        for inside in sorted(path for path in folder.iterdir() if path.is_dir()):
            yield from run_folders(inside, depth - 1)


def read(folder: Path) -> Run:
    """A finished run whose every part that the report may use can be read."""
    if not (folder / CONFIG).exists():
        raise DataError(f"it has no {CONFIG}")
    run = Run(folder, Config.load(folder / CONFIG), read_metrics(folder))
    _ = run.group, run.test_bpc, run.grid, run.environment, run.seconds, run.clock, run.characters, run.parameters
    if not run.finished:
        last = run.history[-1]["step"] if run.history else 0
        raise DataError(f"its training is not finished: it is at update {last:,}")
    if run.scored_sha256 and run.model_sha256 not in (None, run.scored_sha256):
        raise DataError(f"it was evaluated with other weights than it has: `gfrnn eval {folder}` does it again")
    return run


def rates_by_row(runs: list[Run]) -> list[Run]:
    """Rows that differ in their learning rates alone are rivals, if each has one: that is what a fair search comes to.

    Not where a recipe was run as it stands, whose own rate is meant.
    """
    rivals: dict[Group, list[Run]] = {}
    for run in runs:
        rivals.setdefault(replace(run, rate_of_its_row=True).group, []).append(run)
    by_row = set()
    for group, members in rivals.items():
        rates = {(run.row, run.config.options[RATE]) for run in members}
        departures = {run.departures.get(RATE) for run in members}
        one_each = len({row for row, _ in rates}) == len(rates)
        if one_each and len(departures) > 1 and not any(run.alone_is_enough for run in members):
            by_row.add(group)
    together = (replace(run, rate_of_its_row=True) for run in runs)
    return [own if own.group in by_row else run for own, run in zip(together, runs, strict=True)]


def worth(run: Run) -> tuple[bool, bool]:
    """To be least: of two that are otherwise the same."""
    return run.test_bpc is None and run.grid is None, run.precision != "float32"


def without_repetitions_and_trials(runs: list[Run]) -> tuple[list[Run], list[tuple[Path, str]]]:
    """The runs that stand in tables: each once, and where an option departs from the recipe two rows with the same.

    A single model with settings or a budget of its own compares nothing: it was a trial. Of repetitions the one
    that says most is kept: scored on the test split, then with products in float32, then the first.
    """
    kept, left_out = [], []
    rows: dict[Group, set[str]] = {}
    same: dict[tuple[str, Group, int], list[Run]] = {}
    for run in runs:
        rows.setdefault(run.group, set()).add(run.row)
        same.setdefault((run.row, run.group, run.seed), []).append(run)
    for run in runs:
        best = min(same[run.row, run.group, run.seed], key=worth)
        if not run.alone_is_enough and len(rows[run.group]) == 1:
            left_out.append((run.folder, TRIAL))
        elif best is run:
            kept.append(run)
        else:
            left_out.append((run.folder, f"the same row, seed and budget as {best.folder}"))
    return kept, left_out


def same_text(runs: Iterable[Run]) -> None:
    """Numbers of different texts do not belong in one table."""
    known = [run for run in runs if run.is_text and run.text_sha256]
    for run in known[1:]:
        first = known[0]
        if run.text_sha256 != first.text_sha256:
            both = " and ".join(f"{r.folder} (sha256 {str(r.text_sha256)[:16]})" for r in (first, run))
            raise DataError(f"two runs are of different texts, {both}: report on one of them at a time")
        if first.blocks and run.blocks:
            first.blocks.comparable(run.blocks)


def same_programs(runs: Iterable[Run]) -> None:
    """Nor do those of different test programs."""
    grids = [(run.folder, run.grid) for run in runs if run.grid]
    for folder, grid in grids[1:]:
        first, other = grids[0]
        if grid["programs_sha256"] != other["programs_sha256"]:
            both = " and ".join(
                f"{f} (sha256 {g['programs_sha256'][:16]})" for f, g in ((first, other), (folder, grid))
            )
            raise DataError(f"two runs were evaluated on different programs, {both}: evaluate all of them again")
