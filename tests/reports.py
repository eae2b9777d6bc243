"""Run folders that say whatever a test of the report needs; nothing is trained."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from gfrnn.recipes import find
from gfrnn.storage.run_folder import GRID
from gfrnn.tasks.programs.evaluation import Result, summary
from gfrnn.tasks.programs.grid import LENGTHS, NESTINGS, pack
from gfrnn.tasks.text import blocks
from gfrnn.tasks.text.score import Score

TEXT = "a" * 64
CHARACTERS = 200_000
MACHINE = {
    "cpu": "Test CPU",
    "threads": 1,
    "torch": "2.13.0",
    "commit": "c" * 40,
    "platform": "Linux",
    "gfrnn": "0.1.0",
}


def write_run(
    folder: Path,
    recipe: str,
    seed: int = 1,
    bpc: float | None = None,
    *,
    curve: tuple[float, ...] = (3.0, 2.5, 2.0),
    seconds: float = 60.0,
    finished: bool = True,
    text: str = TEXT,
    machine: dict[str, Any] = MACHINE,
    **options: Any,
) -> Path:
    """A text run; with `bpc` it was evaluated on the test split, every block costing nearly that."""
    folder.mkdir(parents=True)
    find(recipe).config.replace(seed=seed, **options).save(folder / "config.yaml")
    records: list[dict[str, Any]] = [{"kind": "start", "step": 0, "recipe": recipe}]
    for number, value in enumerate(curve, start=1):
        where = {"seconds": seconds * number, "characters": 1_000_000 * number, "characters_validated": 500_000}
        records.append({"kind": "valid", "step": 100 * number, "bpc": value, "best": True, **where})
    if finished:
        records.append({"kind": "final", "step": 100 * len(curve), "bpc": curve[-1]})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "env.json").write_text(json.dumps(machine))
    if bpc is not None:
        noise = np.random.default_rng(seed).normal(0, 20, CHARACTERS // 1000)
        bits = 1000 * bpc + noise - noise.mean()
        origin = blocks.Origin(text, "test", CHARACTERS, hashlib.sha256(folder.name.encode()).hexdigest())
        blocks.keep(folder, origin, Score(float(bits.sum()), CHARACTERS, bits))
    return folder


def write_programs(
    folder: Path, recipe: str, right: dict[tuple[int, int], list[int]] | int, seed: int = 1, programs: str = "b" * 64
) -> Path:
    """A program run with a grid of 20 programs a cell, of 5 symbols each; `right` says how many of those are right."""
    folder.mkdir(parents=True)
    config = find(recipe).config.replace(seed=seed)
    config.save(folder / "config.yaml")
    record = {"kind": "valid", "step": 100, "symbol_accuracy": 0.5, "characters": 10**6, "seconds": 60.0}
    (folder / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    (folder / "env.json").write_text(json.dumps(MACHINE))
    results, cells = [], []
    for place in ((nesting, length) for nesting in NESTINGS for length in LENGTHS):
        own = [right] * 20 if isinstance(right, int) else right[place]
        part = [Result(5, count, 5.0) for count in own]
        results += part
        counts = {"target_symbols": pack([5] * 20), "right_symbols": pack(own)}
        cells.append({"nesting": place[0], "length": place[1], **summary(part), **counts})
    unit, wiring = config.options["unit"], config.options["wiring"]
    model = {"unit": unit, "wiring": wiring, "hidden_size": 200, "parameters": find(recipe).parameters}
    about = {"model_sha256": "d" * 64, "updates": 100, "seconds": 1.0, "per_cell": 20, "programs_sha256": programs}
    report = {"model": model, **about, **summary(results), "cells": cells}
    (folder / GRID).write_text(json.dumps(report))
    return folder
