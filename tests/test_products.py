"""Products in bfloat16: the definition, against numbers that round themselves; and every backend against it."""

from __future__ import annotations

import functools
import math
from typing import Any

import cases
import numpy as np
import op_calls
import oracle
import problems
import pytest
import rounded_oracle
import torch
from cases import BATCH, HIDDEN, Case
from problems import Problem, assert_agree, solve
from tolerance import assert_close
from torch import Tensor

from gfrnn import ops
from gfrnn.bench.tolerance import allowed, error
from gfrnn.equations import State, Weights
from gfrnn.ops import cpu
from gfrnn.ops.call import Call
from gfrnn.products import rounded

KINDS = ("dense", "integer", "ragged", "dropout")
# Each kind of network with one kind of input, and one of them with all.
CASES = [(case, KINDS[n % len(KINDS)]) for n, case in enumerate(cases.MAIN)]
CASES += [(Case("gru", "gated", input_skip=True), kind) for kind in KINDS]
TIME = 3
IN_FLOAT64 = [name for name in cases.backends() if name != "cpu"]


def given(case: Case, kind: str) -> dict[str, Any]:
    layer = case.layer(output="all")
    x = (cases.integer_input if kind == "integer" else cases.dense_input)(TIME)
    generator = torch.Generator().manual_seed(2)
    shape = (TIME, BATCH, case.num_layers - 1, HIDDEN)
    masks = (torch.rand(shape, generator=generator) < 0.5).double() * 1.7 if kind == "dropout" else None
    lengths = torch.tensor([TIME - 2, TIME]) if kind == "ragged" else None
    return {"layer": layer, "x": x, "state": cases.state_of(case), "masks": masks, "lengths": lengths}


def weigh(like: oracle.Result) -> oracle.Result:
    random = np.random.default_rng(5)
    return oracle.Result(*(None if value is None else random.standard_normal(value.shape) for value in like))


@functools.cache
def expected(case: Case, kind: str) -> tuple[oracle.Result, dict[str, Any]]:
    g = given(case, kind)
    h0, c0 = g["state"][0].numpy(), g["state"][1].numpy() if len(g["state"]) == 2 else None
    masks = None if g["masks"] is None else g["masks"].numpy()
    options = {**cases.oracle_options(case, g["x"], g["layer"]), "lengths": g["lengths"], "dropout_masks": masks}
    weights = cases.numpy_weights(g["layer"])
    return rounded_oracle.run_and_gradients(case.unit, case.wiring, weights, g["x"].numpy(), h0, c0, weigh, **options)


@pytest.mark.parametrize("backend", IN_FLOAT64)
@pytest.mark.parametrize(("case", "kind"), dict.fromkeys(CASES), ids=str)
def test_values_and_gradients_are_the_oracles(case: Case, kind: str, backend: str) -> None:
    """In float64, where no sum's last bit decides how a factor is rounded."""
    g, (truth, slopes) = given(case, kind), expected(case, kind)
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in g["layer"].state_dict().items()}
    leaves |= {name: tensor.requires_grad_() for name, tensor in zip(("h0", "c0"), g["state"], strict=False)}
    if kind != "integer":
        leaves["x"] = g["x"].requires_grad_()
    scanned = ops.scan(
        g["x"],
        State(*g["state"]),
        cases.scan_weights({name: leaf for name, leaf in leaves.items() if "_l" in name}),
        g["layer"].spec,
        backend,
        lengths=g["lengths"],
        dropout_masks=g["masks"],
        return_gates=True,
        products=torch.bfloat16,
    )
    h = scanned.h.reshape(TIME, BATCH, case.num_layers, HIDDEN)
    total: Any = 0.0
    answers = zip((h, *scanned.state, scanned.gates), truth, weigh(truth), oracle.Result._fields, strict=True)
    for found, value, weight, name in answers:
        if value is not None:
            assert found is not None
            assert_close(found, value, what=name)
            total = total + (found * torch.from_numpy(weight)).sum()
    total.backward()
    assert leaves.keys() == slopes.keys()
    for name, slope in slopes.items():
        assert_close(leaves[name].grad, slope, what=f"gradient of {name}")


BFLOAT16 = torch.bfloat16
needs_op = pytest.mark.skipif(bool(cpu.why_unavailable()), reason="; ".join(cpu.why_unavailable()))
# So short that hardly a factor lies on the edge between two roundings; sums of an odd number of terms among them.
SHORT = [
    Problem("lstm", "gated", hidden=19, time=2, batch=5, input_skip=True, indices=True),
    Problem("lstm", "gated", hidden=17, time=2, batch=6, gates_see="own", ragged=True, dropout=True),
    Problem("gru", "gated", hidden=21, time=1, batch=3, input_skip=True),
    Problem("gru", "gated", hidden=9, time=3, batch=4, gates_see="own", indices=True, ragged=True),
    Problem("tanh", "gated", hidden=40, time=2, batch=9, bias=False),
    Problem("lstm", "feedback", hidden=7, time=2, batch=13, input_skip=True, dropout=True),
    Problem("gru", "stacked", hidden=7, time=3, batch=1, num_layers=2),
    Problem("tanh", "stacked", hidden=15, time=1, batch=2, indices=True),
    # The paper's widths, and rows that fill tiles and leave some over.
    Problem("lstm", "gated", hidden=140, time=1, batch=16, input_skip=True, indices=True, normalise=True),
    Problem("gru", "gated", hidden=165, time=1, batch=29, gates_see="own", normalise=True),
    Problem("lstm", "stacked", hidden=191, time=1, batch=100, indices=True),
    Problem("tanh", "feedback", hidden=303, time=1, batch=13),
]


def typical_error(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float((found.double() - truth).abs().median()) if truth.numel() else 0.0


@functools.cache
def by_the_reference(problem: Problem) -> list[problems.Answer]:
    kinds = ((torch.float64, BFLOAT16), (torch.float64, None), (torch.float32, BFLOAT16))
    return [solve(problem, "reference", dtype, products) for dtype, products in kinds]


@pytest.mark.parametrize("backend", [name for name in cases.backends() if name != "reference"])
@pytest.mark.parametrize("problem", SHORT, ids=str)
def test_float32_rounds_the_same_factors(problem: Problem, backend: str) -> None:
    """Most numbers agree as float32 can, which they would not if any factor were rounded elsewhere, or not at all."""
    truth, exact, same_dtype = by_the_reference(problem)
    found = solve(problem, backend, torch.float32, BFLOAT16)
    for name, tensor in found.items():
        assert typical_error(tensor, truth[name]) < allowed(torch.float32), name
    assert_agree(problem, found, truth, same_dtype, BFLOAT16)
    moved = [name for name in truth if typical_error(truth[name], exact[name]) > 2 * allowed(torch.float32)]
    assert {"output", "h_n", "gradient of weight_hh_l0", "gradient of h0"} <= set(moved)


@pytest.mark.parametrize("backend", cases.backends())
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_passes_as_in_float32(value: float, backend: str) -> None:
    problem = Problem("lstm", "gated", hidden=5, time=3, batch=3)
    for name in ("x", "h0", "weight_hh_l1"):
        answers = []
        for products in (None, BFLOAT16):
            tensors = problems.given(problem, torch.float32)
            with torch.no_grad():
                tensors[name].flatten()[4] = value
                if name == "h0":
                    tensors[name][1, 1, 2] = value
            answers.append(problems.run(problem, backend, tensors, products))
        for key, plain in answers[0].items():
            assert torch.equal(plain.isnan(), answers[1][key].isnan()), (name, key)


@needs_op
def test_nothing_more_is_kept_for_the_backward() -> None:
    arguments = op_calls.forward_arguments(Problem("lstm", "gated"))
    plain, rounded_ = (op_calls.forward({**arguments, "bfloat16": value}) for value in (False, True))
    assert [(t.shape, t.dtype) for t in plain] == [(t.shape, t.dtype) for t in rounded_]


@needs_op
def test_the_op_has_them_in_float32_only() -> None:
    arguments = {**op_calls.forward_arguments(Problem("gru", "stacked"), torch.float64), "bfloat16": True}
    with pytest.raises(RuntimeError, match="bfloat16 products are for float32"):
        op_calls.forward(arguments)
    call = small_call()
    wide = call._replace(x=call.x.double(), state=call.state.map(Tensor.double), weights=doubled(call.weights))
    with pytest.raises(RuntimeError, match=r"its bfloat16 products are for torch.float32, got torch.float64"):
        ops.choose(wide, "cpu")
    assert ops.choose(call) == "cpu" and ops.choose(wide) != "cpu"


def doubled(weights: Any) -> list[Weights]:
    return [Weights(*(None if t is None else t.double() for t in w)) for w in weights]


EDGES = [0.0, 1.0, 1.00390625, 1.01171875, 1 / 3, -2.7182818, 65504.0, 3.3895e38, 3.4e38, 1e-40, 1.2e-38, math.inf]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rounding_is_to_the_nearest_and_even(sign: float) -> None:
    numbers = [sign * edge for edge in EDGES]
    for dtype in (torch.float32, torch.float64):
        found = rounded(torch.tensor(numbers, dtype=dtype))
        assert found.tolist() == [rounded_oracle.to_bfloat16(number) for number in numbers]
    assert rounded(torch.tensor([math.nan])).isnan().all()
    assert rounded_oracle.to_bfloat16(1.00390625) == 1.0 and rounded_oracle.to_bfloat16(1.01171875) == 1.015625


def small_call(**changes: Any) -> Call:
    case = Case("lstm", "gated")
    layer = case.layer(dtype=torch.float32)
    state = State(*cases.state_of(case, dtype=torch.float32))
    call = Call(cases.dense_input(dtype=torch.float32), state, layer.weights(), layer.spec, products=torch.bfloat16)
    return call._replace(**changes)


def test_other_products_are_refused() -> None:
    for products in (torch.float16, torch.float32, "bfloat16"):
        with pytest.raises(ValueError, match=r"products must be torch.bfloat16 or None, got"):
            ops.choose(small_call(products=products))


def test_a_derivative_of_a_derivative_and_function_transforms() -> None:
    """Those of the plain products, with the same factors rounded: straight through the rounding."""
    case = Case("gru", "gated", num_layers=2)
    layer, x = case.layer(), cases.dense_input()
    state = State(*cases.state_of(case))

    def loss(weight: torch.Tensor) -> torch.Tensor:
        weights = [w if j else w._replace(U=weight) for j, w in enumerate(layer.weights())]
        return ops.scan(x, state, weights, layer.spec, "reference", products=torch.bfloat16).h.sum()

    weight = layer.weight_hh_l0.detach().requires_grad_()
    (first,) = torch.autograd.grad(loss(weight), weight, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), weight)
    assert second.isfinite().all() and second.any()
    torch.testing.assert_close(torch.func.grad(loss)(weight.detach()), first.detach())
    rows = torch.stack([weight.detach(), 0.5 * weight.detach()])
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(rows)[0], first.detach())
    tangent = torch.func.jvp(loss, (weight.detach(),), (torch.ones_like(weight),))[1].detach()
    assert abs(float(tangent - first.detach().sum())) < 0.05 * float(first.detach().abs().sum())


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's, of its own doing
@pytest.mark.parametrize(
    "backend", [pytest.param(n, marks=[pytest.mark.slow] if n == "reference" else []) for n in cases.backends()]
)
def test_compiled(backend: str) -> None:
    layer, x = Case("gru", "gated", num_layers=1).layer(dtype=torch.float32, backend=backend), cases.dense_input(2)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    answers = []
    for run in (layer, compiled):
        layer.zero_grad()
        with torch.autocast("cpu", dtype=BFLOAT16):
            output = run(x.float())[0]
        output.sum().backward()
        answers.append([output.detach(), *(p.grad.clone() for p in layer.parameters())])
    assert torch.equal(answers[0][0], answers[1][0])
    # torch.compile derives the backward of all but the op by itself, and leaves the gradients unrounded there.
    limit = allowed(torch.float32 if backend == "cpu" else BFLOAT16)
    for found, expected in zip(*answers, strict=True):
        assert error(found, expected) <= limit
