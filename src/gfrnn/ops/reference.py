"""The reference backend: for t, equations.step; autograd does the backward. The truth the others are held against."""

import torch
from torch import Tensor

from gfrnn import equations
from gfrnn.equations import State
from gfrnn.ops.call import Call, Scanned
from gfrnn.ops.declared import Implements
from gfrnn.products import products_in

IMPLEMENTS = Implements()  # everything: whatever is in equations.py, wherever torch runs


def why_unavailable() -> list[str]:
    return []


def scan(call: Call) -> Scanned:
    """All timesteps of `call`, one after the other."""
    x, state, products = call.x, call.state, products_in(call.products)
    outputs: list[Tensor] = []
    gates: list[Tensor] = []
    for t in range(x.shape[0]):
        mask = None if call.dropout_masks is None else call.dropout_masks[t]
        x_t = x[t]
        if call.lengths is not None:
            # A finished row must not let what stands in its padding (NaN, or no index at all) near the weights.
            running = t < call.lengths
            x_t = torch.where(running if x_t.dim() == 1 else running[:, None], x_t, torch.zeros_like(x_t))
        new, g = equations.step(x_t, state, call.weights, call.spec, mask, products)
        h_t = new.h
        if call.lengths is not None:
            alive = running[None, :, None]
            h_t = torch.where(alive, new.h, torch.zeros_like(new.h))
            kept_c = None if state.c is None or new.c is None else torch.where(alive, new.c, state.c)
            new = State(torch.where(alive, new.h, state.h), kept_c)
            g = torch.where(running[:, None, None], g, torch.zeros_like(g))
        state = new
        outputs.append(h_t.transpose(0, 1).flatten(1))
        if call.return_gates:
            gates.append(g)
    return Scanned(torch.stack(outputs), state, torch.stack(gates) if call.return_gates else None)
