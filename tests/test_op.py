"""The C++ operators themselves: registration, promised shapes, and what they do with nonsense."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import cases
import op_calls
import pytest
import torch
from op_calls import BACKWARD, FORWARD, SWITCHES
from problems import Problem
from torch import Tensor
from torch.utils._pytree import tree_map_only

from gfrnn import ops
from gfrnn.equations import State
from gfrnn.ops import cpu
from gfrnn.ops.call import Call

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src/gfrnn/ops/cpu"
needs_op = pytest.mark.skipif(bool(cpu.why_unavailable()), reason="; ".join(cpu.why_unavailable()))

COVERING = [
    Problem("lstm", "gated", input_skip=True, dropout=True),
    Problem("gru", "gated", gates_see="own", indices=True),
    Problem("tanh", "feedback", bias=False),
    Problem("lstm", "stacked", num_layers=1),
    Problem("bounded-lstm", "gated", normalise=True),
]
covering = pytest.mark.parametrize("problem", COVERING, ids=str)
every_kind = pytest.mark.parametrize(
    "problem",
    [
        Problem(unit, wiring, gates_see=see, indices=unit == "gru", ragged=unit == "lstm", dropout=True)
        for unit, wiring, see in cases.KINDS
        if "cpu" in cases.backends_of(unit, wiring)
    ]
    + [Problem(case.unit, case.wiring, normalise=case.normalise, ragged=True) for case in cases.BEYOND],
    ids=str,
)


def leaf(tensor: Tensor) -> Tensor:
    return tensor.clone().requires_grad_(tensor.is_floating_point())


@needs_op
@covering
def test_opcheck_forward(problem: Problem) -> None:
    plain = {**op_calls.forward_arguments(problem), "bfloat16": problem.input_skip}
    arguments = tuple(plain[name] for name in (*FORWARD, *SWITCHES))
    torch.library.opcheck(torch.ops.gfrnn.scan_forward.default, arguments)
    torch.library.opcheck(torch.ops.gfrnn.scan_forward.default, tree_map_only(Tensor, leaf, arguments))


@needs_op
@covering
def test_opcheck_backward(problem: Problem) -> None:
    plain = op_calls.backward_arguments({**op_calls.forward_arguments(problem), "bfloat16": problem.input_skip})
    torch.library.opcheck(torch.ops.gfrnn.scan_backward.default, tuple(plain[name] for name in BACKWARD))


@needs_op
def test_opcheck_of_ragged_rows() -> None:
    """Without comparing values: what is kept for the backward has none beyond a row's end."""
    problem = Problem("lstm", "gated", ragged=True)
    plain = op_calls.forward_arguments(problem)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    arguments = tuple(plain[name] for name in (*FORWARD, *SWITCHES))
    torch.library.opcheck(torch.ops.gfrnn.scan_forward.default, arguments, test_utils=checks)


@needs_op
@pytest.mark.parametrize("switches", [(True, True), (False, True), (True, False), (False, False)])
@every_kind
def test_fakes_promise_what_comes(problem: Problem, switches: tuple[bool, bool]) -> None:
    arguments = {**op_calls.forward_arguments(problem), **dict(zip(SWITCHES, switches, strict=True))}
    assert_promises_kept(op_calls.forward, op_calls.forward_shapes(arguments), arguments)
    if arguments["keep"]:
        for need_dx in (True, False):
            backward = {**op_calls.backward_arguments(arguments), "need_dx": need_dx}
            assert_promises_kept(op_calls.backward, op_calls.backward_shapes(backward), backward)


def assert_promises_kept(call: Any, shapes: list[tuple[int, ...]], arguments: op_calls.Arguments) -> None:
    """Real results, a fake's and a meta device's have the same shapes, dtypes and strides."""
    from torch._subclasses import FakeTensorMode  # which takes seconds

    real = call(arguments)
    assert [tuple(t.shape) for t in real] == shapes
    with FakeTensorMode() as mode:
        fake = call(tree_map_only(Tensor, mode.from_tensor, arguments))
    meta = call(tree_map_only(Tensor, lambda t: t.to("meta"), arguments))
    for promise in (fake, meta):
        assert [(t.shape, t.dtype, t.stride()) for t in promise] == [(t.shape, t.dtype, t.stride()) for t in real]


def fuzz(calls: int, seed: int) -> dict[str, int]:
    """In a process of its own, so that a crash is a failure; fresh memory is filled with huge numbers."""
    command = [sys.executable, "-X", "faulthandler", str(TESTS / "fuzz_op.py"), str(calls), str(seed)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_PERTURB_": "128"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr}"
    found: dict[str, int] = json.loads(done.stdout)
    assert sum(found.values()) == calls
    return found


@needs_op
def test_nonsense_raises_and_never_crashes() -> None:
    found = fuzz(500, seed=0)
    assert found["raised"] > 125 and found["answered"] > 50


@needs_op
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_much_nonsense_raises_and_never_crashes(seed: int) -> None:
    fuzz(10_000, seed)


def call_with(**changes: Any) -> Call:
    case = cases.Case("lstm", "gated")
    layer = case.layer()
    call = Call(cases.dense_input(), State(*cases.state_of(case)), layer.weights(), layer.spec)
    return call._replace(**changes)


@needs_op
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"x": cases.dense_input().half()}, r"torch.float32, torch.float64, got torch.float16, torch.float64"),
        ({"x": cases.dense_input().float()}, r"torch.float32, torch.float64, got torch.float32, torch.float64"),
        ({"x": cases.dense_input().to("meta")}, r"tensors are on cpu, meta, it runs on cpu"),
        ({"x": cases.integer_input().to("meta")}, r"tensors are on cpu, meta, it runs on cpu"),
        (
            {"state": State(*cases.state_of(cases.Case("lstm", "gated"), dtype=torch.bfloat16))},
            r"torch.float32, torch.float64, got torch.bfloat16, torch.float64",
        ),
    ],
)
def test_the_op_says_what_it_cannot_run(change: dict[str, Any], sentence: str) -> None:
    call = call_with(**change)
    with pytest.raises(RuntimeError, match=rf"backend 'cpu' cannot run this call: .*{sentence}"):
        ops.scan(*call[:4], "cpu")
    assert ops.choose(call, "auto") == "manual"


def test_a_library_that_cannot_be_loaded_is_said(tmp_path: Path) -> None:
    library = tmp_path / "_op.so"
    script = f"""
import importlib
from gfrnn.ops import AUTO, cpu
print(AUTO, cpu.why_unavailable()[0])
open({str(library)!r}, "w").write("no library")
print(AUTO, importlib.reload(cpu).why_unavailable()[0])
"""
    environment = {key: value for key, value in os.environ.items() if key != "GFRNN_NO_OP"}
    environment["GFRNN_OP"] = str(library)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    missing, broken = done.stdout.splitlines()
    assert f"there is no C++ op at {library}" in missing
    assert f"{library} cannot be loaded" in broken


@needs_op
@pytest.mark.parametrize(("field", "value"), [("gates", 5), ("candidate", 0), ("has_cell", False), ("name", "other")])
def test_an_op_built_for_other_units_is_not_used(field: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    built = cpu._units()
    assert cpu._load() == []
    lstm = next(unit for unit in built if unit.name == "lstm")
    monkeypatch.setattr(cpu, "_units", lambda: [*built, lstm._replace(**{field: value})])
    assert cpu._load() == [
        f"the C++ op at {cpu.LIBRARY} was built for other units than this package has: build it again"
    ]


COMPILER, NM = shutil.which(os.environ.get("CXX", "c++")), shutil.which("nm")
LESS_OPTIMISED = ["-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-DGFRNN_ISA=generic"]


def shared_functions(kernels: Path) -> list[str]:
    """Functions of an object file that the linker could share with another's, weak ones included."""
    assert NM is not None
    table = subprocess.run([NM, "-C", str(kernels)], capture_output=True, text=True, check=True).stdout
    symbols = [line[17:].split(" ", 1) for line in table.splitlines() if line[:1] != " "]
    tables = ["gfrnn::kernels_", "gfrnn::rounded_"]
    assert [kind for kind, name in symbols if name[:15] in tables] == ["D"], "one table of kernels is there"
    return [name for kind, name in symbols if kind in "TWiu"]


BUILT = sorted((TESTS.parent / "build/op").rglob("kernels.o"))


@pytest.mark.skipif(NM is None or not BUILT, reason="needs nm, and objects of an op built here")
def test_kernels_share_no_function_with_another_instruction_set() -> None:
    """Or the linker might keep the copy for AVX-512 and run it anywhere."""
    assert [name for kernels in BUILT for name in shared_functions(kernels)] == []


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None or NM is None, reason="needs a C++ compiler and nm")
def test_kernels_share_no_function_even_if_little_is_inlined(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels.o"
    assert COMPILER is not None
    subprocess.run([COMPILER, *LESS_OPTIMISED, "-c", str(SOURCE / "kernels.cpp"), "-o", str(kernels)], check=True)
    assert shared_functions(kernels) == []


BF16_INSTRUCTIONS = [
    "-O1",
    "-mavx2",
    "-mfma",
    "-mf16c",
    "-mavx512f",
    "-mavx512bw",
    "-mavx512dq",
    "-mavx512vl",
    "-mavx512bf16",
]
DOT = """
#include "products.h"
static_assert(Bfloat16::PER == TERMS);
extern "C" void dot(float* sum, const void* a, const void* b) {
  auto pairs = [](const void* p) { return Pairs::fetch(static_cast<const Bits16*>(p)); };
  store<float>(sum, Pairs::add(load<float>(sum), pairs(a), pairs(b)));
}
"""


@pytest.mark.skipif(COMPILER is None or shutil.which("objdump") is None, reason="needs a C++ compiler and objdump")
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="an instruction of x86-64")
@pytest.mark.parametrize("flags", [BF16_INSTRUCTIONS, BF16_INSTRUCTIONS[:-1]], ids=["with", "without"])
def test_pairs_are_multiplied_by_the_instruction_made_for_it(flags: list[str], tmp_path: Path) -> None:
    """Where the compiler may use it; elsewhere by the form that the generic kernels run, and the tests with them."""
    source, compiled = tmp_path / "dot.cpp", tmp_path / "dot.o"
    source.write_text(DOT)
    pairs = flags[-1] == "-mavx512bf16"
    command = [
        str(COMPILER),
        "-std=c++20",
        *flags,
        f"-DTERMS={1 + pairs}",
        f"-I{SOURCE}",
        "-c",
        str(source),
        "-o",
        str(compiled),
    ]
    subprocess.run(command, check=True)
    listing = subprocess.run(["objdump", "-d", str(compiled)], capture_output=True, text=True, check=True).stdout
    assert ("vdpbf16ps" in listing) == pairs
