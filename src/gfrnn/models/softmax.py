"""The softmax over symbols and its cost, in one pass. N rows, K features, V symbols."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gfrnn import parameters
from gfrnn.checks import no_autocast


class SymbolNats(torch.autograd.Function):
    """-ln p(target) of softmax(features weight^T + bias), row by row.

    One (N, V) buffer serves as logits, as probabilities, and as their gradient: log-probabilities are never kept,
    and the backward pass starts from the finished gradient p - onehot(target). The products are in the weight's
    precision, whatever autocast says; the softmax and the cost are in float32 at least.
    """

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        with no_autocast(weight):
            logits = torch.addmm(bias, features.to(weight.dtype), weight.t())
        buffer = logits.to(torch.promote_types(logits.dtype, torch.float32))
        buffer.sub_(buffer.amax(1, keepdim=True))
        index = targets[:, None]
        picked = buffer.gather(1, index).squeeze(1)
        total = buffer.exp_().sum(1)
        nats = total.log().sub_(picked)
        if any(ctx.needs_input_grad):
            buffer.div_(total[:, None])
            buffer.scatter_add_(1, index, buffer.new_full((), -1.0).expand_as(index))
            ctx.save_for_backward(features, weight, buffer)
        return nats

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, difference = ctx.saved_tensors
        d_logits = (difference * cotangents[0][:, None]).to(weight.dtype)
        need = ctx.needs_input_grad
        with no_autocast(weight):
            return (
                (d_logits @ weight).to(features.dtype) if need[0] else None,
                d_logits.t() @ features.to(weight.dtype) if need[1] else None,
                d_logits.sum(0) if need[2] else None,
                None,
            )


def symbol_nats(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Cost in nats of each target: features (..., K), weight (V, K), bias (V,), targets (...) -> (...).

    >>> symbol_nats(torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(4), torch.tensor([0, 3])).exp()
    tensor([4., 4.])
    """
    nats = SymbolNats.apply(features.reshape(-1, features.shape[-1]), weight, bias, targets.reshape(-1))
    return nats.view(targets.shape)


class SoftmaxHead(nn.Linear):
    """Features to logits. Starts as the paper's: weights uniform(-0.08, 0.08), bias 0."""

    def reset_parameters(self) -> None:
        parameters.put(self.weight, parameters.uniform(self.weight))
        nn.init.zeros_(self.bias)

    def nats(self, features: Tensor, targets: Tensor) -> Tensor:
        """Cost in nats of each target: features (..., K), targets (...) -> (...)."""
        return symbol_nats(features, self.weight, self.bias, targets)
