"""ONNX: what is exported computes the same numbers in another runtime, and what cannot be exported says what can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cases
import pytest
import torch
from cases import Case
from tolerance import assert_all_close

onnxruntime: Any

EXPORTED = [
    Case("lstm", "gated", input_skip=True, num_layers=2),
    Case("gru", "feedback", "own", num_layers=2),
    Case("tanh", "stacked", num_layers=2),
]
# The exporters', about themselves and about the checks of shapes that a trace leaves out.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def _runtime() -> None:
    """Not before the first test runs: it takes seconds, and every process of the suite reads every file."""
    global onnxruntime
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")


class Reader(torch.nn.Module):
    """A model around a layer: the exporter that traces hands a bare layer's keyword-only options over by position."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(cases.tensors(self.layer(x)))


def export(layer: Any, x: torch.Tensor, file: Path, dynamo: bool) -> None:
    torch.onnx.export(Reader(layer).eval(), (x,), str(file), dynamo=dynamo, verbose=False)


# An export takes more than a second: each unit and wiring, exporter and kind of input is met, not all with all.
@pytest.mark.parametrize(
    ("case", "kind", "dynamo"),
    [
        (EXPORTED[0], "integer", False),
        (EXPORTED[1], "dense", False),
        pytest.param(EXPORTED[0], "dense", True, marks=pytest.mark.slow),
        (EXPORTED[2], "dense", True),
    ],
    ids=str,
)
def test_the_numbers_in_another_runtime(case: Case, kind: str, dynamo: bool, tmp_path: Path) -> None:
    layer = case.layer(dtype=torch.float32)
    x = cases.dense_input(3, dtype=torch.float32) if kind == "dense" else cases.integer_input(3)
    other = x.flip(0)
    export(layer, x, tmp_path / "layer.onnx", dynamo)
    session = onnxruntime.InferenceSession(str(tmp_path / "layer.onnx"), providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: other.numpy()})
    truth = cases.tensors(case.layer()(other.double() if kind == "dense" else other))
    same_dtype = cases.tensors(case.layer(dtype=torch.float32, backend="reference")(other))
    assert_all_close([torch.from_numpy(part) for part in found], truth, same_dtype)


@pytest.mark.parametrize("backend", [name for name in cases.backends() if name != "reference"])
def test_a_trace_of_a_fast_backend_is_refused(backend: str, tmp_path: Path) -> None:
    layer = EXPORTED[0].layer(dtype=torch.float32, backend=backend)
    with pytest.raises(RuntimeError, match=rf"'{backend}' cannot run .*: torch.jit.trace.*backend=\"reference\""):
        export(layer, cases.dense_input(dtype=torch.float32), tmp_path / "layer.onnx", dynamo=False)


@pytest.mark.skipif("cpu" not in cases.backends(), reason="needs the C++ op")
def test_the_op_has_no_form_in_onnx_and_says_so(tmp_path: Path) -> None:
    layer = EXPORTED[0].layer(dtype=torch.float32, backend="cpu")
    with pytest.raises(torch.onnx.errors.OnnxExporterError, match=r"'cpu' cannot run this call.*backend=\"reference\""):
        export(layer, cases.dense_input(dtype=torch.float32), tmp_path / "layer.onnx", dynamo=True)
