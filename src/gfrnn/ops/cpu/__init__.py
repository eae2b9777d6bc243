"""The fused CPU backend: one C++ operator for all timesteps, forward and backward. README.md has the derivation.

Importing never compiles: the shared library is built with the package (setup.py), or it is not there and
`why_unavailable` says so. Fakes and autograd are registered here, the operators in op.cpp.
"""

import os
import pathlib
from typing import Any

import torch
from torch import Tensor

from gfrnn.equations import State
from gfrnn.ops.call import Call, Scanned, constant_gates

LIBRARY = pathlib.Path(os.environ.get("GFRNN_OP") or pathlib.Path(__file__).with_name("_op.so"))
UNITS = ("tanh", "gru", "lstm")  # in the order of kernels.h
WIRINGS = ("stacked", "feedback", "gated")


def _load() -> list[str]:
    if os.environ.get("GFRNN_NO_OP"):
        return ["the C++ op is switched off by the environment variable GFRNN_NO_OP"]
    if not LIBRARY.exists():
        return [
            "the C++ op was not built with the package (no compiler, or no torch in the build environment; "
            "reinstall with `pip install --no-build-isolation`)"
        ]
    try:
        torch.ops.load_library(str(LIBRARY))
    except OSError as error:
        return [f"the C++ op at {LIBRARY} cannot be loaded: {error}"]
    return []


_MISSING = _load()


def why_unavailable() -> list[str]:
    return _MISSING


def isa() -> str:
    """The instruction set the op chose for this CPU."""
    name: str = torch.ops.gfrnn.isa()
    return name


def why_not(call: Call) -> list[str]:
    reasons = list(_MISSING)
    tensors = call.tensors()
    devices = {t.device.type for t in tensors} | {call.x.device.type}
    if devices != {"cpu"}:
        reasons.append(f"the tensors are on {', '.join(sorted(devices))}, the op is for the CPU")
    dtypes = {t.dtype for t in tensors}
    if not (len(dtypes) == 1 and dtypes <= {torch.float32, torch.float64}):
        reasons.append(f"the op computes in float32 or float64, got {', '.join(sorted(map(str, dtypes)))}")
    # torch.compile cannot trace the question, and traces through the transforms themselves.
    if not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None:
        reasons.append("a torch.func transform is active, and the op is not transformable")
    return reasons


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
        torch.is_grad_enabled() and any(t.requires_grad for t in [x, *state, *weights] if t is not None),
        call.return_gates,
    )
    last = State(h_n, c_n if spec.unit == "lstm" else None)
    if order is not None:
        back = torch.argsort(order)
        h = h.index_select(1, back)
        last = last.map(lambda s: s.index_select(1, back))
        gates = gates.index_select(1, back) if gates.dim() == 4 else gates
    if not call.return_gates:
        return Scanned(h, last, None)
    return Scanned(h, last, gates if spec.wiring == "gated" else constant_gates(call))


def _row_width(unit: int, wiring: int, L: int, H: int) -> int:
    gates, q = (1, 3, 4)[unit], unit == 1
    return L * (gates * H + (L if wiring == 2 else 0) + (H if q else 0))


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
    keep: bool,
    return_gates: bool,
) -> tuple[Tensor, ...]:
    _expect_one_device(x, h0, c0, lengths, masks, *weights)
    T, B = x.shape[:2]
    L, _, H = h0.shape
    none = h0.new_empty(0)
    return (
        h0.new_empty(T, B, L * H),
        h0.new_empty(L, B, H),
        none if c0 is None else h0.new_empty(L, B, H),
        h0.new_empty(T, B, L, L) if return_gates and wiring == 2 else h0.new_empty(0),
        h0.new_empty(0) if c0 is None else h0.new_empty(T, B, L * H),
        h0.new_empty(T, B, _row_width(unit, wiring, L, H)) if keep else h0.new_empty(0),
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
    need_dx: bool,
) -> list[Tensor]:
    _expect_one_device(dh, dh_n, dc_n, dgates, x, h0, c0, lengths, masks, h, c, saved, *weights)
    dx = x.new_empty(x.shape) if need_dx and x.is_floating_point() else h0.new_empty(0)
    dc0 = h0.new_empty(0) if c0 is None else h0.new_empty(h0.shape)
    return [dx, h0.new_empty(h0.shape), dc0, *(w.new_empty(w.shape) for w in weights)]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, h0, c0, weights, lengths, masks, *options, keep, _ = inputs
    h, _, _, _, c, saved = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, h0, c0, lengths, masks, h, c, saved, *weights)
    ctx.options, ctx.kept = options, keep


def _differentiate(ctx: Any, dh: Any, dh_n: Any, dc_n: Any, dgates: Any, *_: Any) -> tuple[Any, ...]:
    x, h0, c0, lengths, masks, h, c, saved, *weights = ctx.saved_tensors
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, h0, c0, *weights)):
        raise RuntimeError(
            'backend "cpu" has no second derivative (create_graph=True): use backend="manual" or "reference"'
        )
    need_dx = ctx.needs_input_grad[0]
    dx, dh0, dc0, *dweights = torch.ops.gfrnn.scan_backward(
        dh, dh_n, dc_n, dgates, x, h0, c0, weights, lengths, masks, h, c, saved, *ctx.options, need_dx
    )
    nothing = [None] * (2 + len(ctx.options) + 2)  # lengths, masks, options, keep, return_gates
    return (dx if need_dx else None, dh0, None if c0 is None else dc0, dweights, *nothing)


if not _MISSING:
    torch.library.register_fake("gfrnn::scan_forward", _fake_forward)
    torch.library.register_fake("gfrnn::scan_backward", _fake_backward)
    torch.library.register_autograd("gfrnn::scan_forward", _differentiate, setup_context=_remember)
