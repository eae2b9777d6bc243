"""A gradient computed once more by the reference, which has all derivatives, where a backward of our own has not."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gfrnn.equations import State
from gfrnn.ops import reference
from gfrnn.ops.call import Call
from gfrnn.ops.declared import owns_memory
from gfrnn.ops.matrices import unflatten_weights


def is_asked_for_more(given: Sequence[Tensor | None]) -> bool:
    """Whether the gradient shall itself be differentiated (create_graph=True), or is wanted under vmap."""
    return torch.is_grad_enabled() or not all(owns_memory(d) for d in given if d is not None)


def gradients_again(call: Call, given: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Gradients of x, h0, c0 and every field of each layer's Weights, None where none is wanted.

    `given` are those of h (T, B, L*H), h_n, c_n and the gates. Under create_graph=True the result has a graph.
    """
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views, so that the way ends there: h0 may itself be made of the weights, which is not for us to follow.
        inputs = (call.x, *call.state, *(t for w in call.weights for t in w))
        x, h0, c0, *flat = starts = [None if t is None else t.view_as(t) for t in inputs]
        assert x is not None and h0 is not None
        again = call._replace(x=x, state=State(h0, c0), weights=unflatten_weights(tuple(flat)), return_gates=True)
        scanned = reference.scan(again)
    outputs = (scanned.h, *scanned.state, scanned.gates)
    pairs = [(o, d) for o, d in zip(outputs, given, strict=True) if o is not None and d is not None and o.requires_grad]
    found = iter(
        torch.autograd.grad(
            [o for o, _ in pairs],
            [t for t in starts if t is not None and t.requires_grad],
            [d for _, d in pairs],
            create_graph=differentiable,
            allow_unused=True,
        )
    )
    return [next(found) if t is not None and t.requires_grad else None for t in starts]
