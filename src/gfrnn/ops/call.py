"""What goes through the door: one call, one answer. T time, B batch, L layers, H units, I input."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from gfrnn.equations import Spec, State, Weights


class Call(NamedTuple):
    x: Tensor  # (T, B, I), or (T, B) integers standing for one-hot vectors
    state: State  # (L, B, H) each
    weights: Sequence[Weights]  # one per layer
    spec: Spec
    lengths: Tensor | None = None  # (B,) int64 on x's device, each in 1..T
    dropout_masks: Tensor | None = None  # (T, B, L-1, H), already scaled by 1/(1-p)
    return_gates: bool = False

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
