"""The manual backend: the same maths in plain torch, hoisted, with the backward written by hand. Runs on any device.

README.md beside this file derives it in the paper's letters. Three things leave the time loop: the products with x_t of
all timesteps (one product before it), the recurrent products of all layers with h*_{t-1} (one product per step instead
of one per layer), and every weight gradient (one product after it). What is left in the loop is done in place.
"""

from typing import Any

import torch
from torch import Tensor

from gfrnn.equations import FEEDBACK, GATED, STACKED, UNITS, Spec, State
from gfrnn.ops import manual_plain
from gfrnn.ops.again import gradients_again, is_asked_for_more
from gfrnn.ops.call import Call, Scanned, constant_gates
from gfrnn.ops.declared import Implements, Transform
from gfrnn.ops.manual_backward import Given, gradients
from gfrnn.ops.manual_forward import Kept, forward
from gfrnn.ops.manual_norm import Normals
from gfrnn.ops.manual_units import MATHS
from gfrnn.ops.matrices import has_gates, unflatten_weights

IMPLEMENTS = Implements(
    units=MATHS.keys(),
    wirings=[wiring.name for wiring in (GATED, FEEDBACK, STACKED)],
    transforms=[Transform.SECOND_DERIVATIVES, Transform.COMPILE, Transform.ONNX],
)


def why_unavailable() -> list[str]:
    return []


def scan(call: Call) -> Scanned:
    x, lengths, spec = call.x, call.lengths, call.spec
    if lengths is not None:  # what stands in the padding (NaN, or no index at all) must not meet the weights
        running = torch.arange(x.shape[0], device=x.device)[:, None] < lengths
        x = torch.where(running if x.dim() == 2 else running[:, :, None], x, torch.zeros_like(x))
    # The compiler derives a backward of its own, and cannot trace the Function's, which has exact products only.
    if torch.compiler.is_compiling() or call.products is not None:
        h, state, g = manual_plain.scan(spec, call.weights, x, call.state, lengths, call.dropout_masks, call.products)
    else:
        flat = [tensor for w in call.weights for tensor in w]
        h, h_n, c_n, g, *_ = _Scan.apply(spec, x, *call.state, lengths, call.dropout_masks, *flat)
        state = State(h_n, c_n if UNITS[spec.unit].has_cell else None)
    if not call.return_gates:
        return Scanned(h.flatten(2), state, None)
    return Scanned(h.flatten(2), state, g if has_gates(spec) else constant_gates(call))


class _Scan(torch.autograd.Function):
    """All timesteps. Outputs beyond the first four are what the backward needs."""

    @staticmethod
    def forward(
        spec: Spec,
        x: Tensor,
        h0: Tensor,
        c0: Tensor | None,
        lengths: Tensor | None,
        masks: Tensor | None,
        *flat: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        h, last, g, kept = forward(spec, unflatten_weights(flat), x, State(h0, c0), lengths, masks)
        normals = [tensor for its in kept.normals for tensor in its]
        return h, last.h, h.new_empty(0) if last.c is None else last.c, g, kept.c, kept.q, *kept.acts, *normals

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        spec, *tensors = inputs
        h, _, _, _, *kept = output
        ctx.mark_non_differentiable(*(tensor for tensor in kept if tensor is not None))
        ctx.save_for_backward(*tensors, h, *kept)
        ctx.spec, ctx.weights = spec, len(tensors) - 5
        ctx.set_materialize_grads(False)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        """Never run: IMPLEMENTS declines. But having it lets calls through that a vmap around them does not concern."""
        raise RuntimeError('backend "manual" does not run under vmap: use backend="reference"')

    @staticmethod
    def backward(ctx: Any, dh: Any, dh_n: Any, dc_n: Any, dg: Any, *_: Any) -> tuple[Any, ...]:
        x, h0, c0, lengths, masks, *rest = ctx.saved_tensors
        flat, (h, c, q, *blocks) = rest[: ctx.weights], rest[ctx.weights :]
        count = len(blocks) // 3 if ctx.spec.normalise else len(blocks)
        acts, normals = blocks[:count], [Normals(*pair) for pair in zip(*[iter(blocks[count:])] * 2, strict=True)]
        weights = unflatten_weights(tuple(flat))
        if is_asked_for_more((dh, dh_n, dc_n, dg)):
            call = Call(x, State(h0, c0), weights, ctx.spec, lengths, masks)
            given = (None if dh is None else dh.reshape(*h.shape[:2], h.shape[2] * h.shape[3]), dh_n, dc_n, dg)
            dx, dh0, dc0, *d_flat = gradients_again(call, given)
        else:
            asked = Given(dh, dh_n, dc_n, dg if has_gates(ctx.spec) else None)
            dx, dh0, dc0, *d_flat = gradients(
                ctx.spec,
                weights,
                x,
                State(h0, c0),
                lengths,
                masks,
                h,
                Kept(acts, c, q, normals),
                asked,
                ctx.needs_input_grad[1],
            )
        return None, dx, dh0, dc0, None, None, *d_flat
