"""The paper's grid of nesting x length: its test programs, a model's accuracy in every cell, and the report of both."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gfrnn.equations import WIRINGS
from gfrnn.errors import DataError
from gfrnn.layers import LAYERS
from gfrnn.models.device import find_device
from gfrnn.models.precision import precisely, trained_in
from gfrnn.models.pretrained import find
from gfrnn.models.seq2seq import Seq2Seq
from gfrnn.progress import LOG, Progress
from gfrnn.storage.cache import cache_folder
from gfrnn.storage.files import read_small, replace_file, sha256_of
from gfrnn.storage.run_folder import CONFIG, GRID, GRID_QUICK, MODEL, MODEL_CONFIG, file_in, model_inside
from gfrnn.storage.tensorfile import unpack_json
from gfrnn.tasks.programs.evaluation import Result, measure, nothing, summary
from gfrnn.tasks.programs.generator import Program, stream
from gfrnn.tasks.programs.jsonl import dump, read
from gfrnn.tasks.programs.settings import LITERALS, Settings

NESTINGS, LENGTHS = range(1, 6), range(1, 11)
PER_CELL, PER_CELL_QUICK = 2000, 200
GRID_SEED = 0
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
VALUES = {digit: value for value, digit in enumerate(DIGITS)}
COUNTS = ("target_symbols", "right_symbols")  # of each program of a cell, for comparing runs program by program


def cell(nesting: int, length: int, count: int, literals: str = "ideal") -> Iterable[Program]:
    """The first test programs of one cell of the grid."""
    return stream(GRID_SEED, count, Settings(length=length, nesting=nesting, literals=literals), split="test")


def grid_programs(per_cell: int = PER_CELL, literals: str = "ideal") -> tuple[list[Program], str]:
    """The test programs of all cells, nesting by nesting, length by length, and the sha256 of their file.

    They are made once and kept in the cache folder; the file's name holds the checksum of what it must contain. A file
    whose cells begin otherwise than today's has other literals or is of another generator, and left alone.
    """
    folder = cache_folder() / "programs"
    cells = [(nesting, length) for nesting in NESTINGS for length in LENGTHS]
    firsts = [program for place in cells for program in cell(*place, 1, literals)]
    for path in sorted(folder.glob(f"test-{per_cell}-*.jsonl")):
        found = sha256_of(path)
        if path.stem != f"test-{per_cell}-{found[:32]}":
            raise DataError(f"{path} was changed after it was written (sha256 {found}): remove it and it is made again")
        programs = list(read(path))
        if len(programs) == len(cells) * per_cell and programs[::per_cell] == firsts:
            return programs, found
    programs = [program for place in cells for program in cell(*place, per_cell, literals)]
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
        LOG.warning(f"gfrnn: {path} could not be kept: {error.strerror}")


def evaluate_grid(
    model: Seq2Seq, per_cell: int = PER_CELL, tick: Callable[[float], None] = nothing, literals: str = "ideal"
) -> dict[str, Any]:
    """Both accuracies of every cell and of all, as a JSON-able report; `tick` gets the fraction done."""
    programs, sha256 = grid_programs(per_cell, literals)
    results = measure(model, programs, tick=tick)
    cells = []
    for number, (nesting, length) in enumerate((n, length) for n in NESTINGS for length in LENGTHS):
        part = results[number * per_cell : (number + 1) * per_cell]
        counts = pack(r.symbols for r in part), pack(r.right for r in part)
        cells.append({"nesting": nesting, "length": length, **summary(part), **dict(zip(COUNTS, counts, strict=True))})
    about = {"per_cell": per_cell, "literals": literals, "programs_sha256": sha256}
    return {**about, **summary(results), "cells": cells}


def pack(counts: Iterable[int]) -> str:
    """Small counts, one for each program, as a text: a character each.

    >>> pack([0, 9, 10, 20]), unpack("09ak")
    ('09ak', [0, 9, 10, 20])
    """
    return "".join(DIGITS[count] for count in counts)


def unpack(text: str) -> list[int]:
    return [VALUES[character] for character in text]


def grid_of(
    run: str | Path,
    *,
    quick: bool = False,
    progress: Callable[[str], Progress] = Progress,
    again: bool = False,
    device: str = "cpu",
    precision: str | None = None,
) -> dict[str, Any]:
    """The report of a run's best model: the one kept in the run folder if it is of this model, else a new one.

    Of a run that is published without its weights, the report kept there is all there is. The test programs have
    literals of the kind that the model was trained on. `precision` of the products: unless told otherwise, as trained;
    a report in another is not kept.

    >>> grid_of("no/such/run")
    Traceback (most recent call last):
    gfrnn.errors.DataError: no/such/run is neither a folder nor a model in the package
    """
    kept = Path(run) / (GRID_QUICK if quick else GRID)
    if not again and kept.exists() and model_inside(Path(run)) is None:
        return read_report(kept)
    folder = find(run)
    model_sha256, (updates, literals) = sha256_of(file_in(folder, MODEL)), training_of(folder)
    model = Seq2Seq.from_pretrained(run).to(find_device(device))
    identity = {"unit": model.decoder.unit, "wiring": model.decoder.wiring, "hidden_size": model.decoder.hidden_size}
    identity["parameters"] = sum(p.numel() for p in model.parameters())
    if kept.exists() and not again:
        report = read_report(kept)
        if report["model_sha256"] == model_sha256:
            return {**report, "model": identity, "updates": updates}
    started, trained = time.monotonic(), trained_in(run) if device == "cpu" else "float32"
    products = precision or trained
    with progress("eval") as bar, precisely(products, model):
        per_cell = PER_CELL_QUICK if quick else PER_CELL
        grid = evaluate_grid(model, per_cell, lambda done: bar.show_if_due(done, ""), literals)
    seconds = round(time.monotonic() - started, 1)
    report = {"model": identity, "model_sha256": model_sha256, "updates": updates, "seconds": seconds, **grid}
    report |= {} if products == "float32" else {"precision": products}
    if (Path(run) / CONFIG).exists() and products == trained:
        keep(kept, (json.dumps(report, indent=1) + "\n").encode())
    return report


def training_of(folder: Path) -> tuple[int | None, str]:
    """After how many updates the model in this folder was saved, where its config.json says so; and its literals."""
    training = unpack_json(read_small(file_in(folder, MODEL_CONFIG)), folder / MODEL_CONFIG).get("training")
    known = training if isinstance(training, dict) else {}
    step, data = known.get("step"), known.get("data")
    literals = data.get("literals") if isinstance(data, dict) else None
    return step if type(step) is int and step >= 0 else None, literals if literals in LITERALS else "ideal"


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
    if report.get("literals", "ideal") not in LITERALS:
        return "its literals are of no kind that there is"
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
    programs = (
        f"{report['programs']:,} programs, {report['per_cell']:,} a cell, {report.get('literals', 'ideal')} literals"
    )
    return "\n".join(
        [*lines, f"{programs}; {report['nats_per_symbol']:.4f} nats per symbol; {report['seconds']:.0f} s"]
    )
