"""What goes through the door: one call, one answer. T time, B batch, L layers, H units, I input."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gfrnn.equations import WIRINGS, Spec, State, Weights


class Call(NamedTuple):
    x: Tensor  # (T, B, I), or (T, B) integers standing for one-hot vectors
    state: State  # (L, B, H) each
    weights: Sequence[Weights]  # one per layer
    spec: Spec
    lengths: Tensor | None = None  # (B,) int64 on x's device, each in 1..T
    dropout_masks: Tensor | None = None  # (T, B, L-1, H), already scaled by 1/(1-p)
    return_gates: bool = False
    products: torch.dtype | None = None  # torch.bfloat16: as products.py defines them; None: in the tensors' dtype

    def tensors(self) -> list[Tensor]:
        """Every floating-point tensor of the call."""
        candidates = [
            self.x,
            *self.state,
            self.dropout_masks,
            *(tensor for w in self.weights for tensor in w),
        ]
        return [t for t in candidates if t is not None and t.is_floating_point()]


class Scanned(NamedTuple):
    h: Tensor  # (T, B, L*H): every layer's h_t side by side; zero where a row has ended
    state: State  # after each row's last step
    gates: Tensor | None  # (T, B, L_to, L_from), when asked for


def constant_gates(call: Call) -> Tensor:
    """The global reset gates of a wiring that computes none: one for every layer that is heard."""
    T, B = call.x.shape[:2]
    h, L = call.state.h, call.spec.num_layers
    hears = WIRINGS[call.spec.wiring].hears
    heard = torch.tensor(
        [[float(i in hears(j, L)) for i in range(L)] for j in range(L)], dtype=h.dtype, device=h.device
    )
    gates = heard.expand(T, B, L, L)
    if call.lengths is None:
        return gates.clone()
    running = torch.arange(T, device=h.device)[:, None] < call.lengths
    return gates * running[:, :, None, None]
