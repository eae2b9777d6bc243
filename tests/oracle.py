"""The paper in numpy, one number at a time: what every other implementation here is held against.

Written from the .tex and from nothing in `gfrnn`; slow on purpose, so that each line can be checked by eye.
Weights come as a dict in the layout of a state_dict. An array may carry one more, last axis (see
`gradients`): then every "number" below is a vector along it, and no line knows.

B batch   T time   L layers   H units per layer   I input width
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

UNIT_BLOCKS = {"tanh": ["h"], "gru": ["r", "z", "n"], "lstm": ["i", "f", "g", "o"], "bounded-lstm": ["f", "g", "o"]}
CANDIDATE = {"tanh": "h", "gru": "n", "lstm": "g", "bounded-lstm": "g"}

Array = Any  # numpy array; real or complex, with or without the extra axis
Number = Any


class Result(NamedTuple):
    """All layers' h (T, B, L, H); last h and c (L, B, H), c None unless lstm; gates (T, B, L_to, L_from)."""

    outputs: Array
    h_n: Array
    c_n: Array | None
    gates: Array


def sigma(v: Number) -> Number:
    return 1.0 / (1.0 + np.exp(-v))


def factor(v: Number) -> Number:
    """As a number enters a product: numbers that know of rounding (rounded_oracle.py) are asked."""
    return v.factor() if hasattr(v, "factor") else v


def result(v: Number) -> Number:
    """As it leaves."""
    return v.result() if hasattr(v, "result") else v


def dot(row: Array, vector: list[Number]) -> Number:
    assert len(row) == len(vector), (len(row), len(vector))
    total: Number = 0.0
    for k in range(len(vector)):
        total = total + factor(row[k]) * factor(vector[k])
    return result(total)


def one_hot(index: int, width: int) -> list[float]:
    return [1.0 if k == index else 0.0 for k in range(width)]


def global_reset_gates(j: int, w: dict[str, Array], below: list, h_prev: list, wiring: str) -> list[Number]:
    """g^{i->j} = sigma(w_g^{i->j} h_t^{j-1} + u_g^{i->j} h*_{t-1} [+ b]), one scalar for each layer i."""
    L = len(h_prev)
    if wiring == "stacked":
        return [1.0 if i == j else 0.0 for i in range(L)]
    if wiring == "feedback":
        return [1.0] * L
    h_star = [value for h_i in h_prev for value in h_i]
    gates = []
    for i in range(L):
        a = dot(w[f"weight_ig_l{j}"][i], below) + dot(w[f"weight_hg_l{j}"][i], h_star)
        if f"bias_g_l{j}" in w:
            a = a + result(w[f"bias_g_l{j}"][i])
        gates.append(sigma(a))
    return gates


def pre_activation(
    j: int,
    block: str,
    k: int,
    w: dict[str, Array],
    below: list,
    h_prev: list,
    g: list,
    unit: str,
    wiring: str,
) -> tuple[Number, Number]:
    """(W below, U h_{t-1}) of number k of `block` in layer j; for the candidate the second is gated."""
    L, H = len(h_prev), len(h_prev[0])
    blocks = UNIT_BLOCKS[unit]
    row = blocks.index(block) * H + k
    from_below = dot(w[f"weight_ih_l{j}"][row], below)

    own_layout = f"weight_fb_l{j}" in w
    hh = w[f"weight_hh_l{j}"]
    if block == CANDIDATE[unit]:
        if wiring == "stacked":
            return from_below, dot(hh[row], h_prev[j])
        U_row = w[f"weight_fb_l{j}"][k] if own_layout else hh[row]
        total: Number = 0.0
        for i in range(L):  # sum_i g^{i->j} U^{i->j} h_{t-1}^i
            total = total + dot(U_row[i * H : (i + 1) * H], [g[i] * value for value in h_prev[i]])
        return from_below, total
    if wiring == "stacked":
        return from_below, dot(hh[row], h_prev[j])
    if own_layout:  # as printed: the unit-wise gates read their own layer only
        gate_blocks = [name for name in blocks if name != CANDIDATE[unit]]
        return from_below, dot(hh[gate_blocks.index(block) * H + k], h_prev[j])
    return from_below, dot(hh[row], [value for h_i in h_prev for value in h_i])  # as trained: h*_{t-1}, ungated


def layer_step(
    j: int, w: dict[str, Array], below: list, h_prev: list, c_prev: list | None, unit: str, wiring: str
) -> tuple[list, list | None, list]:
    """h_t^j, c_t^j and g^{.->j} from what is below and from all layers at t-1."""
    g = global_reset_gates(j, w, below, h_prev, wiring)
    blocks, units = UNIT_BLOCKS[unit], range(len(h_prev[0]))
    a = {name: [pre_activation(j, name, k, w, below, h_prev, g, unit, wiring) for k in units] for name in blocks}

    def gate(name: str, past: list[Number] | None = None) -> list[Number]:
        """The whole pre-activations of a block: what comes from below, from the past, the bias; normalised if asked."""
        sums = [a[name][k][0] + (a[name][k][1] if past is None else past[k]) for k in units]
        rows = [blocks.index(name) * len(units) + k for k in units]
        if f"gain_l{j}" in w:
            inverse = 1.0 / np.sqrt(sum(v * v for v in sums) * (1.0 / len(units)) + 1e-5)
            sums = [w[f"gain_l{j}"][rows[k]] * (sums[k] * inverse) for k in units]
            return [sums[k] + (w[f"bias_l{j}"][rows[k]] if f"bias_l{j}" in w else 0.0) for k in units]
        return [sums[k] + (result(w[f"bias_l{j}"][rows[k]]) if f"bias_l{j}" in w else 0.0) for k in units]

    if unit == "tanh":
        return [np.tanh(v) for v in gate("h")], None, g
    if unit == "gru":
        r, z = [sigma(v) for v in gate("r")], [sigma(v) for v in gate("z")]
        h_tilde = [np.tanh(v) for v in gate("n", [r[k] * a["n"][k][1] for k in units])]
        return [(1.0 - z[k]) * h_prev[j][k] + z[k] * h_tilde[k] for k in units], None, g
    assert c_prev is not None
    f, o, c_tilde = [sigma(v) for v in gate("f")], [sigma(v) for v in gate("o")], [np.tanh(v) for v in gate("g")]
    i = [1.0 - f[k] for k in units] if unit == "bounded-lstm" else [sigma(v) for v in gate("i")]
    c = [f[k] * c_prev[j][k] + i[k] * c_tilde[k] for k in units]
    return [o[k] * np.tanh(c[k]) for k in units], c, g


def run(
    unit: str,
    wiring: str,
    w: dict[str, Array],
    x: Array,
    h0: Array,
    c0: Array | None = None,
    *,
    input_skip: bool = False,
    input_size: int | None = None,
    lengths: Array | None = None,
    dropout_masks: Array | None = None,
) -> Result:
    """The whole sequence. x (T, B, I), or integers (T, B) with `input_size`; h0, c0 (L, B, H).

    dropout_masks (T, B, L-1, H), already scaled, multiplies h_t^{j-1} on its way up and nothing else.
    Beyond a row's length outputs and gates are 0 and the state stays as it was.
    """
    T, B = x.shape[:2]
    L, _, H = h0.shape[:3]
    extra, kind = h0.shape[3:], h0.dtype
    outputs = np.zeros((T, B, L, H, *extra), kind)
    gates = np.zeros((T, B, L, L, *extra), kind)
    h_n = h0.copy()
    c_n = None if c0 is None else c0.copy()
    for b in range(B):
        for t in range(T if lengths is None else int(lengths[b])):
            if input_size is not None:
                x_t: list = one_hot(int(x[t, b]), input_size)
            else:
                x_t = list(x[t, b])
            h_prev = [list(h_n[j, b].copy()) for j in range(L)]
            c_prev = None if c_n is None else [list(c_n[j, b].copy()) for j in range(L)]
            below = x_t
            for j in range(L):
                h, c, g = layer_step(j, w, below, h_prev, c_prev, unit, wiring)
                for k in range(H):
                    h_n[j, b, k] = outputs[t, b, j, k] = h[k]
                    if c_n is not None and c is not None:
                        c_n[j, b, k] = c[k]
                for i in range(L):
                    gates[t, b, j, i] = g[i]
                if dropout_masks is not None and j < L - 1:
                    h = [h[k] * dropout_masks[t, b, j, k] for k in range(H)]
                below = x_t + h if input_skip else h
    return Result(outputs, h_n, c_n, gates)


def functional(result: Result, cotangents: Result) -> Number:
    """The sum of every result times its cotangent: the scalar that `gradients` differentiates."""
    total: Number = 0.0
    for value, cotangent in zip(result, cotangents, strict=True):
        if value is not None:
            total = total + np.einsum("n...,n->...", value.reshape(cotangent.size, -1), cotangent.ravel())
    return total


def gradients(
    unit: str,
    wiring: str,
    w: dict[str, Array],
    x: Array,
    h0: Array,
    c0: Array | None,
    cotangents: Result,
    **options: Any,
) -> dict[str, Array]:
    """d functional / d every weight, "x" (unless integers), "h0" and "c0", by the complex-step method.

    f(v + i*step).imag / step has no cancellation, so a step of 1e-100 gives the derivative to rounding.
    Every number to differentiate gets its own place on the extra axis, so one run serves all of them.
    """
    step = 1e-100
    places = {**w, "h0": h0}
    if c0 is not None:
        places["c0"] = c0
    if options.get("input_size") is None:
        places["x"] = x
    directions = sum(array.size for array in places.values())
    moved, first = {}, 0
    for name, array in places.items():
        wide = np.repeat(array.astype(np.complex128)[..., None], directions, axis=-1)
        flat = wide.reshape(array.size, directions)
        for n in range(array.size):
            flat[n, first + n] += 1j * step
        first += array.size
        moved[name] = flat.reshape(*array.shape, directions)
    result = run(
        unit,
        wiring,
        {name: moved[name] for name in w},
        moved.get("x", x),
        moved["h0"],
        moved.get("c0"),
        **options,
    )
    slopes = functional(result, cotangents).imag / step
    answer, first = {}, 0
    for name, array in places.items():
        answer[name] = slopes[first : first + array.size].reshape(array.shape)
        first += array.size
    return answer
