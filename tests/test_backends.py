"""Each backend against the rung below: outputs, last state, gates and every gradient, at sizes around every edge.

The reference is held against the oracle elsewhere; here `manual` is held against it, and `cpu` against both.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cases
import problems
import pytest
import torch
from cases import WIRINGS, every_backend
from problems import Problem, assert_agree, assert_equal_bits, given, run, solve
from tolerance import assert_close
from torch import Tensor

from gfrnn import ops
from gfrnn.ops import cpu, manual_forward, matrices

FAST = [name for name in cases.backends() if name != "reference"]
fast_backends = pytest.mark.parametrize("backend", FAST)
needs_op = pytest.mark.skipif(bool(cpu.why_unavailable()), reason="; ".join(cpu.why_unavailable()))
both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])

# One of each unit and wiring with everything else switched on somewhere.
FEW = [
    Problem("lstm", "gated", hidden=19, time=7, batch=5, input_skip=True, indices=True),
    Problem("lstm", "gated", hidden=33, time=9, batch=30, gates_see="own", ragged=True, dropout=True),
    Problem("gru", "gated", hidden=17, time=9, batch=15, ragged=True, dropout=True, input_skip=True),
    Problem("gru", "gated", hidden=9, time=5, batch=4, gates_see="own", indices=True, ragged=True),
    Problem("tanh", "gated", hidden=40, time=6, batch=9, indices=True, ragged=True, bias=False),
    Problem("lstm", "feedback", hidden=6, time=60, batch=13, ragged=True),
    Problem("gru", "feedback", hidden=12, time=4, batch=29, gates_see="own", input_skip=True, bias=False),
    Problem("tanh", "stacked", hidden=15, time=8, batch=2, dropout=True),
    Problem("gru", "stacked", hidden=7, time=3, batch=1, num_layers=2),
    Problem("lstm", "stacked", hidden=16, time=5, batch=700, num_layers=1),
    Problem("bounded-lstm", "gated", hidden=18, time=7, batch=11, indices=True, ragged=True),
    Problem("gru", "gated", hidden=21, time=6, batch=14, ragged=True, dropout=True, normalise=True),
    Problem("lstm", "gated", hidden=35, time=40, batch=16, input_skip=True, indices=True, normalise=True),
]
few_problems = pytest.mark.parametrize("problem", FEW, ids=str)


def assert_all_backends_agree(problem: Problem) -> None:
    """Every backend in both dtypes against the float64 reference; nobody may err more than the policy says."""
    truth = solve(problem, "reference", torch.float64)
    in_float32 = solve(problem, "reference", torch.float32)
    for backend in set(FAST) & set(cases.backends_of(problem.unit, problem.wiring, problem.normalise)):
        assert_agree(problem, solve(problem, backend, torch.float64), truth)
        assert_agree(problem, solve(problem, backend, torch.float32), truth, in_float32)


@pytest.mark.parametrize("problem", problems.covering(), ids=str)
def test_every_two_sizes_and_options_meet(problem: Problem) -> None:
    assert_all_backends_agree(problem)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("num_layers", problems.SIZES["num_layers"])
@pytest.mark.parametrize("hidden", problems.SIZES["hidden"])
@pytest.mark.parametrize("wiring", WIRINGS)
@pytest.mark.parametrize("unit", cases.UNITS)
def test_every_size(unit: str, wiring: str, hidden: int, num_layers: int) -> None:
    for problem in problems.product(unit=unit, wiring=wiring, hidden=hidden, num_layers=num_layers):
        assert_all_backends_agree(problem)


def test_the_covering_list_covers() -> None:
    """Every unit and wiring meets every size, and the product is the whole grid."""
    chosen = problems.covering()
    for axis in ("unit", "wiring"):
        for other, values in problems.SIZES.items():
            met = {(getattr(p, axis), getattr(p, other)) for p in chosen}
            assert met >= {(x, y) for x in problems.SIZES[axis] for y in values} or axis == other
    assert len(list(problems.product())) == 4 * 3 * 6 * 4 * 3 * 4
    assert len({(p.hidden, p.time, p.batch, p.num_layers) for p in problems.product(unit="gru")}) == 6 * 4 * 3 * 4


@functools.cache
def truths(problem: Problem, products: torch.dtype | None = None) -> tuple[problems.Answer, problems.Answer]:
    return (
        solve(problem, "reference", torch.float64, products),
        solve(problem, "reference", torch.float32, products),
    )


every_arithmetic = pytest.mark.parametrize(
    ("dtype", "products"),
    [(torch.float32, None), (torch.float64, None), (torch.float32, torch.bfloat16)],
    ids=["float32", "float64", "bfloat16 products"],
)


@needs_op
@every_arithmetic
@few_problems
def test_the_number_of_threads_changes_no_bit(
    problem: Problem, dtype: torch.dtype, products: torch.dtype | None
) -> None:
    answers = []
    for threads in (1, 2, 3):  # three: an uneven split, even where there are two cores
        torch.set_num_threads(threads)
        answers.append(solve(problem, "cpu", dtype, products))
    assert_equal_bits(answers[1], answers[0])
    assert_equal_bits(answers[2], answers[0])
    torch.set_num_threads(1)
    truth, same_dtype = truths(problem, products)
    assert_agree(problem, answers[0], truth, same_dtype if dtype == torch.float32 else None, products)


@needs_op
@pytest.mark.parametrize("products", [None, torch.bfloat16])
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_fewer_rows_than_threads(batch: int, products: torch.dtype | None) -> None:
    problem = Problem("lstm", "gated", hidden=70, time=5, batch=batch, input_skip=True)
    answers = []
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        answers.append(solve(problem, "cpu", torch.float32, products))
    assert_equal_bits(answers[1], answers[0])
    assert_equal_bits(answers[2], answers[0])


def every_other(tensor: Tensor) -> Tensor:
    """The same numbers, every other element of a tensor twice as wide."""
    wide = torch.full((*tensor.shape, 2), float("nan")).to(tensor.dtype)
    wide[..., 0] = tensor
    return wide[..., 0]


def turned(tensor: Tensor) -> Tensor:
    """The same numbers, with the axes in memory the other way round."""
    return tensor.permute(*reversed(range(tensor.dim()))).contiguous().permute(*reversed(range(tensor.dim())))


@pytest.mark.parametrize("layout", [every_other, turned])
@fast_backends
@few_problems
def test_the_layout_in_memory_changes_nothing(problem: Problem, backend: str, layout: Any) -> None:
    plain = given(problem, torch.float64)
    strange = {}
    for name, tensor in plain.items():
        laid_out = layout(tensor.detach())
        assert torch.equal(laid_out, tensor)
        strange[name] = laid_out.requires_grad_(tensor.requires_grad)
    assert any(not tensor.is_contiguous() for tensor in strange.values())
    assert_agree(problem, run(problem, backend, strange), run(problem, backend, plain))


@fast_backends
@pytest.mark.parametrize("problem", [p for p in FEW if p.batch > 1], ids=str)
def test_expanded_tensors(problem: Problem, backend: str) -> None:
    """x, states and weights with a stride of 0; each of their elements gets its own gradient."""
    plain = given(problem, torch.float64)
    expanded = {}
    for name, tensor in plain.items():
        one = tensor.detach().narrow(1 if name in ("x", "h0", "c0") else 0, 0, 1)
        wide = one if name in ("lengths", "masks") else one.expand(tensor.shape)
        expanded[name] = tensor if name in ("lengths", "masks") else wide.requires_grad_(tensor.requires_grad)
    assert 0 in expanded["h0"].stride() and 0 in expanded["weight_ih_l0"].stride()
    copies = {name: tensor.detach().clone().requires_grad_(tensor.requires_grad) for name, tensor in expanded.items()}
    found = run(problem, backend, expanded)
    assert found["gradient of h0"].shape == copies["h0"].shape
    assert_agree(problem, found, run(problem, "reference", copies))


@pytest.mark.parametrize("problem", [problem for problem in FEW if not problem.normalise], ids=str)
def test_manual_takes_a_long_sequence_in_blocks(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two timesteps at a time, the last block shorter where T is odd: what passes between blocks is everything."""
    monkeypatch.setattr(manual_forward, "ROWS", 2 * problem.batch)
    assert len(manual_forward.blocks(problem.time, problem.batch)) > 1
    assert_agree(problem, solve(problem, "manual", torch.float64), truths(problem)[0])


@pytest.mark.parametrize("problem", FEW, ids=str)
def test_manual_lays_its_factors_down(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does for sequences longer than those here."""
    laid_down = []
    by_columns = matrices.by_columns
    monkeypatch.setattr(matrices, "WORTH_LAYING_DOWN", 1)
    monkeypatch.setattr(matrices, "by_columns", lambda matrix: laid_down.append(matrix) or by_columns(matrix))
    assert_agree(problem, solve(problem, "manual", torch.float64), truths(problem)[0])
    assert laid_down


@every_backend
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_every_integer_type_is_an_index(dtype: torch.dtype, backend: str) -> None:
    layer = cases.Case("gru", "gated", input_skip=True).layer(backend=backend)
    x = cases.integer_input()
    truth = cases.tensors(layer(torch.nn.functional.one_hot(x, cases.INPUT).double()))
    for found, expected in zip(cases.tensors(layer(x.to(dtype))), truth, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@fast_backends
@few_problems
def test_each_leaf_alone(problem: Problem, backend: str) -> None:
    """Only one tensor asks for its gradient: the initial state, a weight, or the input."""
    everything = run(problem, backend, given(problem, torch.float64))
    for chosen in ("h0", "c0", "x", "weight_hh_l0"):
        tensors = given(problem, torch.float64)
        if chosen not in tensors or not tensors[chosen].is_floating_point():
            continue
        frozen = {name: tensor.detach() for name, tensor in tensors.items()}
        frozen[chosen].requires_grad_()
        name = f"gradient of {chosen}"
        assert_agree(problem, {name: run(problem, backend, frozen)[name]}, {name: everything[name]})


@every_backend
@pytest.mark.parametrize("wiring", WIRINGS)
@pytest.mark.parametrize("unit", cases.UNITS)
def test_no_rows_at_all(unit: str, wiring: str, backend: str) -> None:
    problem = Problem(unit, wiring, batch=0, input_skip=True, ragged=True, dropout=True)
    found = run(problem, backend, given(problem, torch.float64))
    assert found["output"].shape == (problem.time, 0, problem.num_layers * problem.hidden)
    assert found["gates"].shape == (problem.time, 0, problem.num_layers, problem.num_layers)
    assert all(not tensor.any() for name, tensor in found.items() if name.startswith("gradient"))


@every_backend
def test_batch_first(backend: str) -> None:
    case = cases.Case("lstm", "gated", input_skip=True)
    layer = case.layer(backend=backend, output="all")
    turned_layer = case.layer(backend=backend, output="all", batch_first=True)
    x = cases.dense_input(9, 5)
    truth, (h_n, c_n), g = layer(x, return_gates=True)
    output, (h_m, c_m), turned_g = turned_layer(x.transpose(0, 1), return_gates=True)
    assert torch.equal(output.transpose(0, 1), truth) and torch.equal(turned_g.transpose(0, 1), g)
    assert torch.equal(h_m, h_n) and torch.equal(c_m, c_n)


@needs_op
@both_dtypes
def test_tanh_and_sigmoid_over_the_whole_range(dtype: torch.dtype) -> None:
    """Relative to their values, however small: a unit without past is tanh(x), its global reset gate sigmoid(x)."""
    steps = torch.linspace(-2, 2, 4001, dtype=torch.float64)
    edges = torch.tensor([0.0, 1e-30, 1e-7, 8.5, 17.0, 43.5, 44.0, 87.5, 88.5, 354.0, 709.5, 1e4, 1e30, float("inf")])
    values = torch.cat([steps, 50 * steps, edges, -edges]).to(dtype)
    layer = cases.Case("tanh", "gated", bias=False, num_layers=1).layer(1, 1, dtype=dtype, backend="cpu")
    torch.nn.init.ones_(layer.weight_ih_l0)
    torch.nn.init.ones_(layer.weight_ig_l0)
    with torch.no_grad():
        output, _, g = layer(values.view(1, -1, 1), return_gates=True)
    for found, function in ((output, torch.tanh), (g, torch.sigmoid)):
        truth = function(values.double())
        enough = truth.abs() > torch.finfo(dtype).tiny / torch.finfo(dtype).eps  # below, few bits are left
        assert torch.equal(found.flatten()[values == 0], truth[values == 0].to(dtype))
        assert found.isfinite().all()
        ratios = [(result.flatten().double() / truth)[enough] for result in (found, function(values))]
        assert_close(ratios[0].to(dtype), torch.ones_like(ratios[0]), ratios[1], function.__name__)


CHILD = """
import sys
import torch
import test_backends
from gfrnn.ops import cpu
answers, rounded = (
    {str(p): test_backends.solve(p, "cpu", torch.float32, products) for p in test_backends.FEW}
    for products in (None, torch.bfloat16)
)
torch.save({"isa": cpu.isa(), "answers": answers, "rounded": rounded}, sys.argv[1])
"""


WORST_FIRST = ["generic", "avx2", "avx512", "avx512_bf16", "amx_bf16"]
LESSER = WORST_FIRST[:2] if cpu.why_unavailable() else WORST_FIRST[: WORST_FIRST.index(cpu.isa())]


@needs_op
@pytest.mark.parametrize("isa", LESSER)
def test_lesser_instruction_sets(isa: str, tmp_path: Path) -> None:
    """The kernels that other CPUs would run, in a process that may use no better ones."""
    if isa == "avx2" and torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("this CPU has no AVX2")
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])  # the same package, wherever it is
    environment = {**os.environ, "GFRNN_ISA": isa, "PYTHONPATH": path}
    command = [sys.executable, "-c", CHILD, str(tmp_path / "answers.pt")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    child = torch.load(tmp_path / "answers.pt")
    assert child["isa"] == isa
    for problem in FEW:
        truth, same_dtype = truths(problem)
        assert_agree(problem, child["answers"][str(problem)], truth, same_dtype)
        rounded = truths(problem, torch.bfloat16)
        assert_agree(problem, child["rounded"][str(problem)], *rounded, products=torch.bfloat16)
        ours = solve(problem, "cpu", torch.float32)
        assert child["answers"][str(problem)].keys() == ours.keys()


def test_the_backends_are_the_ones_tested_here() -> None:
    assert set(ops.BACKENDS) == {"reference", "manual", "cpu"}
