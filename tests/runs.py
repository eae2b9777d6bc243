"""Small runs for the tests of training: a short real text, a small model, a few updates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gfrnn.recipes import find
from gfrnn.storage.tensorfile import unpack_tensors
from gfrnn.tasks.text import corpus
from gfrnn.training.config import Config
from gfrnn.training.run import train
from gfrnn.training.runlog import read_metrics

TEXT_BYTES = 20_000
# Everything that is carried from update to update is in play: state, dropout, averages, momenta, halvings.
TINY: dict[str, Any] = {
    "hidden_size": 6,
    "num_layers": 2,
    "rows": 3,
    "length": 7,
    "reset_every": 4,
    "dropout": 0.3,
    "ema": 0.9,
    "warmup": 3,
    "explode": 50.0,
    "epochs": None,
    "updates": 12,
    "validate_every": 5,
    "checkpoint_every": 3,
    "log_every": 2,
    "validate_chars": 0,
}


def write_text(folder: Path) -> str:
    path = folder / "text.txt"
    if not path.exists():
        path.write_bytes(corpus.excerpt().bytes[:TEXT_BYTES].tobytes())
    return str(path)


def tiny(folder: Path, recipe: str = "modern-gated-lstm", **options: Any) -> Config:
    return find(recipe).config.replace(data=write_text(folder), **{**TINY, **options})


def run_tiny(folder: Path, name: str = "run", recipe: str = "modern-gated-lstm", **options: Any) -> dict[str, Any]:
    return train(tiny(folder, recipe, **options), folder / name)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


CLOCK = ("seconds", "saved_at")


def outcome(run: Path) -> dict[str, Any]:
    """All a run comes to, apart from what the clock says and from how often it was interrupted."""
    last = run / "checkpoints" / (run / "LATEST").read_text().strip()
    counters = json.loads((last / "train.json").read_text())
    tensors = {
        name: unpack_tensors((last / name).read_bytes(), name) for name in ("model.safetensors", "train.safetensors")
    }
    history = [
        {key: value for key, value in record.items() if key not in CLOCK}
        for record in read_metrics(run)
        if record["kind"] != "resume"
    ]
    return {
        "tensors": {(file, name): t.numpy().tobytes() for file, part in tensors.items() for name, t in part.items()},
        "counters": {key: value for key, value in counters.items() if key not in CLOCK},
        "history": history,
        "best": files(run / "best"),
        "steps": sorted(path.name for path in (run / "checkpoints").iterdir()),
    }
