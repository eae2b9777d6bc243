"""First and second derivatives against finite differences, in float64, with cotangents on everything returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cases
import pytest
import torch
from cases import Case, backends_take_turns, every_backend
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from gfrnn import ops
from gfrnn.equations import Spec, State

WIDTH, HIDDEN, TIME, BATCH = 3, 2, 2, 2


def problem(case: Case, backend: str, return_gates: bool) -> tuple[Callable[..., tuple[Tensor, ...]], list[Tensor]]:
    """A function of (x, state, every weight), and where to differentiate it: the initial state is not zero."""
    small = Case(case.unit, case.wiring, case.gates_see, case.input_skip, case.bias, min(case.num_layers, 2))
    layer = small.layer(WIDTH, HIDDEN)
    weights = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    state = cases.state_of(small, BATCH, HIDDEN)
    spec = Spec(case.unit, case.wiring, WIDTH, HIDDEN, small.num_layers, case.gates_see, case.input_skip)
    lengths = torch.tensor([TIME - 1, TIME])

    def function(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        state_given, weights_given = rest[: len(state)], dict(zip(weights, rest[len(state) :], strict=True))
        scanned = ops.scan(
            x,
            State(*state_given),
            cases.scan_weights(weights_given),
            spec,
            backend,
            lengths=lengths,
            return_gates=return_gates,
        )
        found: list[Any] = [scanned.h, *scanned.state]
        # Gates that are constants have no derivative to check.
        found += [scanned.gates] if return_gates and case.has_gates else []
        return tuple(tensor for tensor in found if tensor is not None)

    leaves = [cases.dense_input(TIME, BATCH, WIDTH), *state, *weights.values()]
    return function, [leaf.requires_grad_() for leaf in leaves]


# Slow for what it adds to a check along random directions: every layout of the weights and every wiring once.
SLOWLY = [
    Case("lstm", "gated", input_skip=True),
    Case("gru", "gated", "own"),
    Case("lstm", "stacked"),
    Case("gru", "feedback"),
]


@backends_take_turns
def test_gradcheck(case: Case, backend: str) -> None:
    function, leaves = problem(case, backend, return_gates=True)
    assert gradcheck(function, leaves, fast_mode=True)


# The reference is differentiated by torch itself: every day one of them is enough of it.
EVERY_ENTRY = [
    pytest.param(case, backend, marks=[pytest.mark.slow] if backend == "reference" and case != SLOWLY[0] else [])
    for case in SLOWLY
    for backend in cases.backends()
]


@pytest.mark.parametrize(("case", "backend"), EVERY_ENTRY, ids=str)
def test_gradcheck_of_every_entry(case: Case, backend: str) -> None:
    function, leaves = problem(case, backend, return_gates=False)
    assert gradcheck(function, leaves)


KINDS = [*cases.MAIN, Case("lstm", "gated", bias=False), Case("gru", "feedback", num_layers=1)]
# One of each kind, and what those leave out, on the reference, from which the others borrow second derivatives. Every
# day each unit and each wiring is among them.
TURNS = {("tanh", "feedback"), ("gru", "stacked"), ("gru", "gated"), ("lstm", "gated"), ("bounded-lstm", "gated")}
TWICE: list[Any] = [
    pytest.param(case, "reference", marks=[] if (case.unit, case.wiring) in TURNS else [pytest.mark.slow])
    for case in KINDS
]
TWICE += [(case, name) for name in cases.backends_twice_differentiable() if name != "reference" for case in SLOWLY[:2]]


@pytest.mark.parametrize(("case", "backend"), TWICE, ids=str)
def test_gradgradcheck(case: Case, backend: str) -> None:
    function, leaves = problem(case, backend, return_gates=True)
    assert gradgradcheck(function, leaves, fast_mode=True)


@every_backend
@cases.main_cases
def test_each_result_alone_has_its_gradient(case: Case, backend: str) -> None:
    """A backward pass from the last state only, or from the gates only, reaches the same weights as autograd's."""
    layer, x = case.layer(output="all"), cases.dense_input()
    count = len(cases.tensors(layer(x, return_gates=True)))
    for k in range(count - (not case.has_gates)):
        grads = []
        for name in ("reference", backend):
            layer.backend = name
            layer.zero_grad()
            cases.tensors(layer(x, return_gates=True))[k].sin().sum().backward()
            grads.append([p.grad.clone() if p.grad is not None else torch.zeros_like(p) for p in layer.parameters()])
        assert any(grad.any() for grad in grads[0])
        for mine, reference in zip(grads[1], grads[0], strict=True):
            torch.testing.assert_close(mine, reference, rtol=0, atol=1e-10)


@every_backend
def test_backward_twice_says_so(backend: str) -> None:
    layer = Case("lstm", "gated").layer(backend=backend)
    total = layer(cases.dense_input())[0].sum()
    total.backward()
    with pytest.raises(RuntimeError, match="second time"):
        total.backward()


@every_backend
@cases.main_cases
def test_frozen_parts_need_no_gradient(case: Case, backend: str) -> None:
    """Any subset may be frozen; the rest still gets what it would have got."""
    layer, x = case.layer(backend=backend), cases.dense_input()
    layer(x)[0].sum().backward()
    full = {name: p.grad.clone() for name, p in layer.named_parameters() if p.grad is not None}
    for kept in ("weight_hh_l0", "weight_ih_l1", "bias_l2"):
        layer.zero_grad()
        layer.requires_grad_(False)
        layer.get_parameter(kept).requires_grad_()
        layer(x)[0].sum().backward()
        torch.testing.assert_close(layer.get_parameter(kept).grad, full[kept], rtol=0, atol=1e-10)
    layer.requires_grad_(False)
    state = cases.state_of(case)
    assert not layer(x, cases.as_hx(state))[0].requires_grad
    for leaf in (x, *state):
        leaf.requires_grad_()
        layer(x, cases.as_hx(state))[0].sum().backward()
        assert leaf.grad.any()
        leaf.requires_grad_(False)
