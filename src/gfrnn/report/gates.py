"""What the global reset gates do: g^{i->j} of a trained model over a text, and around tags and line ends.

T time, B rows, L layers. Rows are streams of one text, read side by side.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gfrnn.errors import DataError
from gfrnn.models.char_lm import CharLM
from gfrnn.models.pretrained import evaluating
from gfrnn.progress import Progress
from gfrnn.storage.files import read_small, replace_file

FILE = "gates.json"
STREAMS, WARMUP, CHUNK = 50, 500, 500  # characters each stream reads before, and at a time
CHARACTERS = 500_000  # of the text, at most
BINS, AROUND = 50, 25  # of the histograms; characters before and after an event
DECIMALS = 6
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# What happens at a character: its place in the text is where the match begins.
EVENTS = {
    "a tag opens": re.compile(rb"<(?=[a-z])"),
    "a tag closes": re.compile(rb"</(?=[a-z])"),
    "a line ends": re.compile(rb"\n"),
    "a link opens": re.compile(rb"\[\["),
}


@torch.no_grad()
def measure(model: CharLM, text: bytes, bar: Progress | None = None) -> dict[str, Any]:
    """Mean, spread, histogram and means around events of every gate: lists of (to, from) matrices."""
    text = text[:CHARACTERS]
    layers, part = model.layer.num_layers, len(text) // STREAMS
    if part <= WARMUP + 2 * AROUND:
        raise DataError(f"{len(text):,} characters are too few to watch the gates")
    ids = torch.from_numpy(model.vocabulary.encode(text, unknown="replace").astype(np.int64))
    rows = ids[: STREAMS * part].reshape(STREAMS, part).T  # (T, B)
    gates = np.empty((part, STREAMS, layers, layers), dtype=np.float32)
    state = None
    with evaluating(model):
        for start in range(0, part, CHUNK):
            _, state, g = model.layer(rows[start : start + CHUNK], state, return_gates=True)
            gates[start : start + len(g)] = g.numpy()
            if bar is not None:
                bar.show_if_due(start / part, "gates")
    seen = gates[WARMUP:].reshape(-1, layers, layers).astype(np.float64)
    counted = [np.histogram(seen[:, j, i], BINS, (0.0, 1.0))[0].tolist() for j, i in np.ndindex(layers, layers)]
    histogram = [counted[j * layers : (j + 1) * layers] for j in range(layers)]
    return {
        "characters": len(seen),
        "mean": rounded(seen.mean(0)),
        "deviation": rounded(seen.std(0)),
        "quantiles": {str(q): rounded(np.quantile(seen, q, axis=0)) for q in QUANTILES},
        "histogram": histogram,
        "around": {name: around(text, gates, pattern) for name, pattern in EVENTS.items()},
    }


def around(text: bytes, gates: np.ndarray, pattern: re.Pattern[bytes]) -> dict[str, Any]:
    """How often, and the mean gates from AROUND characters before to AROUND after: (2 * AROUND + 1, to, from)."""
    part, streams = gates.shape[:2]
    places = np.array([match.start() for match in pattern.finditer(text[: part * streams])], dtype=np.int64)
    row, time = places // part, places % part
    inside = (time >= WARMUP + AROUND) & (time < part - AROUND)
    row, time = row[inside], time[inside]
    if not len(row):
        return {"count": 0, "mean": []}
    offsets = range(-AROUND, AROUND + 1)
    return {"count": len(row), "mean": [rounded(gates[time + k, row].mean(0, dtype=np.float64)) for k in offsets]}


def rounded(values: np.ndarray) -> list[Any]:
    return np.round(values, DECIMALS).tolist()


def keep(folder: Path, document: dict[str, Any]) -> None:
    replace_file(folder / FILE, (json.dumps(document) + "\n").encode())


def read(path: Path) -> dict[str, Any]:
    """A gates.json; a DataError says that it is none."""
    try:
        document: dict[str, Any] = json.loads(read_small(path))
        mean = np.array(document["mean"], dtype=np.float64)
        layers = len(mean)
        shapes = [mean.shape, np.array(document["deviation"], dtype=np.float64).shape]
        shapes += [np.array(document["quantiles"][str(q)], dtype=np.float64).shape for q in QUANTILES]
        if set(shapes) != {(layers, layers)} or not layers:
            raise ValueError("its gates are of no number of layers")
        if np.array(document["histogram"], dtype=np.float64).shape != (layers, layers, BINS):
            raise ValueError("its histograms are not whole")
        for name in EVENTS:
            event = document["around"][name]
            if event["count"] and np.array(event["mean"]).shape != (2 * AROUND + 1, layers, layers):
                raise ValueError(f"its means around '{name}' are not whole")
        if not all(isinstance(document[key], str) for key in ("model", "model_sha256", "text")):
            raise ValueError("it does not say what was measured")
        if type(document["characters"]) is not int:
            raise ValueError("its characters are no number")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error} (removed, it is made again)") from error
    return document
