"""ONNX: step.onnx, one timestep with the state in and out, and sequence.onnx, that step in ONNX's own loop.

Torch's exporter would unroll the loop over time, to a file and an hour that grow with its length; `Scan` keeps both
small and the length free.
"""

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import gfrnn
from gfrnn.errors import UsageError
from gfrnn.export.step import SHORT_SEQUENCES, Function, Step, check
from gfrnn.models.char_lm import CharLM

NEEDED = ("onnx", "onnxruntime", "onnxscript")
STEP, SEQUENCE = "step.onnx", "sequence.onnx"
INSIDE = "step/"  # what names in the body of the loop begin with: they must not be those around it


def write(model: CharLM, folder: Path) -> dict[str, float]:
    """Write both files to `folder`; returns how far each is from the model."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"ONNX needs {', '.join(missing)}, not installed here: pip install {' '.join(missing)}")
    import onnx

    step = Step(model)
    made = exported(step)
    for key, value in {"vocabulary": model.vocabulary.symbols.hex(), "gfrnn": gfrnn.__version__}.items():
        made.metadata_props.add(key=key, value=value)
    onnx.save(made, folder / STEP)
    onnx.save(looped(made, step.state_names()), folder / SEQUENCE)
    return {
        STEP: check(STEP, model, runner(folder / STEP)),
        SEQUENCE: check(SEQUENCE, model, runner(folder / SEQUENCE), SHORT_SEQUENCES),
    }


def exported(step: Step) -> Any:
    names = step.state_names()
    with quietly():
        program = torch.onnx.export(
            step,
            step.example(),
            dynamo=True,
            verbose=False,
            dynamic_shapes=step.dynamic_shapes(),
            input_names=["symbol", *names],
            output_names=["logits", *(f"{name}_next" for name in names)],
        )
    assert program is not None
    return program.model_proto


def looped(made: Any, state: list[str]) -> Any:
    """The model that runs the step `made` over symbols (T, B): any length, any number of rows."""
    import onnx
    from onnx import helper

    graph, weights = made.graph, {tensor.name for tensor in made.graph.initializer}
    body = onnx.GraphProto(name="step", node=graph.node)
    # The state comes first in a loop, then what is taken step by step.
    symbol, *start = graph.input
    logits, *last = graph.output
    body.input.extend([*start, symbol])
    body.output.extend([*last, logits])
    for node in body.node:
        node.input[:] = [name if name in weights or not name else INSIDE + name for name in node.input]
        node.output[:] = [name and INSIDE + name for name in node.output]
    for value in (*body.input, *body.output):
        value.name = INSIDE + value.name
    kind, (rows, symbols) = logits.type.tensor_type.elem_type, shape_of(logits)
    ends = [f"{name}_last" for name in state]
    scan = helper.make_node("Scan", [*state, "symbols"], [*ends, "logits"], body=body, num_scan_inputs=1)
    around = helper.make_graph(
        [scan],
        "sequence",
        [helper.make_tensor_value_info("symbols", onnx.TensorProto.INT64, ["time", rows]), *start],
        [
            helper.make_tensor_value_info("logits", kind, ["time", rows, symbols]),
            *(helper.make_tensor_value_info(name, kind, shape_of(one)) for name, one in zip(ends, start, strict=True)),
        ],
        initializer=graph.initializer,
    )
    whole = onnx.ModelProto()
    whole.CopyFrom(made)
    whole.graph.CopyFrom(around)
    onnx.checker.check_model(whole)
    return whole


def shape_of(value: Any) -> list[int | str]:
    return [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]


def runner(file: Path) -> Function:
    """The file as a function of tensors, in onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]

    def run(*tensors: Tensor) -> list[Tensor]:
        given = dict(zip(names, (tensor.numpy() for tensor in tensors), strict=True))
        return [torch.from_numpy(part) for part in session.run(None, given)]

    return run


@contextmanager
def quietly() -> Iterator[None]:
    """The exporter talks about itself, in warnings and in logs."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
