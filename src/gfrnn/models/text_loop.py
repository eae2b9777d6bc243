"""Generation in the C++ op (generate.h): one pass over the weights per character of all texts, sampling included."""

from typing import Any

import torch
from torch import Tensor, nn

from gfrnn.checks import products
from gfrnn.equations import EPSILON
from gfrnn.layers import GatedFeedback
from gfrnn.ops import cpu


def half_rounded(tensor: Tensor) -> Tensor:
    """A matrix as its 16-bit copy reads; vectors (biases) stay as they are.

    >>> half_rounded(torch.tensor([[1 / 3]])).item()
    0.333251953125
    """
    return tensor.half().to(tensor.dtype) if tensor.dim() > 1 else tensor


class TextLoop:
    """The weights of a layer and a softmax head, packed once; `run` continues N texts, each as it would alone.

    With `half` every matrix is stored in 16 bits: half the bytes to read, at the rounding of `half_rounded`.
    """

    def __init__(self, layer: GatedFeedback, head: nn.Linear, half: bool = False) -> None:
        spec = layer.spec
        rounded = half_rounded if half else (lambda tensor: tensor)
        self.weights = [rounded(t.detach()) for w in layer.weights() for t in w if t is not None]
        self.head = rounded(head.weight.detach())
        self.bias = None if head.bias is None else head.bias.detach().clone()
        self.has_cell = layer.has_cell
        self.options = (
            cpu.UNITS.index(spec.unit),
            cpu.WIRINGS.index(spec.wiring),
            spec.gates_see == "own",
            spec.input_skip,
            EPSILON if spec.normalise else 0.0,
            half,
        )
        h, c = self._parts(layer.initial_state(1))
        self.packed = torch.ops.gfrnn.generate_pack(h, c, self.weights, self.head, self.bias, *self.options)

    @staticmethod
    def why_not(layer: GatedFeedback, head: nn.Linear) -> list[str]:
        """Sentences why the loop cannot run this model; empty: it can."""
        reasons = list(cpu.why_unavailable() or cpu.IMPLEMENTS.why_not_kind(layer.spec))
        if layer.backend not in ("auto", "cpu"):
            reasons.append(f"the layer's backend is {layer.backend!r}")
        if any(t.dtype != torch.float32 or t.device.type != "cpu" for t in (*layer.parameters(), *head.parameters())):
            reasons.append("the loop is for float32 on the CPU")
        if products(head.weight) is not None:
            reasons.append("the loop has no products in bfloat16")
        return reasons

    def _parts(self, state: Any) -> tuple[Tensor, Tensor | None]:
        return (state[0], state[1]) if self.has_cell else (state, None)

    def run(
        self, logits: Tensor, state: Any, uniform: Tensor, temperature: float, top_k: int | None, top_p: float | None
    ) -> tuple[Tensor, Tensor, Any]:
        """Draw as many symbols as there are in uniform (N, steps), the first of each text from `logits` (N, V).

        Symbols (N, steps), the next logits, the state behind them.
        """
        symbols, logits, h, c = torch.ops.gfrnn.generate(
            self.packed,
            logits,
            *self._parts(state),
            self.weights,
            self.head,
            self.bias,
            uniform,
            temperature,
            top_k or 0,
            top_p or 0.0,
            *self.options,
        )
        return symbols, logits, (h, c) if self.has_cell else h
