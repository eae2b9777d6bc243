"""Every backend against the numpy oracle, in float64 to 1e-10: values, states, gates and all gradients."""

from __future__ import annotations

import functools
import math
from typing import Any

import cases
import numpy as np
import oracle
import torch
from cases import BATCH, HIDDEN, INPUT, TIME, Case, every_backend, taking_turns
from tolerance import assert_close

from gfrnn import equations, ops
from gfrnn.equations import State

KINDS = ("dense", "integer", "ragged")
NAMES = ("outputs", "h_n", "c_n", "gates")


def problem(case: Case, kind: str) -> tuple[Any, torch.Tensor, list[torch.Tensor], torch.Tensor | None]:
    layer = case.layer(output="all")
    x = cases.integer_input() if kind == "integer" else cases.dense_input()
    lengths = torch.tensor([TIME - 2, TIME]) if kind == "ragged" else None
    return layer, x, cases.state_of(case), lengths


@functools.cache
def expected(case: Case, kind: str) -> oracle.Result:
    layer, x, state, lengths = problem(case, kind)
    return cases.ask_oracle(case, layer, x, state, lengths=lengths)


def cotangents(like: oracle.Result) -> oracle.Result:
    """A random weight for every number a layer returns."""
    random = np.random.default_rng(5)
    return oracle.Result(*(None if value is None else random.standard_normal(value.shape) for value in like))


@functools.cache
def expected_gradients(case: Case, kind: str) -> dict[str, np.ndarray]:
    layer, x, state, lengths = problem(case, kind)
    h0, c0 = state[0].numpy(), state[1].numpy() if len(state) == 2 else None
    weights, options = cases.numpy_weights(layer), cases.oracle_options(case, x, layer)
    weigh = cotangents(expected(case, kind))
    return oracle.gradients(case.unit, case.wiring, weights, x.numpy(), h0, c0, weigh, lengths=lengths, **options)


def named(result: Any, case: Case) -> oracle.Result:
    """A layer's answer in the oracle's shapes; output (T, B, L*H) becomes (T, B, L, H)."""
    output, h_n, *rest = cases.tensors(result)
    c_n = rest[0] if equations.UNITS[case.unit].has_cell else None
    return oracle.Result(output.reshape(*output.shape[:2], case.num_layers, -1), h_n, c_n, rest[-1])


@every_backend
@taking_turns("kind", KINDS)
def test_values_and_gradients(case: Case, kind: str, backend: str) -> None:
    layer, x, state, lengths = problem(case, kind)
    layer.backend = backend
    places = dict(zip(("h0", "c0"), state, strict=False)) | ({} if kind == "integer" else {"x": x})
    for tensor in places.values():
        tensor.requires_grad_()
    result = named(layer(x, cases.as_hx(state), lengths=lengths, return_gates=True), case)
    for name, actual, truth in zip(NAMES, result, expected(case, kind), strict=True):
        assert (actual is None) == (truth is None), name
        if truth is not None:
            assert_close(actual, truth, what=name)
    weigh = cotangents(expected(case, kind))
    pairs = zip(result, weigh, strict=True)
    sum((value * torch.from_numpy(weight)).sum() for value, weight in pairs if value is not None).backward()
    places |= dict(layer.named_parameters())
    truths = expected_gradients(case, kind)
    assert places.keys() == truths.keys()
    for name, truth in truths.items():
        assert places[name].grad is not None, name
        assert_close(places[name].grad, truth, what=f"gradient of {name}")


def dropout_masks(case: Case) -> torch.Tensor:
    chances = torch.full((TIME, BATCH, case.num_layers - 1, HIDDEN), 0.5, dtype=torch.float64)
    return torch.bernoulli(chances, generator=torch.Generator().manual_seed(9)) * 2


@functools.cache
def expected_with_dropout(case: Case, kind: str) -> tuple[oracle.Result, dict[str, np.ndarray]]:
    """The answer, and the slopes of its sum weighed by `cotangents`."""
    layer, x, state, lengths = problem(case, kind)
    masks = dropout_masks(case).numpy()
    options = {**cases.oracle_options(case, x, layer), "lengths": lengths, "dropout_masks": masks}
    given = (case.unit, case.wiring, cases.numpy_weights(layer), x.numpy(), state[0].numpy())
    c0 = state[1].numpy() if len(state) == 2 else None
    truth = oracle.run(*given, c0, **options)
    return truth, oracle.gradients(*given, c0, cotangents(truth), **options)


@every_backend
@taking_turns("kind", KINDS, among=cases.MAIN, whole=())
def test_dropout_masks_act_on_the_way_up_only(case: Case, kind: str, backend: str) -> None:
    layer, x, state, lengths = problem(case, kind)
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in layer.state_dict().items()}
    leaves |= {"h0": state[0].requires_grad_()}
    scanned = ops.scan(
        x,
        State(*state),
        cases.scan_weights(leaves),
        layer.spec,
        backend,
        lengths=lengths,
        dropout_masks=dropout_masks(case),
        return_gates=True,
    )
    result = named((scanned.h, *(t for t in scanned.state if t is not None), scanned.gates), case)
    truth, slopes = expected_with_dropout(case, kind)
    for name, actual, value in zip(NAMES, result, truth, strict=True):
        if value is not None:
            assert_close(actual, value, what=name)
    weigh = cotangents(truth)
    pairs = zip(result, weigh, strict=True)
    sum((value * torch.from_numpy(weight)).sum() for value, weight in pairs if value is not None).backward()
    for name, leaf in leaves.items():
        assert_close(leaf.grad, slopes[name], what=f"gradient of {name}")


def test_oracle_by_hand() -> None:
    """Two layers of one LSTM unit, one step, every number written out from the paper."""

    def sigma(v: float) -> float:
        return 1 / (1 + math.exp(-v))

    w = {
        "weight_ih_l0": [[0.1], [0.2], [0.3], [0.4]],
        "weight_hh_l0": [[0.5, -0.6], [0.7, 0.8], [-0.9, 1.0], [1.1, 1.2]],
        "bias_l0": [0.01, 0.02, 0.03, 0.04],
        "weight_ig_l0": [[0.3], [-0.4]],
        "weight_hg_l0": [[0.2, 0.5], [-0.1, 0.6]],
        "bias_g_l0": [0.05, -0.05],
        "weight_ih_l1": [[0.9], [-0.8], [0.7], [0.6]],
        "weight_hh_l1": [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6], [0.7, 0.8]],
        "bias_l1": [0.1, 0.2, 0.3, 0.4],
        "weight_ig_l1": [[1.3], [1.4]],
        "weight_hg_l1": [[0.6, 0.7], [0.8, 0.9]],
        "bias_g_l1": [0.0, 1.0],
    }
    x, p, q = 2.0, 0.25, -0.75  # x_1, h_0^1, h_0^2
    cells = [0.5, -1.5]
    g11 = sigma(0.3 * x + 0.2 * p + 0.5 * q + 0.05)
    g21 = sigma(-0.4 * x - 0.1 * p + 0.6 * q - 0.05)
    i1, f1 = sigma(0.1 * x + 0.5 * p - 0.6 * q + 0.01), sigma(0.2 * x + 0.7 * p + 0.8 * q + 0.02)
    o1 = sigma(0.4 * x + 1.1 * p + 1.2 * q + 0.04)
    c1 = f1 * cells[0] + i1 * math.tanh(0.3 * x + g11 * -0.9 * p + g21 * 1.0 * q + 0.03)
    h1 = o1 * math.tanh(c1)
    g12, g22 = sigma(1.3 * h1 + 0.6 * p + 0.7 * q), sigma(1.4 * h1 + 0.8 * p + 0.9 * q + 1.0)
    i2, f2 = sigma(0.9 * h1 + 0.1 * p + 0.2 * q + 0.1), sigma(-0.8 * h1 + 0.3 * p + 0.4 * q + 0.2)
    o2 = sigma(0.6 * h1 + 0.7 * p + 0.8 * q + 0.4)
    c2 = f2 * cells[1] + i2 * math.tanh(0.7 * h1 + g12 * 0.5 * p + g22 * 0.6 * q + 0.3)
    h2 = o2 * math.tanh(c2)

    arrays = {name: np.array(value) for name, value in w.items()}
    h0, c0 = np.array([[[p]], [[q]]]), np.array(cells).reshape(2, 1, 1)
    result = oracle.run("lstm", "gated", arrays, np.array([[[x]]]), h0, c0)
    np.testing.assert_allclose(result.outputs.ravel(), [h1, h2], rtol=0, atol=1e-15)
    assert result.c_n is not None
    np.testing.assert_allclose(result.c_n.ravel(), [c1, c2], rtol=0, atol=1e-15)
    np.testing.assert_allclose(result.gates.ravel(), [g11, g21, g12, g22], rtol=0, atol=1e-15)


@cases.every_unit_of_torch
def test_oracle_of_a_stack_is_torch(unit: str) -> None:
    """The oracle, checked against an implementation that neither it nor the package shares anything with."""
    module = cases.TORCH[unit](INPUT, HIDDEN, cases.NUM_LAYERS, dtype=torch.float64)
    weights = {}
    for j in range(cases.NUM_LAYERS):
        ih, hh, b_ih, b_hh = (
            getattr(module, f"{n}_l{j}").detach() for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        if unit == "gru":
            b_hh[2 * HIDDEN :] = 0  # the paper has no bias under the reset gate
        parts = [ih.clone(), hh.clone(), b_ih + b_hh]
        if unit == "gru":  # torch's z is the paper's 1 - z
            for part in parts:
                part[HIDDEN : 2 * HIDDEN] *= -1
        weights |= {
            f"{name}_l{j}": part.numpy() for name, part in zip(("weight_ih", "weight_hh", "bias"), parts, strict=True)
        }
    x, state = cases.dense_input(), cases.state_of(Case(unit, "stacked"))
    answer = cases.tensors(module(x, cases.as_hx(state)))
    result = oracle.run(unit, "stacked", weights, x.numpy(), *(tensor.numpy() for tensor in state))
    assert_close(result.outputs[:, :, -1], answer[0], what="output")
    assert_close(result.h_n, answer[1], what="h_n")
    if unit == "lstm":
        assert_close(result.c_n, answer[2], what="c_n")


def test_oracle_gradients_are_slopes() -> None:
    """The complex step against plain differences, where the latter are good to 1e-7."""
    case = Case("gru", "gated", input_skip=True, num_layers=2)
    layer, x, state = case.layer(3, 2), cases.dense_input(3, 2, 3), cases.state_of(case, 2, 2)
    weights, h0 = cases.numpy_weights(layer), state[0].numpy()
    weigh = cotangents(oracle.run("gru", "gated", weights, x.numpy(), h0, input_skip=True))
    slopes = oracle.gradients("gru", "gated", weights, x.numpy(), h0, None, weigh, input_skip=True)

    def value(name: str, change: float) -> float:
        moved = {key: array.copy() for key, array in {**weights, "x": x.numpy(), "h0": h0}.items()}
        moved[name].ravel()[1] += change
        w = {key: moved[key] for key in weights}
        return float(
            oracle.functional(oracle.run("gru", "gated", w, moved["x"], moved["h0"], input_skip=True), weigh)[0]
        )

    for name, slope in slopes.items():
        difference = (value(name, 1e-6) - value(name, -1e-6)) / 2e-6
        assert abs(difference - slope.ravel()[1]) < 1e-7, name
