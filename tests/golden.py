"""Golden losses: 20 updates of every unit x wiring and of each task, kept in golden.json so that moved code stays put.

python tests/golden.py        writes golden.json anew; say in the commit why the numbers changed
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from runs import write_text

from gfrnn import equations
from gfrnn.equations import PAPER
from gfrnn.recipes import find
from gfrnn.training.run import train
from gfrnn.training.runlog import read_metrics

FILE = Path(__file__).with_name("golden.json")
UPDATES = 20
SMALL = {"num_layers": 3, "hidden_size": 10, "epochs": None, "updates": UPDATES, "log_every": 1, "validate_every": 20}
# Short and often reset: a tanh layer that hears three full-strength pasts multiplies rounding errors at every timestep.
TEXT = {"rows": 8, "length": 6, "reset_every": 2, "validate_chars": 8}
PROGRAMS = {"rows": 8, "programs": 400, "pool": 2, "validate_programs": 20}
UNITS, WIRINGS = tuple(unit.name for unit in PAPER), tuple(equations.WIRINGS)


def runs() -> dict[str, tuple[str, dict[str, Any]]]:
    """name -> (recipe, options): every unit x wiring with the paper's settings, both tasks with both settings."""
    text = {
        f"hutter-{wiring}-{unit}": (f"hutter-gated-{unit}", {**SMALL, **TEXT, "wiring": wiring})
        for unit in UNITS
        for wiring in WIRINGS
    }
    late: dict[str, Any] = {**SMALL, **TEXT, "reset_every": 0, "dropout": 0.2, "ema": 0.5}
    modern = {
        "modern-gated-lstm": ("modern-gated-lstm", {**late, "normalise": False, "learning_rate": 4e-3}),
        "modern-gated-lstm-normalised": ("modern-gated-lstm", late),
    }
    programs = {name: (name, {**SMALL, **PROGRAMS}) for name in ("programs-gated-gru", "modern-programs-gated-lstm")}
    return text | modern | programs


def losses(recipe: str, options: dict[str, Any], folder: Path) -> list[float]:
    """Nats per symbol of every update, and what validation finds at the end."""
    config = find(recipe).config
    if config.task == "hutter":
        options = {**options, "data": write_text(folder)}
    train(config.replace(**options, precision="float32"), folder / "run")
    history = read_metrics(folder / "run")
    found = [record["nats"] for record in history if record["kind"] == "train"]
    last = next(record for record in reversed(history) if record["kind"] == "valid")
    return [*found, last.get("bpc") or last["nats_per_symbol"]]


def main() -> None:
    golden = {}
    for name, (recipe, options) in runs().items():
        with tempfile.TemporaryDirectory() as folder:
            golden[name] = losses(recipe, options, Path(folder))
    lines = ",\n".join(f' "{name}": {json.dumps([float(f"{n:.9g}") for n in row])}' for name, row in golden.items())
    FILE.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    main()
