"""The fused CPU backend: one C++ operator for all timesteps, forward and backward. README.md has the derivation.

Importing never compiles: the shared library is built with the package (setup.py), or it is not there and
`why_unavailable` says so. Fakes and autograd are registered here, the operators in op.cpp.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gfrnn import equations
from gfrnn.equations import Spec, State, Weights
from gfrnn.ops.again import gradients_again, is_asked_for_more
from gfrnn.ops.call import Call, Scanned, constant_gates
from gfrnn.ops.declared import Implements, Transform
from gfrnn.ops.matrices import has_gates, unflatten_weights

LIBRARY = pathlib.Path(os.environ.get("GFRNN_OP") or pathlib.Path(__file__).with_name("_op.so"))


class Known(NamedTuple):
    """A unit as kernels.h has it. Its number is its place among them."""

    name: str
    gates: int
    candidate: int  # which of them
    has_cell: bool
    keeps_q: bool  # the gated sum is kept for the backward

    @classmethod
    def read(cls, line: str) -> "Known":
        name, gates, candidate, has_cell, keeps_q = line.split()
        return cls(name, int(gates), int(candidate), has_cell == "1", keeps_q == "1")

    def is_ours(self) -> bool:
        """Whether the record of this name says the same."""
        unit = equations.UNITS.get(self.name)
        return unit is not None and (self.gates, self.candidate, self.has_cell) == (
            len(unit.gates),
            unit.place(unit.candidate),
            unit.has_cell,
        )


def _load() -> list[str]:
    if os.environ.get("GFRNN_NO_OP"):
        return ["the C++ op is switched off by the environment variable GFRNN_NO_OP"]
    if not LIBRARY.exists():
        return [_why_not_built()]
    try:
        torch.ops.load_library(str(LIBRARY))
    except OSError as error:
        return [f"the C++ op at {LIBRARY} cannot be loaded: {error}"]
    if not hasattr(torch.ops.gfrnn, "units") or not all(unit.is_ours() for unit in _units()):
        return [f"the C++ op at {LIBRARY} was built for other units than this package has: build it again"]
    return []


def _why_not_built() -> str:
    """What setup.py noted when it tried."""
    if os.environ.get("GFRNN_OP"):
        return f"there is no C++ op at {LIBRARY}, which the environment variable GFRNN_OP names"
    note = LIBRARY.with_name("_op_build.txt")
    why = (
        note.read_text(encoding="utf-8").strip() if note.exists() else "nothing tried to, or GFRNN_BUILD=never was set"
    )
    return f"the C++ op was not built with the package: {why}"


def _units() -> list[Known]:
    return [Known.read(line) for line in torch.ops.gfrnn.units().splitlines()]


_MISSING = _load()
_KNOWN = [] if _MISSING else _units()
UNITS = tuple(unit.name for unit in _KNOWN)  # a unit's or wiring's place is its number in kernels.h
WIRINGS = tuple([] if _MISSING else torch.ops.gfrnn.wirings().splitlines())
IMPLEMENTS = Implements(
    units=UNITS,
    wirings=WIRINGS,
    dtypes=[torch.float32, torch.float64],
    devices=["cpu"],
    transforms=[Transform.SECOND_DERIVATIVES, Transform.COMPILE],
    rounds=[torch.float32],
)


def why_unavailable() -> list[str]:
    return _MISSING


def isa() -> str:
    """The instruction set the op chose for this CPU."""
    name: str = torch.ops.gfrnn.isa()
    return name


def multiplies_bfloat16() -> bool:
    """Whether this CPU has an instruction for products in bfloat16, and the op uses it."""
    return not _MISSING and isa() in ("avx512_bf16", "amx_bf16")


def rounded_product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """a (M, K) times b (K, N), plus bias (N,): factors rounded to bfloat16, sums in float32. Has no derivative."""
    c: Tensor = torch.ops.gfrnn.rounded_product(a, b, bias)
    return c


def softmax_nats_(logits: Tensor, targets: Tensor, keep: bool) -> Tensor:
    """-ln p(target) of every row (N, V). The logits are lost: if `keep`, they become p - onehot(target)."""
    nats: Tensor = torch.ops.gfrnn.softmax_nats_(logits, targets, keep)
    return nats


def softmax_backward(difference: Tensor, d_nats: Tensor, rounded: bool) -> tuple[Tensor, Tensor]:
    """The gradient of the logits, rounded to bfloat16 if asked for, and its sum over the rows."""
    d_logits, d_bias = torch.ops.gfrnn.softmax_backward(difference, d_nats, rounded)
    return d_logits, d_bias


def scan(call: Call) -> Scanned:
    spec, state, lengths, masks = call.spec, call.state, call.lengths, call.dropout_masks
    x = call.x if call.x.is_floating_point() else call.x.to(torch.int64)
    order = None
    if lengths is not None:
        # The op wants the rows still running at t to be a prefix.
        lengths, order = torch.sort(lengths, descending=True, stable=True)
        x = x.index_select(1, order)
        state = state.map(lambda s: s.index_select(1, order))
        masks = None if masks is None else masks.index_select(1, order)
    weights = [tensor for w in call.weights for tensor in w if tensor is not None]
    h, h_n, c_n, gates, _, _ = torch.ops.gfrnn.scan_forward(
        x,
        state.h,
        state.c,
        weights,
        lengths,
        masks,
        UNITS.index(spec.unit),
        WIRINGS.index(spec.wiring),
        spec.input_size,
        spec.gates_see == "own",
        spec.input_skip,
        equations.EPSILON if spec.normalise else 0.0,
        call.products == torch.bfloat16,
        torch.is_grad_enabled() and any(t.requires_grad for t in [x, *state, *weights] if t is not None),
        call.return_gates,
    )
    last = State(h_n, None if state.c is None else c_n)
    if order is not None:
        back = torch.argsort(order)
        h = h.index_select(1, back)
        last = last.map(lambda s: s.index_select(1, back))
        gates = gates.index_select(1, back) if gates.dim() == 4 else gates
    if not call.return_gates:
        return Scanned(h, last, None)
    return Scanned(h, last, gates if has_gates(spec) else constant_gates(call))


def _spec(h0: Tensor, unit: int, wiring: int, input_size: int, own: bool, input_skip: bool, epsilon: float) -> Spec:
    """The network that the op's arguments describe."""
    L, _, H = h0.shape
    return Spec(UNITS[unit], WIRINGS[wiring], input_size, H, L, "own" if own else "all", input_skip, epsilon > 0)


def _row_width(unit: Known, gated: bool, L: int, H: int, normalise: bool) -> int:
    kept = unit.gates if normalise else 0
    return L * (unit.gates * H + (L if gated else 0) + (H if unit.keeps_q else 0) + kept)


def _expect_one_device(*tensors: Tensor | None) -> None:
    """A meta tensor among others leads here too, and what is made here must not pass for a result."""
    devices = {str(t.device) for t in tensors if t is not None}
    if len(devices) > 1:
        raise RuntimeError(f"gfrnn: all tensors must be on one device, got {' and '.join(sorted(devices))}")


def _fake_forward(
    x: Tensor,
    h0: Tensor,
    c0: Tensor | None,
    weights: list[Tensor],
    lengths: Tensor | None,
    masks: Tensor | None,
    unit: int,
    wiring: int,
    input_size: int,
    own: bool,
    input_skip: bool,
    epsilon: float,
    bfloat16: bool,
    keep: bool,
    return_gates: bool,
) -> tuple[Tensor, ...]:
    _expect_one_device(x, h0, c0, lengths, masks, *weights)
    if torch.onnx.is_in_onnx_export():  # asked again here: the exporter's second try hides the answer from `why_not`
        raise RuntimeError('gfrnn: backend "cpu" has no form in ONNX: export with backend="reference", or "auto"')
    T, B = x.shape[:2]
    L, _, H = h0.shape
    none, gated = h0.new_empty(0), has_gates(_spec(h0, unit, wiring, input_size, own, input_skip, epsilon))
    return (
        h0.new_empty(T, B, L * H),
        h0.new_empty(L, B, H),
        none if c0 is None else h0.new_empty(L, B, H),
        h0.new_empty(T, B, L, L) if return_gates and gated else h0.new_empty(0),
        h0.new_empty(0) if c0 is None else h0.new_empty(T, B, L * H),
        h0.new_empty(T, B, _row_width(_KNOWN[unit], gated, L, H, epsilon > 0)) if keep else h0.new_empty(0),
    )


def _fake_backward(
    dh: Tensor | None,
    dh_n: Tensor | None,
    dc_n: Tensor | None,
    dgates: Tensor | None,
    x: Tensor,
    h0: Tensor,
    c0: Tensor | None,
    weights: list[Tensor],
    lengths: Tensor | None,
    masks: Tensor | None,
    h: Tensor,
    c: Tensor,
    saved: Tensor,
    unit: int,
    wiring: int,
    input_size: int,
    own: bool,
    input_skip: bool,
    epsilon: float,
    bfloat16: bool,
    need_dx: bool,
) -> list[Tensor]:
    _expect_one_device(dh, dh_n, dc_n, dgates, x, h0, c0, lengths, masks, h, c, saved, *weights)
    dx = x.new_empty(x.shape) if need_dx and x.is_floating_point() else h0.new_empty(0)
    dc0 = h0.new_empty(0) if c0 is None else h0.new_empty(h0.shape)
    return [dx, h0.new_empty(h0.shape), dc0, *(w.new_empty(w.shape) for w in weights)]


def _unpack(spec: Spec, weights: Sequence[Tensor]) -> list[Weights]:
    """The op's list of weights, which leaves out what a layer has not."""
    gated, each = has_gates(spec), len(weights) // spec.num_layers
    bias = each > 2 + spec.apart + 2 * gated + spec.normalise
    present = (True, True, spec.apart, bias, gated, gated, gated and bias, spec.normalise)  # the fields of Weights
    rest = iter(weights)
    return unflatten_weights(tuple(next(rest) if is_there else None for is_there in present * spec.num_layers))


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, h0, c0, weights, lengths, masks, *options, keep, _ = inputs
    h, _, _, _, c, saved = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, h0, c0, lengths, masks, h, c, saved, *weights)
    ctx.options, ctx.kept = options, keep


def _differentiate(ctx: Any, dh: Any, dh_n: Any, dc_n: Any, dgates: Any, *_: Any) -> tuple[Any, ...]:
    x, h0, c0, lengths, masks, h, c, saved, *weights = ctx.saved_tensors
    nothing = [None] * (2 + len(ctx.options) + 2)  # lengths, masks, options, keep, return_gates
    if is_asked_for_more((dh, dh_n, dc_n, dgates)):
        *network, bfloat16 = ctx.options
        spec = _spec(h0, *network)
        products = torch.bfloat16 if bfloat16 else None
        call = Call(x, State(h0, c0), _unpack(spec, weights), spec, lengths, masks, products=products)
        dx, dh0, dc0, *dflat = gradients_again(call, (dh, dh_n, dc_n, dgates))
        present = [t is not None for w in call.weights for t in w]
        return dx, dh0, dc0, [d for d, is_there in zip(dflat, present, strict=True) if is_there], *nothing
    need_dx = ctx.needs_input_grad[0]
    dx, dh0, dc0, *dweights = torch.ops.gfrnn.scan_backward(
        dh, dh_n, dc_n, dgates, x, h0, c0, weights, lengths, masks, h, c, saved, *ctx.options, need_dx
    )
    return (dx if need_dx else None, dh0, None if c0 is None else dc0, dweights, *nothing)


def _fake_product(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    _expect_one_device(a, b, bias)
    return a.new_empty(a.shape[0], b.shape[1])


def _fake_nats(logits: Tensor, targets: Tensor, keep: bool) -> Tensor:
    _expect_one_device(logits, targets)
    return logits.new_empty(logits.shape[0])


def _fake_softmax_backward(difference: Tensor, d_nats: Tensor, rounded: bool) -> tuple[Tensor, Tensor]:
    _expect_one_device(difference, d_nats)
    return difference.new_empty(difference.shape), difference.new_empty(difference.shape[1])


if not _MISSING:
    torch.library.register_fake("gfrnn::rounded_product", _fake_product)
    torch.library.register_fake("gfrnn::softmax_nats_", _fake_nats)
    torch.library.register_fake("gfrnn::softmax_backward", _fake_softmax_backward)
    torch.library.register_fake("gfrnn::scan_forward", _fake_forward)
    torch.library.register_fake("gfrnn::scan_backward", _fake_backward)
    torch.library.register_autograd("gfrnn::scan_forward", _differentiate, setup_context=_remember)
