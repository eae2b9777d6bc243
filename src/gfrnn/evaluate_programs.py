"""How well a model executes programs: on any list of them, and on the paper's grid of nesting x length.

Symbol accuracy is the paper's: the share of target symbols (the end mark included) that are predicted right with the
correct ones before them given. Exact match is the share of programs whose freely decoded greedy answer is right.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from gfrnn.equations import WIRINGS
from gfrnn.errors import DataError
from gfrnn.files import read_small, replace_file, sha256_of
from gfrnn.intervals import Share, clustered, wilson
from gfrnn.models.char_lm import LAYERS
from gfrnn.models.pretrained import evaluating, find, model_inside
from gfrnn.models.seq2seq import Seq2Seq
from gfrnn.tasks.corpus import cache_folder
from gfrnn.tasks.programs import Program, Settings, stream
from gfrnn.tasks.programs.batches import collate
from gfrnn.tasks.programs.command import dump, read
from gfrnn.tensorfile import unpack_json
from gfrnn.training.progress import Progress
from gfrnn.training.world import World

NESTINGS, LENGTHS = range(1, 6), range(1, 11)
PER_CELL, PER_CELL_QUICK = 2000, 200
FULL, QUICK = "grid.json", "grid-quick.json"  # reports kept in the run folder
GRID_SEED = 0
ROWS = 256
ALONE = World()
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
COUNTS = ("target_symbols", "right_symbols")  # of each program of a cell, for comparing runs program by program


class Result(NamedTuple):
    """What one program got: its target symbols, how many were right, and their cost in nats."""

    symbols: int
    right: int
    nats: float


def symbol_accuracy(results: Sequence[Result]) -> Share:
    return clustered([r.right for r in results], [r.symbols for r in results])


def exact_match(results: Sequence[Result]) -> Share:
    return wilson(sum(r.right == r.symbols for r in results) / len(results), len(results))


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """JSON-able."""
    accuracy, exact = symbol_accuracy(results), exact_match(results)
    symbols = sum(r.symbols for r in results)
    return {
        "programs": len(results),
        "symbols": symbols,
        "symbol_accuracy": accuracy.value,
        "symbol_accuracy_interval": [accuracy.low, accuracy.high],
        "exact_match": exact.value,
        "exact_match_interval": [exact.low, exact.high],
        "nats_per_symbol": sum(r.nats for r in results) / symbols,
    }


def nothing(fraction: float) -> None:
    """What happens between minibatches by default."""


@torch.inference_mode()
def measure(
    model: Seq2Seq,
    programs: Sequence[Program],
    rows: int = ROWS,
    tick: Callable[[float], None] = nothing,
    world: World = ALONE,
) -> list[Result]:
    """A result for every program, in their order; `tick` gets the fraction done.

    The programs are read sorted by length, so that little is padded. The processes of a `world` share the programs of
    every minibatch and return the same results.
    """
    order = sorted(range(len(programs)), key=lambda i: len(programs[i].source))
    results: dict[int, Result] = {}
    with evaluating(model):
        for start in range(0, len(order), rows):
            together = order[start : start + rows]
            chosen = together[world.rows(len(together))]
            if chosen:
                batch = collate([programs[i] for i in chosen])
                nats, right = model.measure(batch)
                got = map(Result, batch.target_lengths.tolist(), right.tolist(), nats.tolist())
                results.update(zip(chosen, got, strict=True))
            tick((start + len(together)) / len(programs))
    return share_results(results, len(programs), world)


def share_results(results: dict[int, Result], count: int, world: World) -> list[Result]:
    """The results of all processes, of `count` programs."""
    if world.size == 1:
        return [results[i] for i in range(count)]
    none = Result(0, 0, 0.0)
    numbers = world.total(*(number for i in range(count) for number in results.get(i, none)))
    return [Result(int(numbers[3 * i]), int(numbers[3 * i + 1]), numbers[3 * i + 2]) for i in range(count)]


def cell(nesting: int, length: int, count: int) -> Iterable[Program]:
    """The first test programs of one cell of the grid."""
    return stream(GRID_SEED, count, Settings(length=length, nesting=nesting), split="test")


def grid_programs(per_cell: int = PER_CELL) -> tuple[list[Program], str]:
    """The test programs of all cells, nesting by nesting, length by length, and the sha256 of their file.

    They are made once and kept in the cache folder; the file's name holds the checksum of what it must contain. A file
    whose cells begin otherwise than today's is of another version of the generator, and left alone.
    """
    folder = cache_folder() / "programs"
    cells = [(nesting, length) for nesting in NESTINGS for length in LENGTHS]
    firsts = [program for place in cells for program in cell(*place, 1)]
    for path in sorted(folder.glob(f"test-{per_cell}-*.jsonl")):
        found = sha256_of(path)
        if path.stem != f"test-{per_cell}-{found[:32]}":
            raise DataError(f"{path} was changed after it was written (sha256 {found}): remove it and it is made again")
        programs = list(read(path))
        if len(programs) == len(cells) * per_cell and programs[::per_cell] == firsts:
            return programs, found
    programs = [program for place in cells for program in cell(*place, per_cell)]
    content = "".join(map(dump, programs)).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    keep(folder / f"test-{per_cell}-{sha256[:32]}.jsonl", content)
    return programs, sha256


def keep(path: Path, content: bytes) -> None:
    """Write what can be made again; where that is impossible, say so and go on."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as error:
        print(f"gfrnn: {path} could not be kept: {error.strerror}", file=sys.stderr)


def evaluate_grid(model: Seq2Seq, per_cell: int = PER_CELL, tick: Callable[[float], None] = nothing) -> dict[str, Any]:
    """Both accuracies of every cell and of all, as a JSON-able report; `tick` gets the fraction done."""
    programs, sha256 = grid_programs(per_cell)
    results = measure(model, programs, tick=tick)
    cells = []
    for number, (nesting, length) in enumerate((n, length) for n in NESTINGS for length in LENGTHS):
        part = results[number * per_cell : (number + 1) * per_cell]
        counts = pack(r.symbols for r in part), pack(r.right for r in part)
        cells.append({"nesting": nesting, "length": length, **summary(part), **dict(zip(COUNTS, counts, strict=True))})
    return {"per_cell": per_cell, "programs_sha256": sha256, **summary(results), "cells": cells}


def pack(counts: Iterable[int]) -> str:
    """Small counts, one for each program, as a text: a character each.

    >>> pack([0, 9, 10, 20]), unpack("09ak")
    ('09ak', [0, 9, 10, 20])
    """
    return "".join(DIGITS[count] for count in counts)


def unpack(text: str) -> list[int]:
    return [DIGITS.index(character) for character in text]


def grid_of(run: str | Path, *, quick: bool = False, quiet: bool = False, again: bool = False) -> dict[str, Any]:
    """The report of a run's best model: the one kept in the run folder if it is of this model, else a new one.

    Of a run that is published without its weights, the report kept there is all there is.

    >>> grid_of("no/such/run")
    Traceback (most recent call last):
    gfrnn.errors.DataError: no/such/run is neither a folder nor a model in the package
    """
    kept = Path(run) / (QUICK if quick else FULL)
    if not again and kept.exists() and model_inside(Path(run)) is None:
        return read_report(kept)
    folder = find(run)
    model_sha256, updates = sha256_of(folder / "model.safetensors"), updates_of(folder)
    model = Seq2Seq.from_pretrained(run)
    identity = {"unit": model.decoder.unit, "wiring": model.decoder.wiring, "hidden_size": model.decoder.hidden_size}
    identity["parameters"] = sum(p.numel() for p in model.parameters())
    if kept.exists() and not again:
        report = read_report(kept)
        if report["model_sha256"] == model_sha256:
            return {**report, "model": identity, "updates": updates}
    started = time.monotonic()
    with Progress("eval", quiet) as progress:
        per_cell = PER_CELL_QUICK if quick else PER_CELL
        grid = evaluate_grid(model, per_cell, lambda done: progress.show(done, "") if progress.due() else None)
    seconds = round(time.monotonic() - started, 1)
    report = {"model": identity, "model_sha256": model_sha256, "updates": updates, "seconds": seconds, **grid}
    if (Path(run) / "config.yaml").exists():
        keep(kept, (json.dumps(report, indent=1) + "\n").encode())
    return report


def updates_of(folder: Path) -> int | None:
    """After how many updates the model in this folder was saved, where its config.json says so."""
    training = unpack_json(read_small(folder / "config.json"), folder / "config.json").get("training")
    step = training.get("step") if isinstance(training, dict) else None
    return step if type(step) is int and step >= 0 else None


def read_report(path: Path) -> dict[str, Any]:
    """A grid.json, all of whose numbers follow from its counts; a DataError says that it is none."""
    content = read_small(path)
    try:
        report = json.loads(content)
        flaw = flaw_of(report)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        flaw = "it is no report of a whole grid"
    if flaw:
        raise DataError(f"{path} is damaged: {flaw} (`gfrnn eval` makes it again if removed)")
    return report


def flaw_of(report: dict[str, Any]) -> str:
    """What is wrong with a report, if anything. It may also raise whatever data of another shape makes it raise."""
    if report["model"]["unit"] not in LAYERS or report["model"]["wiring"] not in WIRINGS:
        return "its model has no unit and wiring that there are"
    if not all(re.fullmatch("[0-9a-f]{64}", report[name]) for name in ("model_sha256", "programs_sha256")):
        return "it lacks a checksum"
    if type(report["per_cell"]) is not int or not isinstance(report.get("updates"), int | None):
        return "its programs a cell or its updates are no whole number"
    places = [(nesting, length) for nesting in NESTINGS for length in LENGTHS]
    if [(cell["nesting"], cell["length"]) for cell in report["cells"]] != places:
        return "its cells are not those of the grid"
    results = []
    for cell, (nesting, length) in zip(report["cells"], places, strict=True):
        symbols, right = (unpack(cell[name]) for name in COUNTS)
        part = [Result(s, r, s * cell["nats_per_symbol"]) for s, r in zip(symbols, right, strict=True)]
        if len(part) != report["per_cell"] or not all(r.symbols >= 1 and r.right <= r.symbols for r in part):
            return f"the counts of nesting {nesting}, length {length} are not those of its programs"
        if not 0 <= cell["nats_per_symbol"] < math.inf or not agree(cell, summary(part)):
            return f"the numbers of nesting {nesting}, length {length} do not follow from its counts"
        results += part
    return "" if agree(report, summary(results)) else "its numbers do not follow from those of its cells"


def agree(stored: dict[str, Any], made: dict[str, Any]) -> bool:
    """Whether every number that can be made is the stored one, up to rounding."""
    for name, value in made.items():
        old, new = (stored[name], value) if isinstance(value, list) else ([stored[name]], [value])
        if not all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b in zip(old, new, strict=True)):
            return False
    return True


def table(report: dict[str, Any]) -> str:
    """The report for a terminal: both accuracies in percent, nesting down, length across."""
    cells = {(cell["nesting"], cell["length"]): cell for cell in report["cells"]}
    lines = []
    for name, title in (("symbol_accuracy", "symbols right"), ("exact_match", "greedy answers right")):
        low, high = report[f"{name}_interval"]
        lines.append(f"{title}: {100 * report[name]:.2f} %  (95 %: {100 * low:.2f} to {100 * high:.2f})")
        lines.append("  nesting \\ length" + "".join(f"{length:7d}" for length in LENGTHS))
        for nesting in reversed(NESTINGS):
            row = "".join(f"{100 * cells[nesting, length][name]:7.1f}" for length in LENGTHS)
            lines.append(f"  {nesting:16d}{row}")
        widest = max(abs(cell[name] - end) for cell in report["cells"] for end in cell[f"{name}_interval"])
        lines += [f"  a cell's 95 % interval is at most +-{100 * widest:.1f} points", ""]
    programs = f"{report['programs']:,} programs, {report['per_cell']:,} a cell"
    return "\n".join(
        [*lines, f"{programs}; {report['nats_per_symbol']:.4f} nats per symbol; {report['seconds']:.0f} s"]
    )


def report_run(run: str, *, quick: bool, as_json: bool, quiet: bool) -> int:
    """What `gfrnn eval RUN` does for a model of this task."""
    report = grid_of(run, quick=quick, quiet=quiet or as_json, again=True)
    if as_json:
        report["cells"] = [{key: cell[key] for key in cell if key not in COUNTS} for cell in report["cells"]]
    print(json.dumps(report) if as_json else table(report))
    return 0
