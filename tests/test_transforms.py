"""torch's transforms around a layer: torch.func, vmap, forward mode, second derivatives. Right, or a sentence."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import cases
import pytest
import torch
from cases import Case, every_backend, main_cases
from tolerance import assert_close
from torch import Tensor
from torch.autograd import forward_ad

from gfrnn import ops
from gfrnn.ops.declared import Transform

CASE = Case("lstm", "gated", input_skip=True, num_layers=2)
CHOICES = ["auto", *cases.backends()]
every_choice = pytest.mark.parametrize("backend", CHOICES)

# torch itself compiles something with torch.jit at the first use of forward mode.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")

Scalar = Callable[[Tensor], Tensor]


def scalar(layer: Any) -> Scalar:
    return lambda x: layer(x)[0].sin().sum()


def inputs() -> tuple[Tensor, Tensor]:
    return cases.dense_input(3), cases.dense_input(3).flip(0).cos()


def slope(case: Case, x: Tensor) -> Tensor:
    """By the reference and plain autograd."""
    x = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(scalar(case.layer(backend="reference"))(x), x)
    return found


def declares(backend: str, transform: Transform) -> bool:
    return backend == "auto" or transform in ops.BACKENDS[backend].implements.transforms


def right_or_a_sentence(backend: str, transform: Transform, compute: Callable[[], Tensor], truth: Tensor) -> None:
    if declares(backend, transform):
        assert_close(compute(), truth)
        return
    with pytest.raises(RuntimeError, match=rf"'{backend}' cannot run this call: .*needs backend=\"reference\""):
        compute()


REVERSE: dict[str, Callable[[Scalar, Tensor], Tensor]] = {
    "grad": lambda f, x: torch.func.grad(f)(x),
    "vjp": lambda f, x: torch.func.vjp(f, x)[1](torch.ones((), dtype=x.dtype))[0],
    "jacrev": lambda f, x: torch.func.jacrev(f)(x),
    "jacfwd": lambda f, x: torch.func.jacfwd(f)(x),
}


@every_choice
@pytest.mark.parametrize("name", REVERSE)
def test_torch_func_in_the_input(name: str, backend: str) -> None:
    x, _ = inputs()
    f = scalar(CASE.layer(backend=backend))
    right_or_a_sentence(backend, Transform.FUNC, lambda: REVERSE[name](f, x), slope(CASE, x))


@functools.cache
def slopes_of_weights(case: Case) -> dict[str, Tensor]:
    """By the reference and plain autograd, of those that count."""
    layer = case.layer(backend="reference")
    scalar(layer)(cases.dense_input()).backward()
    return {name: p.grad for name, p in layer.named_parameters() if p.grad is not None}


@every_choice
@main_cases
def test_torch_func_in_the_weights(case: Case, backend: str) -> None:
    layer, x = case.layer(backend=backend), cases.dense_input()
    weights = {name: parameter.detach() for name, parameter in layer.named_parameters()}
    expected = slopes_of_weights(case)
    truth = torch.cat([slope.flatten() for slope in expected.values()])

    def compute() -> Tensor:
        slopes = torch.func.grad(lambda w: torch.func.functional_call(layer, w, (x,))[0].sin().sum())(weights)
        return torch.cat([slopes[name].flatten() for name in expected])

    assert truth.any()
    right_or_a_sentence(backend, Transform.FUNC, compute, truth)


@every_choice
@pytest.mark.parametrize("kind", ["dense", "integer"])
def test_vmap_over_inputs(kind: str, backend: str) -> None:
    layer, plain = CASE.layer(backend=backend), CASE.layer(backend="reference")
    make = cases.dense_input if kind == "dense" else cases.integer_input
    x = torch.stack([make(), make().flip(0)])
    truth = torch.stack([plain(part)[0] for part in x])
    right_or_a_sentence(backend, Transform.FUNC, lambda: torch.vmap(lambda part: layer(part)[0])(x), truth)


@every_choice
def test_vmap_over_an_ensemble(backend: str) -> None:
    members, x = [CASE.layer(backend=backend, seed=seed) for seed in (1, 2)], cases.dense_input()
    weights, _ = torch.func.stack_module_state(members)

    def compute() -> Tensor:
        return torch.vmap(lambda w: torch.func.functional_call(members[0], w, (x,))[0])(weights)

    truth = torch.stack([CASE.layer(backend="reference", seed=seed)(x)[0] for seed in (1, 2)])
    right_or_a_sentence(backend, Transform.FUNC, compute, truth)


@every_choice
def test_a_vmap_around_a_call_that_it_does_not_concern(backend: str) -> None:
    layer, x = CASE.layer(backend=backend), cases.dense_input()
    scaled = torch.vmap(lambda s: layer(x)[0] * s)(torch.tensor([1.0, 2.0], dtype=x.dtype))
    assert_close(scaled[1], 2 * CASE.layer(backend="reference")(x)[0])


@every_choice
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("context", [contextlib.nullcontext, torch.no_grad])
def test_dual_numbers(context: Any, frozen: bool, backend: str) -> None:
    (x, direction), layer = inputs(), CASE.layer(backend=backend).requires_grad_(not frozen)

    def compute() -> Tensor:
        with context(), forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(scalar(layer)(forward_ad.make_dual(x, direction))).tangent
            assert tangent is not None, "the tangent was dropped"
            return tangent

    right_or_a_sentence(backend, Transform.FORWARD_MODE, compute, (slope(CASE, x) * direction).sum())


@every_choice
def test_jvp(backend: str) -> None:
    (x, direction), layer = inputs(), CASE.layer(backend=backend).requires_grad_(False)
    truth = (slope(CASE, x) * direction).sum()
    right_or_a_sentence(backend, Transform.FUNC, lambda: torch.func.jvp(scalar(layer), (x,), (direction,))[1], truth)


@every_backend
@main_cases
def test_gradients_of_a_batch_of_cotangents(case: Case, backend: str) -> None:
    """torch.autograd.grad(is_grads_batched=True), and vmap over torch.autograd.grad: the backward alone is mapped."""
    layer, x = case.layer(backend=backend), cases.dense_input().requires_grad_()
    directions = torch.stack(list(torch.randn(3, *layer(x)[0].shape, dtype=x.dtype)))
    y = layer(x)[0]
    truth = torch.stack([torch.autograd.grad(y, x, d, retain_graph=True)[0] for d in directions])
    (batched,) = torch.autograd.grad(y, x, directions, retain_graph=True, is_grads_batched=True)
    mapped = torch.vmap(lambda d: torch.autograd.grad(y, x, d, retain_graph=True)[0])(directions)
    assert_close(batched, truth)
    assert_close(mapped, truth)


@pytest.mark.parametrize("backend", cases.backends_twice_differentiable())
def test_a_state_made_of_the_same_weights(backend: str) -> None:
    """Two calls in a row: with create_graph=True the second must not count the first's share once more."""
    layer, x = CASE.layer(backend=backend), cases.dense_input()

    def total() -> Tensor:
        _, state = layer(x[:2])
        return layer(x[2:], state)[0].sin().sum()

    weights = list(layer.parameters())
    plain = torch.autograd.grad(total(), weights)
    for found, truth in zip(torch.autograd.grad(total(), weights, create_graph=True), plain, strict=True):
        assert_close(found, truth)


def test_what_torch_asks_of_its_own_layers() -> None:
    """torch's own test of nn.LSTM on the CPU, on the default backend: first and second derivatives."""
    layer, x = CASE.layer(), cases.dense_input(2).requires_grad_()
    state = [part.requires_grad_() for part in cases.state_of(CASE)]

    def function(x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        return tuple(cases.tensors(layer(x, cases.as_hx(list(state)))))

    assert torch.autograd.gradcheck(function, (x, *state), check_batched_grad=True)
    assert torch.autograd.gradgradcheck(function, (x, *state), fast_mode=True)
