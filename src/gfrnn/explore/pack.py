"""A model as the page carries it: what it is, and its weights as text."""

import base64
from pathlib import Path
from typing import Any

import numpy as np

from gfrnn.equations import EPSILON
from gfrnn.errors import DataError, UsageError
from gfrnn.models.char_lm import CharLM
from gfrnn.models.pretrained import find, read_model

KEPT = ("unit", "wiring", "hidden_size", "num_layers", "gates_see", "input_skip", "output", "vocabulary")


def load(run: str | Path) -> CharLM:
    """The text model of a run folder, a model folder, or the package."""
    if read_model(find(run))[0].get("architecture") == "Seq2Seq":
        raise UsageError(
            f"{run} is a program model, and the page is for text models: ask it by gfrnn run-program {run}"
        )
    return CharLM.from_pretrained(run)


def packed(model: CharLM, name: str) -> dict[str, Any]:
    """The model with its matrices in 16 bits and its vectors in 32: what `CharLM.as_half` computes with.

    The vectors come first, so that every tensor begins where its numbers may.
    """
    tensors: list[dict[str, Any]] = []
    data = bytearray()
    state = {key: tensor.detach().float().numpy() for key, tensor in model.state_dict().items()}
    for key, values in sorted(state.items(), key=lambda item: item[1].ndim):
        bits = 16 if values.ndim > 1 else 32
        with np.errstate(over="ignore"):
            stored = values.astype(f"<f{bits // 8}")
        if not np.isfinite(stored).all():
            raise DataError(f"{name}: {key} has numbers that 16 bits cannot hold")
        tensors.append({"name": key, "shape": list(values.shape), "bits": bits, "at": len(data)})
        data += stored.tobytes()
    return {
        "name": name,
        "config": {key: model.config[key] for key in KEPT} | {"epsilon": EPSILON if model.layer.normalise else 0},
        "parameters": sum(values.size for values in state.values()),
        "tensors": tensors,
        "data": base64.b64encode(data).decode("ascii"),
    }


def names_of(runs: list[str]) -> list[str]:
    """What the page calls its models: the run's own name, and more of the path where two would be alike.

    >>> names_of(["runs/gated/best", "runs/stacked/"])
    ['gated', 'stacked']
    >>> names_of(["here/gated", "there/gated"])
    ['here/gated', 'there/gated']
    """
    paths = [Path(run).resolve() if run in (".", "..") else Path(run) for run in runs]
    parts = [path.parent.parts if path.name == "best" and path.parent.name else path.parts for path in paths]
    names = ["/".join(part[-1:]) for part in parts]
    if len(set(names)) < len(names):
        names = ["/".join(part[-2:]) for part in parts]
    return names
